"""HALC (Chen et al., ICML 2024): object words are looked up in the picture and written again from crops around them."""
