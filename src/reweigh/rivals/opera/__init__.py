"""OPERA (Huang et al., CVPR 2024): beam search with an over-trust penalty and roll-back."""
