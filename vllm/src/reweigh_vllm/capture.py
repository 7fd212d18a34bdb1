"""Assign what each step of a worker computed to the requests it belongs to.

Everything about requests comes from the scheduler's message (``SchedulerOutput``), which both model runners receive; only
the order of the batch comes from the runner. Knows nothing about edits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh_vllm.core import Memory, ReweighError, UnsupportedError, family_of, layout, prompt_keys
from reweigh_vllm.reading import Entry, Store
from reweigh_vllm.settings import MARK, SHOWN, Settings

SIZES = 1 << 16
"""Images whose size is remembered: vLLM does not send images that its prefix cache covers."""


@dataclass(eq=False)
class Capture:
    """Follows the batches of one worker.

    A step in which no request joins, leaves or is decided costs the same for any number of rows.

    Attributes:
        config: The model's configuration.
        batch: The entries of the running step by place; ``None`` for a request without one.
        ends: How many tokens the request at each place has computed after the step; for a calibration.
        version: Counts changes of what ``rows`` returns for the same batch.
    """

    settings: Settings
    config: Any
    store: Store
    tap: Any
    runner: Any
    batch: list[Entry | None] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    version: int = 0
    sizes: Memory = field(default_factory=lambda: Memory(SIZES))
    _ids: list[str] = field(default_factory=list)
    _inputs: Any = None
    _undecided: set[str] = field(default_factory=set)
    _news: dict[str, Entry] = field(default_factory=dict)

    def step(self, scheduled: Any) -> None:
        """Process one step, after the forward pass and before sampling, even if it computed nothing."""
        if not self.settings.observe:  # observations are kept until they are taken
            for request in scheduled.finished_req_ids:
                self.store.requests.pop(request, None)
                self._undecided.discard(request)
        for new in scheduled.scheduled_new_reqs:
            self._note(new)
        state = self.runner.execute_model_state
        self._inputs = None if state is None else getattr(state, "input_batch", None)
        ids = [] if state is None else (self._inputs or self.runner.input_batch).req_ids
        if scheduled.scheduled_new_reqs or ids != self._ids:
            self._ids = list(ids)
            self.batch = [self.store.requests.get(request) for request in self._ids]
            self.version += 1
        if state is not None and (self._undecided or self.settings.observe):
            self._read(state, scheduled)

    def _read(self, state: Any, scheduled: Any) -> None:
        """Feed each request its rows, in the order of their starts: others may read its blocks in the same step."""
        running = scheduled.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
        computed.update(zip(running.req_ids, running.num_computed_tokens, strict=True))
        counts = [scheduled.num_scheduled_tokens[request] for request in self._ids]
        self.ends = [computed.get(one, 0) + count for one, count in zip(self._ids, counts, strict=True)]
        starts = [0, *accumulate(counts)]
        waiting = [
            (computed[request], starts[place], counts[place], entry)
            for place, (request, entry) in enumerate(zip(self._ids, self.batch, strict=True))
            if entry is not None and not entry.is_decided
        ]
        if not waiting:
            return
        states = {layer: self.tap.states(state)[layer] for layer in self.store.layers}
        short = min(map(len, states.values()))
        for start, row, count, entry in sorted(waiting, key=itemgetter(0)):
            if short < starts[-1]:  # whose they are is unknown
                entry.fail(f"vLLM handed out the states of {short} of {starts[-1]} positions")
            self.store.feed(entry, start, {layer: own[row : row + count] for layer, own in states.items()})
            if not entry.is_decided and start + count >= entry.prompt:
                missing, all_of_them = len(entry.positions) - entry.read, len(entry.positions)
                entry.fail(f"the states of {missing} of its {all_of_them} visual positions never came")
            if entry.is_decided:
                self._undecided.discard(entry.name)
                self.tell(entry)

    def tell(self, entry: Entry) -> None:
        """Note a request whose outcome is known, or has changed."""
        self.version += 1
        if entry.is_asked:
            self._news[entry.name] = entry

    def _note(self, new: Any) -> None:
        """Make the entry of a new request with images; a preempted request keeps its entry."""
        if new.sampling_params is None or not (new.mm_features or new.prompt_embeds is not None):
            return
        arguments = new.sampling_params.extra_args or {}
        beta, is_shown = arguments.get(MARK), bool(arguments.get(SHOWN))
        is_asked = beta is None or beta > 0 or is_shown
        if not (is_asked or self.settings.measures_all or self.settings.observe):
            return
        tokens, known = new.prompt_token_ids or [], self.store.requests.get(new.req_id)
        places = [(one.identifier, one.mm_position.offset, one.mm_position.length) for one in new.mm_features]
        keys = prompt_keys(tokens, places)
        if known is not None and known.keys == keys:
            return
        entry = Entry(
            name=new.req_id,
            keys=keys,
            prompt=len(tokens),
            beta=float(beta or 0.0),
            is_asked=is_asked,
            is_shown=is_shown,
        )
        if beta is None:
            entry.reason = "vLLM's front end does not have the plugin"
        elif new.prompt_token_ids is None or new.prompt_embeds is not None:
            entry.reason = "its prompt was given as embeddings"
        else:
            self._place(entry, tokens, new.mm_features)
        self.store.requests[new.req_id] = entry
        self.tell(entry) if entry.is_decided else self._undecided.add(new.req_id)

    def _place(self, entry: Entry, tokens: Sequence[int], features: Sequence[Any]) -> None:
        try:
            if self.store.recall_into(entry):
                return
            entry.positions = visual_positions(self.config, tokens, features, self.sizes)
        except ReweighError as error:
            entry.reason = error.message
            return
        if not entry.positions:
            entry.reason = "no position of its prompt carries image content"
            return
        places = (one.mm_position for one in features)
        entry.bounds = [bisect_left(entry.positions, place.offset + place.length) for place in places]
        self.store.resume(entry)

    def key(self, count: int, context: Any = None) -> tuple[Any, ...]:
        """Return a value that is equal for two steps with the same ``rows``."""
        if context is None:
            return self.version, count
        drafts = self._inputs.cu_num_logits_np.tobytes() if count != len(context.idx_mapping_np) else b""
        return self.version, count, context.idx_mapping_np.tobytes(), drafts

    def rows(self, count: int, context: Any = None) -> list[tuple[Entry | None, int]]:
        """Return the entry and the place in the batch of each of ``count`` logits rows.

        The V2 runner may ask for part of the batch and has a row for each drafted token; its ``context`` names the request
        slots. Only host values are read: nothing waits for the device.
        """
        if context is None:
            found = [(entry, place) for place, entry in enumerate(self.batch)]
        else:
            inputs, found = self._inputs, []
            repeats = np.diff(inputs.cu_num_logits_np).tolist()  # logits rows of each request
            in_batch = zip(inputs.idx_mapping_np.tolist(), enumerate(self.batch), repeats, strict=False)
            slots = {slot: ((entry, place), repeat) for slot, (place, entry), repeat in in_batch}
            unknown = (None, -1), 1
            for slot in context.idx_mapping_np.tolist():
                row, repeat = slots.get(slot, unknown)
                found += [row] * repeat
            if len(found) != count:  # an unexpected split: correct, but waits for the device
                found = [slots.get(slot, unknown)[0] for slot in context.expanded_idx_mapping.tolist()]
        if len(found) != count:
            raise RuntimeError(f"reweigh: vLLM samples {count} rows of a batch of {len(found)}")
        return found

    def news(self) -> dict[str, Entry]:
        """Take the requests whose outcome is known and not reported yet."""
        found, self._news = self._news, {}
        return found


def visual_positions(config: Any, tokens: Sequence[int], features: Sequence[Any], sizes: Memory) -> list[int]:
    """Return the positions P of a prompt, ascending, from vLLM's multi-modal features.

    vLLM marks what is replaced by embeddings. If that includes control features (newlines), the family's own layout tells
    them apart; it needs the size of each image, which vLLM sends with the image.
    """
    family = family_of(config)
    if family.has_controls:
        inputs = {"image_sizes": torch.stack([_size(feature, sizes) for feature in features])}
        found = layout(family, config, torch.tensor([list(tokens)]), inputs)[0]
        return [column for column, _ in found]
    positions: list[int] = []
    for place in (feature.mm_position for feature in features):
        inside = (
            range(place.length) if place.is_embed is None else place.is_embed.nonzero().flatten().tolist()
        )
        positions += [place.offset + index for index in inside]
    return sorted(positions)


def _size(feature: Any, known: Memory) -> Tensor:
    """Return height and width of an image, also if it came with an earlier request."""
    size = None if feature.data is None else feature.data.get("image_sizes")
    if size is not None and getattr(size, "data", None) is not None:
        known.put(feature.identifier, torch.as_tensor(size.data).flatten()[-2:].clone(), 1)
    found: Tensor | None = known.get(feature.identifier)
    if found is None:
        raise UnsupportedError("the size of its image is unknown, because the image was in the prefix cache")
    return found
