"""What is beside a worker's loaded model: read evidence from each step's states, and edit in the sampler."""

from __future__ import annotations

from typing import Any

import torch

from reweigh_vllm.capture import Capture
from reweigh_vllm.core import MismatchError, RankSum, StepEditor, UnsupportedError
from reweigh_vllm.plugin import require_plugin
from reweigh_vllm.processor import Processor
from reweigh_vllm.reading import References, Store
from reweigh_vllm.refusals import SCHEDULERS, check_engine
from reweigh_vllm.report import attach, outcome
from reweigh_vllm.settings import Settings, settings_in
from reweigh_vllm.table import dtype_of, open_table, rows_of
from reweigh_vllm.taps import check_tap, decoder_of, tap_for, vllm_lens

NEW_WEIGHTS = ("reload_weights", "update_weights", "start_weight_update", "reset_weights")
"""Methods that would give a running worker other weights than the table's."""


class Reweighing:
    """Mixin for vLLM's workers that reads and edits; list it before vLLM's own class."""

    vllm_config: Any
    model_runner: Any
    reweigh: Installed | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Load the model, then put tap, store and processor beside it."""
        result = super().load_model(*args, **kwargs)  # type: ignore[misc]
        settings = settings_in(self.vllm_config.additional_config)
        if settings is not None:
            self.reweigh = Installed(self, settings)
        return result

    def compile_or_warm_up_model(self) -> Any:
        """Compile the model, then check that its graph returns the right states."""
        result = super().compile_or_warm_up_model()  # type: ignore[misc]
        if self.reweigh is not None:
            check_tap(self.reweigh.capture.tap, self.model_runner, self.vllm_config)
        return result

    def execute_model(self, scheduled: Any) -> Any:
        """Run one step and read what it computed."""
        output = super().execute_model(scheduled)  # type: ignore[misc]
        if self.reweigh is not None:
            with torch.inference_mode():
                self.reweigh.capture.step(scheduled)
        return output

    def sample_tokens(self, grammar: Any) -> Any:
        """Sample with edits, and report the outcomes of the step's requests."""
        if self.reweigh is None:
            return super().sample_tokens(grammar)  # type: ignore[misc]
        processor = self.reweigh.processor
        processor.seconds = 0.0
        output = super().sample_tokens(grammar)  # type: ignore[misc]
        news = self.reweigh.outcomes()
        return attach(output, news, processor.seconds, processor.late(), processor.unsound)

    def reweigh_take(self) -> dict[str, Any]:
        """Take the observations so far, for a calibration."""
        return {} if self.reweigh is None else self.reweigh.take()

    def sleep(self, level: int = 1) -> Any:
        """Sleep at level 1, which keeps the weights; refuse levels that drop them."""
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
            f"{name}: reweigh edits in this engine, and its table belongs to the weights that were loaded at start",
            hint="start the engine again with the new weights and a table that was calibrated with them",
        )

    return refuse


for _name in NEW_WEIGHTS:
    setattr(Reweighing, _name, _refusing(_name))


class Installed:
    """What a worker has beside its loaded model: tap, store and processor."""

    def __init__(self, worker: Any, settings: Settings) -> None:
        from vllm.platforms import current_platform

        config, runner = worker.vllm_config, worker.model_runner
        if not settings.observe and config.scheduler_config.scheduler_cls not in SCHEDULERS:
            require_plugin()  # or no request would be prepared, no outcome reported
            raise UnsupportedError(
                "the engine's front end did not load reweigh's plugin",
                hint="make the engine's configuration with EngineArgs.create_engine_config, as vLLM itself does",
            )
        check_engine(config, settings, on_cpu=current_platform.is_cpu())
        model = runner.get_model()
        decoder = decoder_of(model)
        self.store = make_store(settings, config.model_config, model, decoder, runner.device)
        tap = tap_for(runner, decoder, self.store.layers)
        self.capture = Capture(settings, config.model_config.hf_config, self.store, tap, runner)
        self.processor = Processor(self.capture)
        _warm(self.store, config.model_config.dtype, runner.device)
        _show_to_the_profiler(runner, self.store, config.model_config.dtype)
        _pipeline(runner).insert(0, self.processor)

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """Take the outcomes that are known and not reported yet."""
        told = {}
        for name, entry in self.capture.news().items():
            is_shown = entry.is_shown and entry.reason is None
            dmrr = self.store.dmrr(entry).tolist() if is_shown else None
            told[name] = outcome(entry, self.store.layers[0], dmrr)
        return told

    def take(self) -> dict[str, Any]:
        """Take the observations of all requests so far, by request id."""
        taken = {}
        for name, entry in self.store.requests.items():
            evidence = None if entry.evidence is None else entry.evidence.cpu().numpy()
            taken[name] = (entry.reason, entry.steps, evidence)
        self.store.requests.clear()
        return taken


def make_store(settings: Settings, model_config: Any, model: Any, decoder: Any, device: Any) -> Store:
    """Make the store of a table, or of a calibration; even a forced table must fit the model."""
    blocks, vocabulary, dtype = len(decoder.layers), model_config.get_vocab_size(), dtype_of(model_config)
    rows = rows_of(model_config)
    if settings.observe:
        layers = sorted({layer % blocks for layer in settings.observe})
        return Store(vllm_lens(model, decoder, vocabulary, dtype, {}, rows), layers)
    table = open_table(settings, model_config.hf_config).table
    if not 0 <= table.layer < blocks:
        raise MismatchError(f"the table reads layer {table.layer}, but the model has {blocks} decoder blocks")
    if len(table) and int(table.tokens[-1]) >= rows:
        raise MismatchError(f"the table has token {int(table.tokens[-1])}, but the model ranks {rows} tokens")
    tokens = torch.from_numpy(table.tokens).to(device)
    references = References(tokens, torch.from_numpy(table.references).float().to(device), table.b0)
    lens = vllm_lens(model, decoder, vocabulary, dtype, table.about, rows)
    return Store(lens, [table.layer], references, limit=settings.memory_mb << 20)


@torch.inference_mode()
def _warm(store: Store, dtype: torch.dtype, device: Any, *, positions: int = 2, rows: int = 1) -> RankSum:
    """Read evidence and edit once, as a batch of ``rows`` with an image of ``positions`` would.

    This compiles ranks and edits before the first request. States are not zero: all-zero logits would warm up the wrong
    kernel.
    """
    width, vocabulary = store.lens.width, store.lens.vocab_size
    states = torch.linspace(-1, 1, positions * width, device=device).view(positions, width)
    logits, strengths = (torch.zeros(rows, vocabulary, device=device) for _ in range(2))
    StepEditor(strengths, torch.ones(rows, device=device)).step(logits)
    return store.sum(states.to(dtype))


def _show_to_the_profiler(runner: Any, store: Store, dtype: torch.dtype) -> None:
    """Add the largest step to vLLM's memory profile: a full chunk of evidence, and edits of the largest batch."""
    drafts = runner.vllm_config.speculative_config  # each drafted token has a row of its own
    rows = runner.max_num_reqs * (1 if drafts is None else 1 + int(drafts.num_speculative_tokens))
    profile = runner.profile_run

    def profile_run(*args: Any, **kwargs: Any) -> Any:
        result = profile(*args, **kwargs)
        _warm(store, dtype, runner.device, positions=store.lens.chunk, rows=rows)
        return result

    runner.profile_run = profile_run


def _pipeline(runner: Any) -> list[Any]:
    """Return the logits processors of the V2 or V1 runner, in the order in which they act."""
    found: list[Any] | None = getattr(runner.sampler, "logits_processors", None)
    return runner.input_batch.logitsprocs.non_argmax_invariant if found is None else found
