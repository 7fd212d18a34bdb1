"""What several rivals share.

``contrast``: a decoder with a second branch, and the formulas of contrast and plausibility cut; ``branch``: the branch's
passes; ``inputs``: its prompt. ``layers``: earlier layers read through the head. ``edits``: edits of the residual stream, of
MLPs and of attention. ``vectors``: what is learned from labeled answers. ``options``: the check of a decoder's options.
"""
