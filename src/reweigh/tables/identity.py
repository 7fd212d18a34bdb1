"""What is recorded of a model, and how two records differ: weights, adapters, tokenizer and settings, never the name.

Two models are the same if no weight and no setting that shapes evidence tells them apart; the float type they are loaded in
does not count (see `method.register.signature`), so a renamed or converted copy is the same. Compares records; who
makes one of a loaded model is `families.identity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reweigh.files.artifacts import sha256_json
from reweigh.tables.signature import agree, kind_and_shape

NAMED_SETTINGS = 4
"""Differing settings that a message names before it counts the rest."""


@dataclass(frozen=True)
class Identity:
    """What a table, a calibration and a run record of their model.

    Attributes:
        model_id: Name or folder; never compared, since a renamed copy is the same model.
        weights: Signature of each parameter and persistent buffer by name, active adapters included.
        adapters: Active adapters with the scales they have in the layers.
        tokenizer: Hash of the vocabulary.
        images: Settings of the image processor, and its backend.
        config: Settings of the model's configuration that shape what it computes.
    """

    model_id: str
    revision: str | None
    architecture: str
    blocks: int
    vocab_size: int
    weights: dict[str, str]
    adapters: dict[str, list[float]]
    tokenizer: str
    images: dict[str, Any]
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return asdict(self)

    def summary(self) -> dict[str, Any]:
        """Plain values for a record that is compared as a whole: the weights are one hash."""
        return {**self.to_json(), "weights": sha256_json(self.weights)}

    def missing(self, record: Mapping[str, Any]) -> list[str]:
        """What a recorded identity lacks for a comparison with this one."""
        mine = self.to_json()
        wanted = [name for name in mine if name not in ("model_id", "revision")]
        optional = {"adapters", *(name for name in ("tokenizer", "images") if not mine[name])}
        return [
            name
            for name in wanted
            if type(record.get(name)) is not type(mine[name]) or not (record[name] or name in optional)
        ]

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """How this model differs from a recorded one, in words that name both sides; nothing for the same model."""
        return differences(record, self.to_json(), sides=("table", "model"))


def differences(one: Mapping[str, Any], other: Mapping[str, Any], *, sides: tuple[str, str]) -> list[str]:
    """How two recorded identities differ, in words that name both sides.

    A tokenizer or image processor that one side does not have is not compared. Of the configuration, settings that both
    sides have are compared: versions of transformers add others.
    """

    def both(mine: Any, theirs: Any) -> str:
        return f"{sides[0]} {mine}, {sides[1]} {theirs}"

    found = [
        f"{name.replace('_', ' ')}: {both(one[name], other[name])}"
        for name in ("architecture", "blocks", "vocab_size")
        if one[name] != other[name]
    ]
    found += weight_differences(one["weights"], other["weights"], sides)
    if one["adapters"] != other["adapters"]:
        found.append(f"adapters: {both(*(_adapter_words(side['adapters']) for side in (one, other)))}")
    if one["tokenizer"] != other["tokenizer"] and one["tokenizer"] and other["tokenizer"]:
        found.append(f"tokenizer: {both(one['tokenizer'][:12], other['tokenizer'][:12])}")
    for title, name in (("the image processor's", "images"), ("the configuration's", "config")):
        mine, theirs = dict(_flat(one[name])), dict(_flat(other[name]))
        keys = mine.keys() & theirs.keys() if name == "config" else mine.keys() | theirs.keys()
        differing = (
            [key for key in sorted(keys) if mine.get(key) != theirs.get(key)] if mine and theirs else []
        )
        found += [
            f"{title} {key}: {both(mine.get(key, 'not set'), theirs.get(key, 'not set'))}"
            for key in differing[:NAMED_SETTINGS]
        ]
        if len(differing) > NAMED_SETTINGS:
            found.append(f"{len(differing) - NAMED_SETTINGS} more of {title} settings")
    return found


def weight_differences(one: Mapping[str, str], other: Mapping[str, str], sides: tuple[str, str]) -> list[str]:
    """How many parameter tensors only one side has, are packed or shaped in another way, or hold other values."""
    found = []
    for side, mine, theirs in ((sides[0], one, other), (sides[1], other, one)):
        if alone := [name for name in mine if name not in theirs]:
            found.append(f"only the {side} has {len(alone)} parameter tensors, e.g. {alone[0]}")
    differing = [name for name in one if name in other and not agree(one[name], other[name])]
    if differing:
        name = differing[0]
        shapes = [kind_and_shape(side[name]) for side in (one, other)]
        packed = [kind for kind, _ in shapes if not kind.endswith(("float16", "float32"))]
        detail = ""
        if shapes[0][1] != shapes[1][1] or (packed and shapes[0] != shapes[1]):
            detail = ": {} {}, {} {}".format(sides[0], " ".join(shapes[0]), sides[1], " ".join(shapes[1]))
        common = sum(name in other for name in one)
        found.append(f"{len(differing)} of {common} parameter tensors differ, e.g. {name}{detail}")
    return found


def _adapter_words(adapters: Mapping[str, list[float]]) -> str:
    words = [
        f"{name} (scale {', '.join(map(str, scales))})" if scales else name
        for name, scales in adapters.items()
    ]
    return " and ".join(words) or "none"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of all depths, by names joined with dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
