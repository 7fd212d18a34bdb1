"""Every decoder by name, ReWEIGH and the methods it is compared with, all attached to a model in the same way.

    with reweigh.decoder("vcd", model, processor, alpha=1.0):
        model.generate(**inputs)

Decoders register by name; a third party adds one, a ``Decoder`` subclass, through the entry-point group
``reweigh.decoders``. A method has the module of its name. What several share: ``rules`` (formulas on logits),
``contrast`` (a second branch), ``early`` and ``buckets`` (earlier layers), ``beams``, ``entities``, ``options``. What one is
made of: ``noise`` (VCD), ``overtrust``, ``retrospection``, ``hypotheses``, ``opera_*`` (OPERA), ``outliers`` (DAMRO),
``retrace`` (MemVR), ``fields``, ``words``, ``halc_walk`` and the detectors and matchers ``grounding``, ``annotated``,
``lens_boxes``, ``gain`` (HALC).
"""

from __future__ import annotations

from typing import Any

from reweigh.decoders.options import check_options
from reweigh.engines.base import Decoder
from reweigh.engines.transformers.session import Session
from reweigh.families.anatomy import find_anatomy
from reweigh.registry import Registry

__all__ = ["DECODERS", "Decoder", "Session", "check_options", "decoder"]

DECODERS: Registry[type[Decoder]] = Registry(
    "decoder",
    {
        "base": "reweigh.decoders.plain:Greedy",
        "greedy": "reweigh.decoders.plain:Greedy",
        "beam": "reweigh.decoders.plain:Beam",
        "nucleus": "reweigh.decoders.plain:Nucleus",
        "sampling": "reweigh.decoders.plain:Sampling",
        "cut": "reweigh.decoders.plain:CutOnly",
        "reweigh": "reweigh.decoders.reweigh:ReWEIGH",
        "vcd": "reweigh.decoders.vcd:VCD",
        "opera": "reweigh.decoders.opera:OPERA",
        "dola": "reweigh.decoders.dola:DoLa",
        "pai": "reweigh.decoders.pai:PAI",
        "revisit": "reweigh.decoders.revisit:ReVisiT",
        "deco": "reweigh.decoders.deco:DeCo",
        "m3id": "reweigh.decoders.m3id:M3ID",
        "icd": "reweigh.decoders.icd:ICD",
        "sid": "reweigh.decoders.sid:SID",
        "memvr": "reweigh.decoders.memvr:MemVR",
        "code": "reweigh.decoders.code:CODE",
        "damro": "reweigh.decoders.damro:DAMRO",
        "asd": "reweigh.decoders.asd:ASD",
        "focal": "reweigh.decoders.focal:FocalContrast",
        "halc": "reweigh.decoders.halc:HALC",
        "projectaway": "reweigh.decoders.projectaway:ProjectAway",
        "projectaway-auto": "reweigh.decoders.projectaway_auto:ProjectAwayAuto",
    },
    group="reweigh.decoders",
)


def decoder(name: str, model: Any, processor: Any = None, **options: Any) -> Session:
    """Tie a decoder to a model; the result is a context in which the model's own ``generate`` follows it.

    Args:
        name: A registered decoder, e.g. "vcd"; an unknown name suggests the nearest.
        model: A transformers vision-language model (any causal model for decoders that need no image).
        processor: Its processor; needed for ``describe`` and by decoders that write a prompt of their own.
        options: The decoder's own options; its official defaults where they are left out.
    """
    entry = DECODERS[name]
    check_options(name, entry, options)
    made = entry(find_anatomy(model, images=entry.needs_image), processor, **options)
    made.name, made.options = name, options
    return made.attach(model, processor)
