"""The judge protocol, and asking several questions at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from reweigh.errors import InputError, ReweighError
from reweigh.text import replace_surrogates

Message: TypeAlias = Mapping[str, str]
T = TypeVar("T")


class JudgeError(ReweighError):
    """The judge did not reply, and asking again would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a judge; ``sample`` distinguishes repeated draws of the same question."""

    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int | None = None
    sample: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON."""
        return {
            "messages": [dict(message) for message in self.messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "sample": self.sample,
        }


def user(text: str, *, temperature: float = 0.0, max_tokens: int | None = None, sample: int = 0) -> Request:
    """A request of a single user message, as both benchmarks send it."""
    message = {"role": "user", "content": replace_surrogates(text)}
    return Request(messages=(message,), temperature=temperature, max_tokens=max_tokens, sample=sample)


@runtime_checkable
class Judge(Protocol):
    """Answers a request with text; ``describe`` says who answers, for records and cache keys."""

    def ask(self, request: Request) -> str:
        """Return the reply, or raise :class:`JudgeError`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Name model and address, without any secret."""
        ...


def close_judge(judge: object) -> None:
    """Close a judge that holds connections; one without ``close`` holds none."""
    if (close := getattr(judge, "close", None)) is not None:
        close()


def ask_all(
    tasks: Sequence[Callable[[], T]], *, concurrency: int, advance: Callable[[], Any] | None = None
) -> list[T]:
    """Run tasks on a few threads and give their results in order.

    The first failure cancels what has not started and is raised; earlier answers are in the cache, so the next
    run resumes from there.
    """
    if concurrency < 1:
        raise InputError(f"concurrency {concurrency} is not a positive number of questions at once")
    futures: list[Future[T]] = [Future() for _ in tasks]
    waiting = deque(zip(tasks, futures, strict=True))
    for number in range(min(concurrency, len(tasks))):
        # not an executor, whose threads keep a stopped command alive until the last question times out
        own = threading.Thread(target=_work, args=(waiting, advance), name=f"judge-{number}", daemon=True)
        own.start()
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        _raise_first(futures, done)
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _work(waiting: deque[tuple[Callable[[], T], Future[T]]], advance: Callable[[], Any] | None) -> None:
    """Run tasks one after the other in a thread until none are left; skip cancelled ones."""
    while True:
        try:
            task, future = waiting.popleft()
        except IndexError:
            return
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(_counted(task, advance))
        except BaseException as error:
            future.set_exception(error)


def _counted(task: Callable[[], T], advance: Callable[[], Any] | None) -> T:
    result = task()
    if advance is not None:
        advance()
    return result


def _raise_first(futures: Sequence[Future[Any]], done: set[Future[Any]]) -> None:
    for future in futures:
        if future in done and (error := future.exception()) is not None:
            raise error
