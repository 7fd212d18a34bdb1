"""Language tools of the scorers: words, sentences, tags and lemmas."""
