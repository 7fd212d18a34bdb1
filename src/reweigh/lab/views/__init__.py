"""Output for people: self-contained HTML pages, tables, colored mentions and small plots."""
