"""ReWEIGH, the method of this package, as a decoder like the others."""

from reweigh.decoders.reweigh.decoder import ReWEIGH, operating_point
from reweigh.decoders.reweigh.session import ReweighSession, attach
from reweigh.families.points import BETA

__all__ = ["BETA", "ReWEIGH", "ReweighSession", "attach", "operating_point"]
