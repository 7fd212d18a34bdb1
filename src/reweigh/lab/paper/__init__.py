"""The paper's analyses: one pass over the images, the studies computed from it, the published numbers beside them.

``corpus`` keeps what one pass over the images yields. ``analyses`` has one file per study: formula, frame, sentences,
drawing, and the tables of the paper that it fills. ``published`` sets the paper's numbers beside ours.
"""
