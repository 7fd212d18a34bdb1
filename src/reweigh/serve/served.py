"""The model that a server serves: its decoders by name and layer, its facts, and what it remembers of pictures."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reweigh import __version__
from reweigh.decoding import ReweighSession, attach
from reweigh.engines.transformers.examine import examine
from reweigh.engines.transformers.recall import Recall
from reweigh.engines.transformers.session import Session
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.rivals import DECODERS, decoder
from reweigh.runtime.memory import EvidenceCache
from reweigh.serve.batch import streams
from reweigh.serve.prepare import Prepared, prepare_inputs
from reweigh.serve.wire import Message
from reweigh.tables.folders import table_layers
from reweigh.tables.table import ReferenceTable
from reweigh.text import DESCRIBE

if TYPE_CHECKING:
    from PIL.Image import Image

UNEDITED = frozenset({"base", "greedy"})
"""Decoders equal to ReWEIGH with beta 0, bit for bit; they can share its batch and be traced."""


class Served:
    """A model with everything that a server needs.

    Args:
        name: The name clients use.
        names: Further names that clients may use.
        table: Reference table; without one the server offers the base model and the other decoders.
        layer: Its layer, where the table's folder holds several; the recorded point's if not given.
        beta: Maximum penalty; the recorded point's if not given.
        cache: Where evidence of pictures is kept.
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
        table: ReferenceTable | str | Path | None = None,
        layer: int | None = None,
        beta: float | None = None,
        cache: EvidenceCache | None = None,
        template: str | None = None,
        force: bool = False,
        world: bool = False,
    ) -> None:
        self.model = model
        self.processor = processor
        self.name = name
        self.names = frozenset({name, *names, *(["world"] if world else [])})
        self._beta = beta
        self.template = template
        self.world = world
        self.anatomy = find_anatomy(model)
        self.cache = cache or EvidenceCache()
        self.recall = Recall(self.anatomy, processor, self.cache, exact=False)
        self.hidden = tuple({str(getattr(model, "name_or_path", "")), str(table or "")} - {name, ""})
        self._table = table
        self._layer = layer
        self._force = force
        self._sessions: dict[tuple[str, int | None], Session] = {}
        self._lock = threading.Lock()
        # Tokenizers refuse to be set up in one thread while another decodes with them.
        self._preparing = copy.deepcopy(processor)
        self.examined, self.reason = self._examine()
        self.layer: int | None = None
        self.layers: list[int] = []
        if self.reason is None:
            self.reload()
            self._warm_up()

    def reload(self) -> None:
        """Read the table again; sessions that are in use stay as they are."""
        if self.reason is not None:
            raise UnsupportedError(f"ReWEIGH is not available here: {self.reason}")
        fresh, layers = self._attach(self._layer), self._table_layers()
        with self._lock:
            rivals = {key: one for key, one in self._sessions.items() if key[0] != "reweigh"}
            self._sessions = {**rivals, ("reweigh", fresh.layer): fresh}
            self.layer, self.layers = fresh.layer, layers or [fresh.layer]

    def summary(self) -> dict[str, Any]:
        """What is served, for the log and the metrics."""
        import transformers

        session = None if self.reason is not None else self.reweigh()
        return {
            "version": __version__,
            "model": self.name,
            "table": None if session is None else str(self._table),
            "table_sha256": None if session is None else session.table.fingerprint[:12],
            "layer": self.layer,
            "beta": None if session is None else session.beta,
            "device": str(self.model.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def _examine(self) -> tuple[dict[str, Any] | None, str | None]:
        """The report of `reweigh doctor`, and why ReWEIGH is not available, if it is not."""
        if self._table is None:
            reason = "the server was started without a reference table"
        else:
            reason = None
        try:
            found = examine(self.model, self.processor, template=self.template)
        except ReweighError as error:
            return None, f"the model could not be examined: {error.message}"
        if not found["parity"]["holds"]:
            reason = "norm and head do not reproduce this model's logits, so its evidence cannot be read"
        return found, reason

    def _warm_up(self) -> None:
        """Write two tokens, to compile kernels and check the lens before the first request."""
        from PIL import Image

        session = self.reweigh()
        sample = Image.radial_gradient("L").convert("RGB")
        session.respond(session.prepare([sample], [DESCRIBE], template=self.template), max_new_tokens=2)

    def _table_layers(self) -> list[int]:
        if isinstance(self._table, str | Path) and Path(self._table).is_dir():
            return table_layers(Path(self._table))
        return []

    @property
    def beta(self) -> float | None:
        """The maximum penalty of requests that do not set one."""
        return None if self.reason is not None else self.reweigh().beta

    @property
    def context(self) -> int | None:
        """Positions that the model has, prompt and answer together."""
        text = self.model.config.get_text_config()
        found = getattr(text, "max_position_embeddings", None)
        return found if isinstance(found, int) else None

    def session(self, name: str, layer: int | None) -> Session:
        """The session of a decoder; ReWEIGH and the base model share one, which decodes both in one batch."""
        if name in UNEDITED and self.reason is not None:
            return self._named("base")
        if name in UNEDITED or name == "reweigh":
            return self.reweigh(layer)
        if layer is not None:
            raise InputError(f"reweigh.layer belongs to the decoder reweigh, not to {name}")
        return self._named(name)

    def _named(self, name: str) -> Session:
        with self._lock:
            if (name, None) not in self._sessions:
                self._sessions[name, None] = decoder(name, self.model, self.processor)
            return self._sessions[name, None]

    def reweigh(self, layer: int | None = None) -> ReweighSession:
        """ReWEIGH at a layer of the table; the server's own if none is given."""
        if self.reason is not None or self._table is None:
            raise UnsupportedError(f"ReWEIGH is not available here: {self.reason}")
        wanted = self.layer if layer is None else self.anatomy.check_layer(layer)
        if layer is not None and self.layers and wanted not in self.layers:
            raise InputError(
                f"the table has no layer {layer}", hint=f"it has {', '.join(map(str, self.layers))}"
            )
        with self._lock:
            found = self._sessions.get(("reweigh", wanted))
            if found is None:
                found = self._sessions["reweigh", wanted] = self._attach(wanted)
            assert isinstance(found, ReweighSession)
            return found

    def _attach(self, layer: int | None) -> ReweighSession:
        assert self._table is not None
        return attach(
            self.model,
            self.processor,
            table=self._table,
            beta=self._beta,
            layer=layer,
            cache=self.cache,
            force=self._force,
        )

    @torch.no_grad()
    def prepare(self, messages: Sequence[Message], pictures: Sequence[Image]) -> Prepared:
        """Make a conversation ready; called by one thread at a time."""
        inputs = prepare_inputs(self.model, self._preparing, messages, pictures, template=self.template)
        key = self.recall.keys([list(pictures)], inputs)[0] if pictures else None
        return Prepared(inputs, key, int(inputs["input_ids"].shape[1]))

    def decoders(self) -> list[dict[str, Any]]:
        """The decoders that can be asked for, as the page lists them; those that cannot run on this model are left out."""
        listed = []
        for name in DECODERS:
            try:
                session = self.session(name, None)
            except (ReweighError, ImportError):
                continue
            made = type(session.decoder) if name not in UNEDITED else DECODERS["base"]
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
