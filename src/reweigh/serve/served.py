"""The served model: its table and decoders, facts about it, and cached evidence of pictures."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reweigh import __version__
from reweigh.attached import Attached, attach
from reweigh.doctor.model import examine
from reweigh.engines.session import Session
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.memory import Memory
from reweigh.rivals import DECODERS, decoder
from reweigh.serve.batch import streams
from reweigh.serve.prepare import LANES, Prepared, prepare_inputs, resized
from reweigh.serve.recall import Recall
from reweigh.serve.wire import Message
from reweigh.tables.store import fetch_folder, table_layers
from reweigh.tables.table import ReferenceTable
from reweigh.text import DESCRIBE, Template

if TYPE_CHECKING:
    from PIL.Image import Image

Source = str | Path

CONTEXT = 32_768
"""Positions of a model that does not declare how many it has."""
BASE = "base"
"""The decoder equal to ReWEIGH with beta 0, bit for bit; it shares its batch and can be traced."""


class Served:
    """A model with everything that a server needs.

    Args:
        name: The name that clients use.
        names: Further names that clients may use.
        table: Reference table; without one the server offers the base model and the other decoders.
        layer: Layer of ``table``, if its folder holds several; the recorded point's if not given.
        beta: Maximum penalty with ``table``; the recorded point's if not given.
        decoders: Decoders that requests may choose besides ReWEIGH and the base model; each may cost seconds of the
            model's time for one answer.
        cache: Where evidence of pictures is cached.
        template: Prompt template, for processors without a chat template.
        world: Whether it is the embedded model, whose scenes the page can show.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        *,
        name: str,
        names: Collection[str] = (),
        table: Source | None = None,
        layer: int | None = None,
        beta: float | None = None,
        decoders: Sequence[str] = (),
        cache: Memory | None = None,
        template: Template | None = None,
        force: bool = False,
        world: bool = False,
    ) -> None:
        self.model = model
        self.processor = processor
        self.name = name
        self.names = frozenset({name, *names, *(["world"] if world else [])})
        self.template = template
        self.world = world
        self.anatomy = find_anatomy(model)
        self.cache = Memory() if cache is None else cache
        self.recall = Recall(self.anatomy, processor, self.cache)
        self._source = table
        self._layer = layer
        self._beta = beta
        self._force = force
        paths = {str(getattr(model, "name_or_path", "")), str(table or "")}
        # a bare name ("table") tells nothing, and is a word of many messages
        self.hidden = tuple(path for path in paths - {name} if "/" in path or "\\" in path)
        self._session: Attached | None = None
        self._sessions: dict[int, Attached] = {}
        # Tokenizers refuse to be set up in one thread while another decodes with them.
        self.processors = [copy.deepcopy(processor) for _ in LANES]
        self.examined, self.reason = self._examine()
        if self.reason is None:
            self._read()
            self._warm_up()
        others = {*decoders} - {BASE, "reweigh"} | ({BASE} if self.reason else set())
        self._others = {name: decoder(name, model, processor) for name in others}

    def reload(self) -> None:
        """Read the table again, or keep it if that fails; sessions that are in use stay as they are."""
        self._require_reweigh()
        self._read()

    def _read(self) -> None:
        """Read the table at all its layers, so that what requests choose later belongs to the same reading."""
        assert self._source is not None

        def open_session(table: ReferenceTable | Source, layer: int | None) -> Attached:
            return attach(
                self.model, self.processor, table=table, beta=self._beta, layer=layer, force=self._force
            )

        session = open_session(self._source, self._layer)
        sessions = {session.layer: session}
        folder = fetch_folder(self._source)
        for layer in table_layers(folder):
            if layer not in sessions:
                sessions[layer] = open_session(ReferenceTable.from_pretrained(folder, layer=layer), layer)
        self._session, self._sessions = session, sessions

    def _examine(self) -> tuple[dict[str, Any] | None, str | None]:
        """Return the report of `reweigh doctor`, and why ReWEIGH is not available, if it is not."""
        reason = None if self._source is not None else "the server was started without a reference table"
        try:
            found = examine(self.model, self.processor, template=self.template)
        except ReweighError as error:
            return None, f"the model could not be examined: {error.message}"
        if not found["parity"]["holds"]:
            reason = "norm and head do not reproduce this model's logits, so its evidence cannot be read"
        return found, reason

    def _warm_up(self) -> None:
        """Generate two tokens, to compile kernels and check the lens before the first request."""
        from PIL import Image

        session = self.reweigh()
        sample = Image.radial_gradient("L").convert("RGB")
        session.respond(session.prepare([sample], [DESCRIBE], template=self.template), max_new_tokens=2)

    def summary(self) -> dict[str, Any]:
        """Return what is served, for the log and the metrics."""
        import transformers

        missing = {"table": None, "table_sha256": None, "layer": None, "beta": None}
        return {
            "version": __version__,
            "model": self.name,
            **(missing if self._session is None else self._about(self._session)),
            "device": str(self.model.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def _about(self, session: Attached) -> dict[str, Any]:
        """Return source and fingerprint of the table, layer and beta."""
        return {
            "table": str(self._source),
            "table_sha256": session.table.fingerprint[:12],
            "layer": session.layer,
            "beta": session.beta,
        }

    @property
    def layers(self) -> list[int]:
        """The layers of the table."""
        return sorted(self._sessions)

    @property
    def context(self) -> int:
        """Positions that the model has, prompt and answer together."""
        found = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return found if isinstance(found, int) else CONTEXT

    def session(self, name: str, layer: int | None = None) -> Session:
        """Return the session of a decoder; ReWEIGH and the base model share one, which decodes both in one batch."""
        if name == "reweigh" or (name == BASE and self.reason is None):
            return self.reweigh(layer)
        if layer is not None and name != BASE:
            raise InputError(f"reweigh.layer belongs to the decoder reweigh, not to {name}")
        return self._others[name]

    def reweigh(self, layer: int | None = None) -> Attached:
        """Return ReWEIGH at a layer of the table, by default the table's own."""
        self._require_reweigh()
        assert self._session is not None
        if layer is None:
            return self._session
        wanted = self.anatomy.check_layer(layer)
        if wanted not in self._sessions:
            raise InputError(
                f"the table has no layer {layer}", hint=f"it has {', '.join(map(str, self.layers))}"
            )
        return self._sessions[wanted]

    def _require_reweigh(self) -> None:
        if self.reason is not None:
            raise UnsupportedError(f"ReWEIGH is not available here: {self.reason}")

    @torch.no_grad()
    def prepare(
        self,
        messages: Sequence[Message],
        pictures: Sequence[Image],
        arguments: Mapping[str, Any] | None = None,
        *,
        lane: int = 0,
    ) -> Prepared:
        """Prepare a conversation; called by one thread at a time in each lane.

        Args:
            arguments: Further arguments for the chat template, which win over the server's own.
        """
        template, pictures = self.template, resized(pictures, messages)
        if arguments:
            if isinstance(template, str):
                raise InputError("this server replaces the chat template by one that takes no arguments")
            template = {**(template or {}), **arguments}
        inputs = prepare_inputs(self.model, self.processors[lane], messages, pictures, template=template)
        key = self.recall.keys([list(pictures)], inputs)[0] if pictures else None
        return Prepared(inputs, key, int(inputs["input_ids"].shape[1]))

    def decoders(self) -> list[dict[str, Any]]:
        """List the decoders as the page shows them."""
        listed = []
        for name in self.offered:
            session = self.session(name)
            made = DECODERS[BASE] if name == BASE else type(session.decoder)
            listed.append(
                {
                    "name": name,
                    "title": made.title or name,
                    "is_rival": made.is_rival,
                    "needs_image": made.needs_image,
                    "streams": streams(session),
                }
            )
        return listed

    @property
    def offered(self) -> list[str]:
        """The names of the decoders that requests may choose."""
        return sorted({BASE, *self._others} | (set() if self.reason else {"reweigh"}))
