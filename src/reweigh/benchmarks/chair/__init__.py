"""CHAIR: objects that captions mention, against objects that COCO says are there.

``metrics`` counts, ``vocabulary`` reads the synonym table, ``mentions`` finds objects, ``truth`` reads
the annotations, ``benchmark`` puts them together, ``export`` writes the layout of the published scorers.
"""
