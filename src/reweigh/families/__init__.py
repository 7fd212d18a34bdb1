"""Model families: where a vision-language model keeps its parts and its image positions."""

from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.catalogue import FAMILIES, Family, family_of
from reweigh.families.identity import Watch
from reweigh.families.load import load

__all__ = ["FAMILIES", "Anatomy", "Family", "Watch", "family_of", "find_anatomy", "load"]
