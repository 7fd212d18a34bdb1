"""The worker: read evidence from each step's states, and edit in the sampler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from reweigh.engines.vllm.capture import Capture
from reweigh.engines.vllm.config import Settings, Source, settings_in
from reweigh.engines.vllm.plugin import require_plugin
from reweigh.engines.vllm.processor import Processor
from reweigh.engines.vllm.refusals import check_engine
from reweigh.engines.vllm.report import attach
from reweigh.engines.vllm.store import Store
from reweigh.engines.vllm.tables import dtype_of, open_table
from reweigh.engines.vllm.taps import check_tap, decoder_of, tap_for, vllm_lens
from reweigh.errors import MismatchError, UnsupportedError
from reweigh.method.edit import StepEditor
from reweigh.method.lens import Lens, head_width
from reweigh.runtime.reader import Reader, Registered

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
        capture, processor = self.reweigh.capture, self.reweigh.processor
        processor.seconds = 0.0
        output = super().sample_tokens(grammar)  # type: ignore[misc]
        return attach(output, capture.news(), processor.seconds, processor.late(), processor.unsound)

    def reweigh_take(self) -> dict[str, Any]:
        """Take the observations so far, for a calibration."""
        return {} if self.reweigh is None else self.reweigh.take()

    def reweigh_load(self, sources: Sequence[tuple[str, int, str]], needed: Iterable[str]) -> str | None:
        """Open tables for new requests; return the error message, or ``None``.

        It does not raise, because vLLM would leave the answers of other workers unread.
        """
        try:
            if self.reweigh is None:
                return "this worker was started without reweigh"
            self.reweigh.load(sources, needed)
        except Exception as error:
            return str(error) or type(error).__name__
        return None

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
    """What a worker has beside its loaded model: tap, store, readers and processor."""

    def __init__(self, worker: Any, settings: Settings) -> None:
        from vllm.platforms import current_platform

        if settings.sources and not settings.resolved:  # no request would be prepared, no outcome reported
            require_plugin()
            raise UnsupportedError(
                "the engine's front end did not load reweigh's plugin",
                hint="make the engine's configuration with EngineArgs.create_engine_config, as vLLM itself does",
            )
        config, runner = worker.vllm_config, worker.model_runner
        check_engine(config, settings, on_cpu=current_platform.is_cpu())
        self.runner, self.model_config = runner, config.model_config
        self.model = runner.get_model()
        self.decoder = decoder_of(self.model)
        readers = {str(source.sha256): self._reader(source) for source in settings.pinned.values()}
        if settings.observe:
            layers = [layer % len(self.decoder.layers) for layer in settings.observe]
            readers[""] = Reader(self._lens({}), layers)
        tap = tap_for(
            runner, self.decoder, sorted({layer for one in readers.values() for layer in one.layers})
        )
        store = Store(runner.device, limit=0 if settings.observe else settings.memory_mb << 20)
        self.capture = Capture(settings, self.model_config.hf_config, store, tap, runner, readers)
        self.processor = Processor(self.capture)
        for reader in readers.values():
            _warm(reader, self.model_config.dtype, runner.device)
            _show_to_the_profiler(runner, reader, self.model_config.dtype)
        _pipeline(runner).insert(0, self.processor)

    def load(self, sources: Sequence[tuple[str, int, str]], needed: Iterable[str]) -> None:
        """Add tables (folder, layer, fingerprint), and drop those that are no longer ``needed``.

        Drop them first, even if a new table cannot be opened: tensor-parallel workers must have the same readers.
        """
        known, tapped = self.capture.readers, self.capture.tap.layers
        kept = {name: reader for name, reader in known.items() if name in set(needed)}
        self.capture.readers, new = kept, {}
        for table, layer, sha256 in sources:
            if layer not in tapped:
                raise MismatchError(f"layer {layer} is not read in this engine, only {list(tapped)}")
            source = Source(table=table, layer=layer, sha256=sha256)
            new[sha256] = known[sha256] if sha256 in known else self._reader(source)
        self.capture.readers = {**kept, **new}

    def take(self) -> dict[str, Any]:
        """Take the observations of all requests so far, by request id."""
        requests = self.capture.store.requests
        taken = {}
        for name, entry in requests.items():
            evidence = None if entry.evidence is None else entry.evidence.cpu().numpy()
            taken[name] = (entry.reason, entry.steps, evidence)
        requests.clear()
        return taken

    def _reader(self, source: Source) -> Reader:
        """Make a reader for a table; even a forced table must fit the model."""
        table = open_table(source, self.model_config.hf_config).table
        blocks, vocabulary = len(self.decoder.layers), self.model_config.get_vocab_size()
        if not 0 <= table.layer < blocks:
            raise MismatchError(
                f"the table reads layer {table.layer}, but the model has {blocks} decoder blocks"
            )
        if len(table) and int(table.tokens[-1]) >= vocabulary:
            raise MismatchError(
                f"the table has token {int(table.tokens[-1])}, but the model's head has {vocabulary} tokens"
            )
        tokens = torch.from_numpy(table.tokens).to(self.runner.device)
        references = torch.from_numpy(table.references).float().to(self.runner.device)
        return Reader(
            self._lens(table.made_with),
            [table.layer],
            tokens=tokens,
            readouts=[table.readout],
            registered=Registered(tokens, references, table.scale),
        )

    def _lens(self, made_with: Mapping[str, Any]) -> Lens:
        vocabulary, dtype = self.model_config.get_vocab_size(), dtype_of(self.model_config)
        return vllm_lens(self.model, self.decoder, vocabulary, dtype, made_with)


@torch.inference_mode()
def _warm(reader: Reader, dtype: torch.dtype, device: Any, *, positions: int = 2, rows: int = 1) -> None:
    """Read evidence and edit once, as a batch of ``rows`` with an image of ``positions`` would.

    This compiles ranks and edits before the first request. States are not zero: all-zero logits would warm up the wrong
    kernel.
    """
    width, vocabulary = head_width(reader.lens.head), reader.lens.vocab_size
    reader.read(torch.linspace(-1, 1, positions * width, device=device).view(positions, width).to(dtype))
    logits, strengths = (torch.zeros(rows, vocabulary, device=device) for _ in range(2))
    StepEditor(strengths, torch.ones(rows, device=device)).step(logits)


def _show_to_the_profiler(runner: Any, reader: Reader, dtype: torch.dtype) -> None:
    """Add the largest step to vLLM's memory profile: a full chunk of evidence, and edits of the largest batch."""
    drafts = runner.vllm_config.speculative_config  # each drafted token has a row of its own
    rows = runner.max_num_reqs * (1 if drafts is None else 1 + int(drafts.num_speculative_tokens))
    profile = runner.profile_run

    def profile_run(*args: Any, **kwargs: Any) -> Any:
        result = profile(*args, **kwargs)
        _warm(reader, dtype, runner.device, positions=reader.lens.chunk, rows=rows)
        return result

    runner.profile_run = profile_run


def _pipeline(runner: Any) -> list[Any]:
    """Return the logits processors of the V2 or V1 runner, in the order in which they act."""
    found: list[Any] | None = getattr(runner.sampler, "logits_processors", None)
    return runner.input_batch.logitsprocs.non_argmax_invariant if found is None else found
