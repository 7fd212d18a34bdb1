"""Every decoder on the same records: answers, scores and cost in one run, one table in the paper's layout."""
