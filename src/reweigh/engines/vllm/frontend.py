"""vLLM's front end: refuse engines that cannot be served, prepare requests, and reload tables."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.engines.vllm import chats, outputs
from reweigh.engines.vllm.config import (
    DEFAULT,
    EVIDENCE_KEY,
    MARK,
    READ_FOR,
    SHOWN,
    Settings,
    asked_beta,
    asked_table,
    asks_for_evidence,
    settings_in,
)
from reweigh.engines.vllm.outputs import Metrics, Outputs
from reweigh.engines.vllm.plugin import KEY, after, logger
from reweigh.engines.vllm.refusals import ASYNC_SCHEDULER, SCHEDULER, WORKER, check_engine
from reweigh.engines.vllm.tables import Opened, check_tables, open_tables
from reweigh.errors import ArtifactError, InputError, MismatchError, UnsupportedError

SERVER = "vllm.entrypoints.launchers.api_server.entry"
"""The module that starts vLLM's HTTP server; a process without it has no server."""


def configure(config: Any) -> None:
    """Check an engine's configuration before anything is loaded, and make it name reweigh's parts."""
    from vllm.platforms import current_platform

    settings = settings_in(config.additional_config)
    if settings is None:
        return
    patch_llvmlite()
    check_engine(config, settings, on_cpu=current_platform.is_cpu())
    if not settings.observe:
        tables = open_tables(settings.sources, config.model_config.hf_config)
        check_tables(tables, settings, config.model_config, config.load_config)
        resolved = {name: [one.table.layer, one.sha256] for name, one in tables.items()}
        # vLLM hashes the section into the key of its compile cache, and the tapped layers are part of the graph
        section = {**config.additional_config[KEY], "resolved": resolved}
        config.additional_config = {**config.additional_config, KEY: section}
        is_async = config.scheduler_config.async_scheduling
        config.scheduler_config.scheduler_cls = ASYNC_SCHEDULER if is_async else SCHEDULER
    config.parallel_config.worker_cls = WORKER
    outputs.reset_metrics()
    _follow_engines()


def patch_llvmlite() -> None:
    """Give llvmlite's library a ``__dict__``, which vLLM asks every module for when a worker starts on a CPU.

    The library, loaded with numba, answers any attribute with a foreign function, ``__dict__`` too.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    table = getattr(library, "_fntab", None)
    if isinstance(table, dict):
        table.setdefault("__dict__", {})


@functools.cache
def _follow_engines() -> None:
    """Attach a ``FrontEnd`` to every configured engine that this process makes from now on; once."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine

    def attach(engine: Any, _: Any) -> None:
        settings = settings_in(engine.vllm_config.additional_config)
        if settings is not None:
            engine.reweigh = FrontEnd(engine, settings)

    after(LLMEngine, "__init__", attach)
    after(AsyncLLM, "__init__", attach)
    if SERVER in sys.modules:
        chats.watch(sys.modules[SERVER])


class FrontEnd:
    """The front end of one configured engine: prepares its requests and reports their outcomes.

    Attributes:
        tables: The current tables, by name.
        outputs: The running requests that should be edited; ``None`` during a calibration.
    """

    def __init__(self, engine: Any, settings: Settings) -> None:
        self.engine, self.settings, self.config = engine, settings, engine.vllm_config
        self.tables = open_tables(settings.pinned, self.config.model_config.hf_config)
        self.outputs: Outputs | None = None
        self._reloading = asyncio.Lock()
        self._follow(engine.input_processor)
        if not settings.observe:
            model = self.config.model_config
            served = model.served_model_name  # the name under which vLLM's own metrics count
            name = served[0] if isinstance(served, list) else served or model.model
            metrics = Metrics(str(name), enabled=engine.output_processor.log_stats)
            held = {one.sha256: one.table for one in self.tables.values()}
            self.outputs = Outputs(
                engine.output_processor, metrics, held, refuses=settings.unedited == "refuse"
            )
        self._log()

    def _follow(self, processor: Any) -> None:
        """Prepare every request, also those whose raw prompts vLLM processes in a thread."""
        from vllm.exceptions import VLLMValidationError
        from vllm.utils.async_utils import make_async

        original, model = processor.process_inputs, self.config.model_config

        def process_inputs(*args: Any, **kwargs: Any) -> Any:
            request = original(*args, **kwargs)
            if request.sampling_params is not None:
                try:
                    prepare(request, self.settings, self.tables, model)
                except InputError as error:  # as vLLM says it, so that a server answers 400
                    raise VLLMValidationError(str(error)) from error
            return request

        processor.process_inputs = process_inputs
        processor.process_inputs_async = make_async(process_inputs, executor=processor.renderer._executor)

    def _log(self) -> None:
        for name, one in self.tables.items():
            logger.info("reweigh edits image requests, table %s: %s", name, one.point)

    def reload(self) -> dict[str, Any]:
        """Reload the tables; for engines that are called directly."""
        opened = self._open_again()
        return self._replace(
            opened, self.engine.collective_rpc("reweigh_load", args=self._for_workers(opened))
        )

    async def reload_async(self) -> dict[str, Any]:
        """Reload the tables of every data-parallel engine without blocking other requests."""
        async with self._reloading:
            opened = await asyncio.to_thread(self._open_again)
            answers = await self.engine.engine_core.call_utility_all_async(
                "collective_rpc", "reweigh_load", None, self._for_workers(opened), None
            )
            return self._replace(opened, [worker for engine in answers for worker in engine])

    def _open_again(self) -> dict[str, Opened]:
        """Open the tables that the section names, with every check made at start."""
        servers = getattr(self.config.parallel_config, "_api_process_count", 1)
        if servers > 1:
            raise UnsupportedError(
                f"tables cannot be replaced while {servers} API servers share the engine: only one would know",
                hint="start vLLM with --api-server-count 1, or restart it",
            )
        if self.settings.observe:
            raise InputError("this engine observes for a calibration and has no table")
        opened = open_tables(self.settings.sources, self.config.model_config.hf_config)
        check_tables(opened, self.settings, self.config.model_config, self.config.load_config)
        tapped = sorted({layer for layer, _ in self.settings.resolved.values()})
        for name, one in opened.items():
            if one.table.layer not in tapped:
                raise MismatchError(
                    f"the new table of {self.settings.sources[name].table} reads layer {one.table.layer}, but this "
                    f"engine was started to read {', '.join(map(str, tapped))}",
                    hint="restart vLLM with this table, or use a table of one of these layers",
                )
        return opened

    def _for_workers(self, opened: Mapping[str, Opened]) -> tuple[Any, ...]:
        """Return the tables that workers should open, and the fingerprints that running requests still need."""
        sources = self.settings.sources
        asked = [(sources[name].table, one.table.layer, one.sha256) for name, one in opened.items()]
        needed = {one.sha256 for one in self.tables.values()}
        if self.outputs is not None:
            needed |= self.outputs.in_use()
        return asked, sorted(needed)

    def _replace(self, opened: dict[str, Opened], answers: Sequence[str | None]) -> dict[str, Any]:
        """Use the new tables, once every worker has opened them."""
        failed = [answer for answer in answers if answer is not None]
        if failed:
            raise ArtifactError(
                f"{len(failed)} of {len(answers)} workers could not open the new tables: {'; '.join(set(failed))}",
                hint="every worker must see the same folders",
            )
        before, self.tables = self.tables, opened
        if self.outputs is not None:
            needed = self.outputs.in_use() | {one.sha256 for one in before.values()}
            kept = {name: table for name, table in self.outputs.tables.items() if name in needed}
            self.outputs.tables = {**kept, **{one.sha256: one.table for one in opened.values()}}
        self._log()
        told = {
            name: {**one.to_json(), "changed": one.to_json() != before[name].to_json()}
            for name, one in opened.items()
        }
        return {"table": told.pop(DEFAULT), "tables": told}


def reload_tables(llm: Any) -> dict[str, Any]:
    """Reload the tables of a running ``LLM``; if one cannot be used, the old ones stay.

    Returns:
        Fingerprint, layer and beta of each table, and whether it changed.
    """
    front_end = getattr(getattr(llm, "llm_engine", llm), "reweigh", None)
    if front_end is None:
        raise InputError("this engine was started without reweigh", hint="start it with a reweigh section")
    told: dict[str, Any] = front_end.reload()
    return told


def prepare(request: Any, settings: Settings, tables: Mapping[str, Opened], model: Any) -> None:
    """Mark a request that may hold an image with its beta and table; in exact mode it computes its whole prompt.

    ``model`` is vLLM's configuration of the model.
    """
    params = request.sampling_params
    # a single step of vLLM's beam search, which drops the extra arguments
    is_beam = bool(params.max_tokens == 1 and params.logprobs and not params.detokenize)
    reply = chats.current()
    asked = {**(reply.arguments if is_beam and reply is not None else {}), **(params.extra_args or {})}
    table = tables.get(asked_table(asked, tables))
    beta = asked_beta(asked, settings, 0.0 if table is None else table.point.beta)
    if not request.mm_features and request.prompt_embeds is None:
        return
    if beta > 0 and is_beam and not model.logprobs_mode.startswith("processed"):
        raise InputError(
            "vLLM's beam search ranks by log-probabilities before the edit",
            hint="start vLLM with --logprobs-mode processed_logprobs, or decode greedily or by sampling",
        )
    shown = asks_for_evidence(asked)
    if shown:
        _check_evidence(params, beta, model, is_beam=is_beam)
    params.extra_args = {**asked, MARK: beta, **({SHOWN: True} if shown else {})}
    if table is None:  # observed
        params.extra_args[MARK] = 0.0
        params.skip_reading_prefix_cache = True
        return
    params.extra_args[READ_FOR] = table.sha256
    if settings.prefix_cache == "recall":
        if table.sha256 != settings.resolved[DEFAULT][1]:
            # the evidence of a prefix belongs to one table, so other tables must not find the prefix
            request.cache_salt = f"{request.cache_salt or ''}{table.sha256}"
    elif beta > 0:
        params.skip_reading_prefix_cache = True


def _check_evidence(params: Any, beta: float, model: Any, *, is_beam: bool) -> None:
    """Refuse to show the tokens of a request that is not edited or whose text is not one."""
    problems = {
        "is not edited": beta == 0,
        "has several samples": (params.n or 1) > 1,
        "is a beam search": is_beam,
        "is not detokenized": not params.detokenize,
        "runs in an engine without a tokenizer": model.skip_tokenizer_init,
    }
    found = next((problem for problem, applies in problems.items() if applies), None)
    if found is not None:
        raise InputError(
            f"{EVIDENCE_KEY} was asked for, but the request {found}",
            hint="ask for it with edits, n = 1, and no beam search",
        )
