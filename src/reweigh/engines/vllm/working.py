"""vLLM's worker: reads evidence from each step's states and edits in its sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from reweigh.engines.vllm.capture import Capture
from reweigh.engines.vllm.config import Settings, settings_in
from reweigh.engines.vllm.lens import vllm_lens
from reweigh.engines.vllm.pairing import dtype_of, open_table
from reweigh.engines.vllm.plugin import require_plugin
from reweigh.engines.vllm.processor import Processor
from reweigh.engines.vllm.refusals import check_engine
from reweigh.engines.vllm.report import attach, message_of
from reweigh.engines.vllm.served import decoder_of
from reweigh.engines.vllm.store import Store
from reweigh.engines.vllm.taps import check_tap, tap_for
from reweigh.errors import MismatchError, UnsupportedError
from reweigh.method.edit import StepEditor
from reweigh.method.lens import Lens, head_width
from reweigh.runtime.reader import Reader, Registered
from reweigh.tables.table import ReferenceTable

NEW_WEIGHTS = ("reload_weights", "update_weights", "start_weight_update", "reset_weights")
"""What gives a running worker other weights than the table's."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What a worker holds once its model is loaded."""

    capture: Capture
    processor: Processor

    def take(self) -> dict[str, Any]:
        """The observations of all requests so far, by request id; they are handed over once."""
        requests = self.capture.store.requests
        taken = {
            name: (
                entry.reason,
                entry.steps,
                None if entry.evidence is None else entry.evidence.cpu().numpy(),
            )
            for name, entry in requests.items()
        }
        requests.clear()
        return taken


class Reweighing:
    """What a worker does besides; comes before vLLM's worker among the bases of a class."""

    vllm_config: Any
    model_runner: Any
    reweigh: Installed | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Load the model, then put tap, store and processor beside it."""
        result = super().load_model(*args, **kwargs)  # type: ignore[misc]
        settings = settings_in(self.vllm_config.additional_config)
        if settings is not None:
            _require_front_end(settings)
            self.reweigh = install(self, settings)
        return result

    def compile_or_warm_up_model(self) -> Any:
        """Compile the model, then check that its graph hands out the states that are needed."""
        result = super().compile_or_warm_up_model()  # type: ignore[misc]
        if self.reweigh is not None:
            check_tap(self.reweigh.capture.tap, self.model_runner, self.vllm_config)
        return result

    def execute_model(self, scheduled: Any) -> Any:
        """Run one step, and read what it computed."""
        output = super().execute_model(scheduled)  # type: ignore[misc]
        if self.reweigh is not None:
            with torch.inference_mode():
                self.reweigh.capture.step(scheduled)
        return output

    def sample_tokens(self, grammar: Any) -> Any:
        """Sample, with edits, and say what became of the step's requests."""
        if self.reweigh is None:
            return super().sample_tokens(grammar)  # type: ignore[misc]
        capture, processor = self.reweigh.capture, self.reweigh.processor
        processor.seconds = 0.0
        output = super().sample_tokens(grammar)  # type: ignore[misc]
        message = message_of(capture.news(), processor.seconds)
        return attach(output, message, processor.late(), processor.unsound)

    def reweigh_take(self) -> dict[str, Any]:
        """The observations so far, for a calibration."""
        return {} if self.reweigh is None else self.reweigh.take()

    def sleep(self, level: int = 1) -> Any:
        """Sleep that keeps the weights; what drops them needs new ones on waking."""
        if self.reweigh is not None and level > 1:
            raise UnsupportedError(
                f"sleep at level {level} drops the weights, and reweigh's table belongs to those that were loaded at start",
                hint="let it sleep at level 1; vLLM has paused by now; wake_up resumes it",
            )
        return super().sleep(level)  # type: ignore[misc]


def _refusing(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.reweigh is None:
            return getattr(super(Reweighing, self), name)(*args, **kwargs)
        raise UnsupportedError(
            f"{name}: reweigh is at work here, and its table belongs to the weights that were loaded at start",
            hint="start the engine again with the new weights and a table that was calibrated with them",
        )

    return refuse


for _name in NEW_WEIGHTS:
    setattr(Reweighing, _name, _refusing(_name))


def _require_front_end(settings: Settings) -> None:
    """Refuse where the front end did not see the section: no request would be prepared, no outcome told."""
    if settings.table is not None and settings.sha256 is None:
        require_plugin()
        raise UnsupportedError(
            "the engine's front end did not load reweigh's plugin",
            hint="make the engine's configuration with EngineArgs.create_engine_config, as vLLM itself does",
        )


def install(worker: Any, settings: Settings) -> Installed:
    """Put tap, store and processor into a worker whose model is loaded."""
    from vllm.platforms import current_platform

    config, runner = worker.vllm_config, worker.model_runner
    check_engine(config, settings, on_cpu=current_platform.is_cpu())
    model, model_config = runner.get_model(), config.model_config
    decoder = decoder_of(model)
    vocabulary, blocks = model_config.get_vocab_size(), len(decoder.layers)
    table, made_with = None, {}
    if settings.table is not None:
        table = open_table(settings, model_config.hf_config)
        made_with = dict(table.made_with)
    layers = [layer % blocks for layer in settings.observe] if table is None else [table.layer]
    _check_fit(table, layers, vocabulary, blocks)
    lens = vllm_lens(model, decoder, vocabulary, dtype_of(model_config), made_with)
    reader = _reader(lens, layers, table, settings.kernel, runner.device)
    store = Store(reader, runner.device, limit=0 if table is None else settings.memory_mb << 20)
    tap = tap_for(runner, decoder, layers)
    capture = Capture(settings, model_config.hf_config, store, tap, runner)
    processor = Processor(capture)
    _warm(reader, model_config.dtype, runner.device)
    _show_to_the_profiler(runner, reader, model_config.dtype)
    _pipeline(runner).insert(0, processor)
    return Installed(capture, processor)


@torch.inference_mode()
def _warm(reader: Reader, dtype: torch.dtype, device: Any, *, positions: int = 2, rows: int = 1) -> None:
    """Read evidence and edit once, as a batch of ``rows`` with an image of ``positions`` would.

    Ranks and edits are compiled then, not in the first request. Use non-zero states: all-zero logits would warm up the
    wrong kernel.
    """
    width, vocabulary = head_width(reader.lens.head), reader.lens.vocab_size
    reader.read(torch.linspace(-1, 1, positions * width, device=device).view(positions, width).to(dtype))
    logits, strengths = (torch.zeros(rows, vocabulary, device=device) for _ in range(2))
    StepEditor(strengths, torch.ones(rows, device=device)).step(logits)


def _show_to_the_profiler(runner: Any, reader: Reader, dtype: torch.dtype) -> None:
    """Let vLLM's memory profile see the largest step: a full chunk of evidence, and edits of the largest batch."""
    profile, rows = runner.profile_run, runner.max_num_reqs * _rows_of_a_request(runner)

    def profile_run(*args: Any, **kwargs: Any) -> Any:
        result = profile(*args, **kwargs)
        _warm(reader, dtype, runner.device, positions=reader.lens.chunk, rows=rows)
        return result

    runner.profile_run = profile_run


def _rows_of_a_request(runner: Any) -> int:
    """Logits rows that a request has at most: one, and one for each drafted token."""
    drafts = runner.vllm_config.speculative_config
    return 1 if drafts is None else 1 + int(drafts.num_speculative_tokens)


def _pipeline(runner: Any) -> list[Any]:
    """The runner's logits processors in the order in which they act: of the V2 runner, or of the V1 runner."""
    found: list[Any] | None = getattr(runner.sampler, "logits_processors", None)
    return runner.input_batch.logitsprocs.non_argmax_invariant if found is None else found


def _reader(lens: Lens, layers: list[int], table: ReferenceTable | None, kernel: str, device: Any) -> Reader:
    """What reads evidence as the table's was read, or that of the whole vocabulary."""
    if table is None:
        return Reader(lens, layers, kernel=kernel)
    tokens = torch.from_numpy(table.tokens).to(device)
    references = torch.from_numpy(table.references).float().to(device)
    registered = Registered(tokens, references, table.scale)
    return Reader(lens, layers, tokens=tokens, kernel=kernel, readouts=[table.readout], registered=registered)


def _check_fit(table: ReferenceTable | None, layers: list[int], vocabulary: int, blocks: int) -> None:
    """Even a forced table must lie inside the model."""
    if any(not 0 <= layer < blocks for layer in layers):
        raise MismatchError(f"layers {layers} were asked for, but the model has {blocks} decoder blocks")
    if table is not None and len(table) and int(table.tokens[-1]) >= vocabulary:
        raise MismatchError(
            f"the table speaks of token {int(table.tokens[-1])}, but the model's head has {vocabulary} tokens"
        )
