"""CHAIR: objects that captions mention, against objects that COCO says are there."""
