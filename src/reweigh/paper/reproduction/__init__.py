"""The paper's tables and figures beside what was measured: published numbers as data, orderings compared, one page each."""
