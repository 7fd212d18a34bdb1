"""Intervene: a bounded edit of the next-token logits where the image gives too little evidence."""
