"""What people look at: self-contained HTML pages, tables, colored mentions and small plots."""
