"""What each step of a worker computed, led to the requests it belongs to.

Everything about requests comes from the scheduler's own message (``SchedulerOutput``), which both model runners receive;
only the order of the batch is asked of the runner. Knows nothing of tables or edits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from reweigh.engines.vllm.config import MARK, Settings
from reweigh.engines.vllm.served import visual_positions
from reweigh.engines.vllm.store import Entry, Store
from reweigh.errors import ReweighError
from reweigh.runtime.memory import prompt_keys


class Capture:
    """Follows the batches of one worker.

    Attributes:
        batch: The requests of the running step by their place in it; ``None`` for one without an entry.
        slots: The same by the runner's request slot, with the number of logits rows each has (V2).
        ends: For each place of the batch, how many tokens its request has computed after the step.
    """

    def __init__(self, settings: Settings, config: Any, store: Store, tap: Any, runner: Any) -> None:
        self.settings = settings
        self.config = config
        self.store = store
        self.tap = tap
        self.runner = runner
        self.batch: list[Entry | None] = []
        self.ends: list[int] = []
        self.slots: dict[int, tuple[Entry | None, int]] = {}
        self._ids: list[str] = []

    def step(self, scheduled: Any) -> None:
        """Take in one step, after the forward pass and before sampling; also a step that computed nothing."""
        if not self.settings.observe:  # observations are kept until they are taken
            for request in scheduled.finished_req_ids:
                self.store.requests.pop(request, None)
        computed = self._arrivals(scheduled)
        state = self.runner.execute_model_state
        if state is None:
            self.batch, self.ends, self._ids = [], [], []
            self.slots.clear()
            return
        own = getattr(state, "input_batch", None)
        self._ids = list((own or self.runner.input_batch).req_ids)
        self.batch = [self.store.requests.get(request) for request in self._ids]
        counts = [scheduled.num_scheduled_tokens[request] for request in self._ids]
        self.ends = [
            computed.get(request, 0) + count for request, count in zip(self._ids, counts, strict=True)
        ]
        self._slots(own)
        if any(entry is not None and not entry.is_decided for entry in self.batch):
            self._read(state, computed, counts)

    def _arrivals(self, scheduled: Any) -> dict[str, int]:
        """Note new requests; tokens that each scheduled request had computed before this step."""
        computed = {}
        for new in scheduled.scheduled_new_reqs:
            computed[new.req_id] = new.num_computed_tokens
            self._note(new)
        running = scheduled.scheduled_cached_reqs
        computed.update(zip(running.req_ids, running.num_computed_tokens, strict=True))
        return computed

    def _note(self, new: Any) -> None:
        """Make the entry of a new request with images; one that was preempted and comes again keeps its own."""
        if new.sampling_params is None or not (new.mm_features or new.prompt_embeds is not None):
            return
        beta = (new.sampling_params.extra_args or {}).get(MARK)
        if beta == 0 and not (self.settings.measures_all or self.settings.observe):
            return
        tokens, known = new.prompt_token_ids or [], self.store.requests.get(new.req_id)
        places = [(one.identifier, one.mm_position.offset, one.mm_position.length) for one in new.mm_features]
        keys = prompt_keys(tokens, places)
        if known is not None and known.keys == keys:
            return
        wanted = beta is None or beta > 0
        entry = Entry(keys=keys, beta=float(beta or 0.0), prompt=len(tokens), wanted=wanted)
        if beta is None:
            entry.reason = "vLLM's front end does not have the plugin"
        elif new.prompt_token_ids is None or new.prompt_embeds is not None:
            entry.reason = "its prompt was given as embeddings"
        else:
            self._place(entry, tokens, new)
        self.store.requests[new.req_id] = entry

    def _place(self, entry: Entry, tokens: Sequence[int], new: Any) -> None:
        try:
            if self.store.recall_into(entry):
                return
            entry.positions = visual_positions(self.config, tokens, new.mm_features)
        except ReweighError as error:
            entry.reason = error.message
            return
        if not entry.positions:
            entry.reason = "no position of its prompt carries image content"
            return
        places = (one.mm_position for one in new.mm_features)
        entry.bounds = [bisect_left(entry.positions, place.offset + place.length) for place in places]
        self.store.resume(entry)

    def _slots(self, own: Any) -> None:
        self.slots.clear()
        if own is not None:
            rows = np.diff(own.cu_num_logits_np)
            self.slots.update(
                (int(slot), (entry, int(count)))
                for slot, entry, count in zip(own.idx_mapping_np, self.batch, rows, strict=False)
            )

    def _read(self, state: Any, computed: dict[str, int], counts: Sequence[int]) -> None:
        """Feed each request its rows; first those that begin first, whose blocks others may read in the same step."""
        states, row, waiting = self.tap.states(state), 0, []
        for request, entry, count in zip(self._ids, self.batch, counts, strict=True):
            if entry is not None and not entry.is_decided:
                waiting.append((computed[request], row, count, entry))
            row += count
        for start, row, count, entry in sorted(waiting, key=itemgetter(0)):
            self.store.feed(entry, start, [layer[row : row + count] for layer in states])

    def rows(self, count: int, context: Any = None) -> list[tuple[Entry | None, int]]:
        """For each of ``count`` logits rows its entry and its place in the batch.

        The V2 runner may ask for part of the batch, and gives a request a row for each drafted token; then the
        ``context`` names the request slots. Host values only: nothing waits for the device.
        """
        if context is None:
            found = [(entry, place) for place, entry in enumerate(self.batch)]
        else:
            found = []
            for place, slot in enumerate(context.idx_mapping_np.tolist()):
                entry, repeat = self.slots.get(slot, (None, 1))
                found += [(entry, place)] * repeat
        if len(found) != count and context is not None:  # an unforeseen split; right, at the price of a wait
            found = [
                (self.slots.get(slot, (None, 1))[0], -1) for slot in context.expanded_idx_mapping.tolist()
            ]
        if len(found) != count:
            raise RuntimeError(f"reweigh: vLLM samples {count} rows of a batch of {len(found)}")
        return found

    def news(self) -> dict[str, Entry]:
        """Requests of this step whose outcome is known and was not reported yet."""
        found = {}
        for request, entry in zip(self._ids, self.batch, strict=True):
            if entry is not None and entry.wanted and entry.is_decided and not entry.reported:
                found[request], entry.reported = entry, True
        return found
