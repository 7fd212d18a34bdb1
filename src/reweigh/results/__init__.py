"""What people look at: self-contained HTML pages, tables, coloured mentions and small plots."""
