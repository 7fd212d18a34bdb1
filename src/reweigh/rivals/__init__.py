"""Every decoder by name, ReWEIGH and the methods it is compared with, all attached to a model in the same way.

    with reweigh.decoder("vcd", model, processor, alpha=1.0):
        model.generate(**inputs)

Decoders register by name; a third party adds one, a ``Decoder`` subclass, through the entry-point group
``reweigh.decoders``. A method has the module of its name. What several share: ``rules`` (formulas on logits),
``contrast`` (a second branch), ``early`` and ``buckets`` (earlier layers), ``beams``, ``entities``, ``options``. What one is
made of: ``noise`` (VCD), ``overtrust``, ``retrospection``, ``hypotheses``, ``opera_*`` (OPERA), ``outliers`` (DAMRO),
``retrace`` (MemVR), ``fields``, ``words``, ``halc_walk`` and the detectors and matchers ``grounding``, ``annotated``,
``gain`` (HALC).
"""

from __future__ import annotations

from typing import Any

from reweigh.engines.transformers.session import Session
from reweigh.families.anatomy import find_anatomy
from reweigh.registry import Registry
from reweigh.rivals.tools.options import check_options
from reweigh.runtime.decoder import Decoder

__all__ = ["DECODERS", "Decoder", "Session", "check_options", "decoder"]

DECODERS: Registry[type[Decoder]] = Registry(
    "decoder",
    {
        "base": "reweigh.rivals.plain:Greedy",
        "greedy": "reweigh.rivals.plain:Greedy",
        "beam": "reweigh.rivals.plain:Beam",
        "nucleus": "reweigh.rivals.plain:Nucleus",
        "sampling": "reweigh.rivals.plain:Sampling",
        "cut": "reweigh.rivals.plain:CutOnly",
        "reweigh": "reweigh.decoding:ReWEIGH",
        "vcd": "reweigh.rivals.vcd:VCD",
        "opera": "reweigh.rivals.opera.decoder:OPERA",
        "dola": "reweigh.rivals.dola:DoLa",
        "pai": "reweigh.rivals.pai:PAI",
        "revisit": "reweigh.rivals.revisit:ReVisiT",
        "deco": "reweigh.rivals.deco:DeCo",
        "m3id": "reweigh.rivals.m3id:M3ID",
        "icd": "reweigh.rivals.icd:ICD",
        "sid": "reweigh.rivals.sid:SID",
        "memvr": "reweigh.rivals.memvr:MemVR",
        "code": "reweigh.rivals.code:CODE",
        "damro": "reweigh.rivals.damro:DAMRO",
        "asd": "reweigh.rivals.asd:ASD",
        "halc": "reweigh.rivals.halc.decoder:HALC",
        "projectaway": "reweigh.rivals.projectaway:ProjectAway",
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
