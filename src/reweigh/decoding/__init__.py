"""ReWEIGH, the method of this package, as a decoder like the others."""

from reweigh.decoding.attach import ReweighSession, attach
from reweigh.decoding.reweigh import ReWEIGH
from reweigh.families.points import BETA

__all__ = ["BETA", "ReWEIGH", "ReweighSession", "attach"]
