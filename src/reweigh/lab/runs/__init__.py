"""Runs: records answered into folders that resume, scored and compared."""
