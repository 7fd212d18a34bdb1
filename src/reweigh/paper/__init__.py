"""The paper's analyses: one pass over the images, the studies computed from it, the published numbers beside them."""
