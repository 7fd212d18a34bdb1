"""Model families: the one place that knows where a vision-language model keeps its parts and its image."""

from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.load import load

__all__ = ["Anatomy", "find_anatomy", "load"]
