"""The study corpus: what one pass over a set of images keeps, so that no study generates anything again.

    corpus = StudyCorpus.open("study/corpus/evaluation")
    for image in corpus:              # one shard in memory at a time, images in the order of the set
        image.text, image.tokens, image.probability            # the base model's greedy answer, T steps
        image.step(3)                                          # candidate ids and raw logits of a step
        image.evidence["dmrr"]                                 # (V,) float32, each of EVIDENCE
        image.original.scale, image.equalized.log_probability  # by position, PositionSummary
        image.mentions                                         # the scorer's, with the step of their onset

``make_corpus`` (in ``make``) writes one, with a model; ``StudyCorpus`` (in ``store``) reads it, without. A corpus belongs to
one model, layer, image set and seed. It is written in shards of fixed size: a pass that is killed resumes at the next shard
and ends with the same bytes. The manifest, written last, holds the hash of every shard.
"""
