"""The command line: one module per command, each importing its heavy parts only when it runs."""
