"""What each step of a worker computed, led to the requests it belongs to.

Everything about requests comes from the scheduler's own message (``SchedulerOutput``), which both model runners receive;
only the order of the batch is asked of the runner. Knows nothing of tables or edits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np

from reweigh.engines.vllm.config import MARK, SHOWN, Settings
from reweigh.engines.vllm.served import Sizes, visual_positions
from reweigh.engines.vllm.store import Entry, Store
from reweigh.errors import ReweighError
from reweigh.runtime.memory import prompt_keys


class Capture:
    """Follows the batches of one worker.

    A step in which no request came, left or was decided costs the same for any number of rows.

    Attributes:
        batch: The requests of the running step by their place in it; ``None`` for one without an entry.
        ends: For each place of the batch, how many tokens its request has computed after the step; where observations
            are made.
        version: Counts changes of what ``rows`` says of the same batch.
    """

    def __init__(self, settings: Settings, config: Any, store: Store, tap: Any, runner: Any) -> None:
        self.settings = settings
        self.config = config
        self.store = store
        self.tap = tap
        self.runner = runner
        self.batch: list[Entry | None] = []
        self.ends: list[int] = []
        self.version = 0
        self.sizes = Sizes()
        self._ids: list[str] = []
        self._own: Any = None
        self._undecided: set[str] = set()
        self._news: dict[str, Entry] = {}

    def step(self, scheduled: Any) -> None:
        """Take in one step, after the forward pass and before sampling; also a step that computed nothing."""
        if not self.settings.observe:  # observations are kept until they are taken
            for request in scheduled.finished_req_ids:
                self.store.requests.pop(request, None)
                self._undecided.discard(request)
        for new in scheduled.scheduled_new_reqs:
            self._note(new)
        state = self.runner.execute_model_state
        self._own = None if state is None else getattr(state, "input_batch", None)
        ids = [] if state is None else (self._own or self.runner.input_batch).req_ids
        if scheduled.scheduled_new_reqs or ids != self._ids:
            self._ids = list(ids)
            self.batch = [self.store.requests.get(request) for request in self._ids]
            self.version += 1
        if state is not None and (self._undecided or self.settings.observe):
            self._read(state, scheduled)

    def _read(self, state: Any, scheduled: Any) -> None:
        """Feed each request its rows; first those that begin first, whose blocks others may read in the same step."""
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
        states = self.tap.states(state) if waiting else []
        for start, row, count, entry in sorted(waiting, key=itemgetter(0)):
            self.store.feed(entry, start, [layer[row : row + count] for layer in states])
            if entry.is_decided:
                self._undecided.discard(entry.name)
                self.tell(entry)

    def tell(self, entry: Entry) -> None:
        """Note a request whose outcome is known, or has changed."""
        self.version += 1
        if entry.wanted:
            self._news[entry.name] = entry

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
        entry = Entry(name=new.req_id, keys=keys, beta=float(beta or 0.0), prompt=len(tokens), wanted=wanted)
        entry.is_shown = bool((new.sampling_params.extra_args or {}).get(SHOWN))
        if beta is None:
            entry.reason = "vLLM's front end does not have the plugin"
        elif new.prompt_token_ids is None or new.prompt_embeds is not None:
            entry.reason = "its prompt was given as embeddings"
        else:
            self._place(entry, tokens, new)
        self.store.requests[new.req_id] = entry
        self.tell(entry) if entry.is_decided else self._undecided.add(new.req_id)

    def _place(self, entry: Entry, tokens: Sequence[int], new: Any) -> None:
        try:
            if self.store.recall_into(entry):
                return
            entry.positions = visual_positions(self.config, tokens, new.mm_features, self.sizes)
        except ReweighError as error:
            entry.reason = error.message
            return
        if not entry.positions:
            entry.reason = "no position of its prompt carries image content"
            return
        places = (one.mm_position for one in new.mm_features)
        entry.bounds = [bisect_left(entry.positions, place.offset + place.length) for place in places]
        self.store.resume(entry)

    def key(self, count: int, context: Any = None) -> tuple[Any, ...]:
        """Equal for two steps in which ``rows`` says the same."""
        if context is None:
            return self.version, count
        drafts = self._own.cu_num_logits_np.tobytes() if count != len(context.idx_mapping_np) else b""
        return self.version, count, context.idx_mapping_np.tobytes(), drafts

    def rows(self, count: int, context: Any = None) -> list[tuple[Entry | None, int]]:
        """For each of ``count`` logits rows its entry and its place in the batch.

        The V2 runner may ask for part of the batch, and gives a request a row for each drafted token; then the
        ``context`` names the request slots. Host values only: nothing waits for the device.
        """
        if context is None:
            found = [(entry, place) for place, entry in enumerate(self.batch)]
        else:
            slots, found = self._slots(), []
            for place, slot in enumerate(context.idx_mapping_np.tolist()):
                entry, repeat = slots.get(slot, (None, 1))
                found += [(entry, place)] * repeat
            if len(found) != count:  # an unforeseen split; right, at the price of a wait
                found = [
                    (slots.get(slot, (None, 1))[0], -1) for slot in context.expanded_idx_mapping.tolist()
                ]
        if len(found) != count:
            raise RuntimeError(f"reweigh: vLLM samples {count} rows of a batch of {len(found)}")
        return found

    def _slots(self) -> dict[int, tuple[Entry | None, int]]:
        """The batch by the V2 runner's request slot, with the number of logits rows each has."""
        own = self._own
        rows = np.diff(own.cu_num_logits_np).tolist()
        return {
            slot: (entry, count)
            for slot, entry, count in zip(own.idx_mapping_np.tolist(), self.batch, rows, strict=False)
        }

    def news(self) -> dict[str, Entry]:
        """Requests whose outcome became known and was not reported yet."""
        found, self._news = self._news, {}
        return found
