"""Every decoder by name: ReWEIGH, the methods it is compared with, and plain baselines, all attached in the same way.

    with reweigh.decoder("vcd", model, processor, alpha=1.0):
        model.generate(**inputs)

Each rival is a module of its name (OPERA and HALC are folders) and does what its authors' program computes at batch
size 1, for each row of a batch; the module says what differs. ``tools`` holds what several rivals share. A third party
adds a decoder, a ``Decoder`` subclass, through the entry-point group ``reweigh.decoders``.
"""

from __future__ import annotations

from typing import Any

from reweigh.engines.base import Decoder
from reweigh.engines.session import Session, tie
from reweigh.families.anatomy import find_anatomy
from reweigh.families.processor import processor_of
from reweigh.registry import Registry
from reweigh.rivals.tools.options import OWN, REGIME, REGIMES, check_options

__all__ = ["DECODERS", "Decoder", "Session", "check_options", "decoder"]

DECODERS: Registry[type[Decoder]] = Registry(
    "decoder",
    {
        # plain decoding
        "base": "reweigh.rivals.plain:Greedy",
        "greedy": "reweigh.rivals.plain:Greedy",
        "beam": "reweigh.rivals.plain:Beam",
        "nucleus": "reweigh.rivals.plain:Nucleus",
        "sampling": "reweigh.rivals.plain:Sampling",
        "cut": "reweigh.rivals.plain:CutOnly",
        "push": "reweigh.rivals.plain:Push",
        # this package's method
        "reweigh": "reweigh.attached:ReWEIGH",
        # contrast with a second branch
        "vcd": "reweigh.rivals.vcd:VCD",
        "icd": "reweigh.rivals.icd:ICD",
        "sid": "reweigh.rivals.sid:SID",
        "pai": "reweigh.rivals.pai:PAI",
        "m3id": "reweigh.rivals.m3id:M3ID",
        "code": "reweigh.rivals.code:CODE",
        "damro": "reweigh.rivals.damro:DAMRO",
        "asd": "reweigh.rivals.asd:ASD",
        # other layers or positions of the same pass
        "dola": "reweigh.rivals.dola:DoLa",
        "deco": "reweigh.rivals.deco:DeCo",
        "revisit": "reweigh.rivals.revisit:ReVisiT",
        "mcot": "reweigh.rivals.mcot:MCoT",
        # edits inside the model
        "memvr": "reweigh.rivals.memvr:MemVR",
        "projectaway": "reweigh.rivals.projectaway:ProjectAway",
        "vista": "reweigh.rivals.vista:VISTA",
        "vti": "reweigh.rivals.vti:VTI",
        "nullu": "reweigh.rivals.nullu:Nullu",
        "only": "reweigh.rivals.only:ONLY",
        # decoding loops of their own
        "opera": "reweigh.rivals.opera:OPERA",
        "halc": "reweigh.rivals.halc:HALC",
    },
    group="reweigh.decoders",
)


def decoder(name: str, model: Any, processor: Any = None, *, regime: str = OWN, **options: Any) -> Session:
    """Attach a decoder to a model; inside the returned context the model's own ``generate`` uses it.

    Args:
        name: A registered decoder, e.g. "vcd"; an unknown name suggests the nearest.
        model: A transformers vision-language model (any causal model for decoders that need no image).
        processor: Its processor; ``describe`` and decoders that write a prompt of their own need it. If not given, the
            one beside the model, found by the name or path that it was loaded from.
        regime: ``own`` for the authors' way to decode in runs and comparisons, ``greedy``, or ``sampling``; what a method
            itself needs (OPERA's beams, a baseline's sampling) stays.
        options: The decoder's own options; the official defaults where they are left out.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = reweigh.load(world.path())
        >>> picture = render(scene("evaluation", 3), 112)
        >>> with reweigh.decoder("greedy", model, processor) as session:
        ...     session.describe(picture, max_new_tokens=7)
        'The image shows a market with a'
    """
    entry = DECODERS[name]
    check_options(name, entry, {REGIME: regime, **options})
    processor = processor_of(model) if processor is None else processor
    made = entry(find_anatomy(model, images=entry.needs_image), processor, **options)
    made.name, made.options = name, options
    made.regime = REGIMES.get(regime, made.regime)
    session: Session = tie(made)
    return session
