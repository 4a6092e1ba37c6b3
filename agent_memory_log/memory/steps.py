"""What memory asks of a store and of an extractor, step by step, so that it is written once for both kinds of store.

An operation is a generator of *requests*. ``run_async`` and ``run_sync`` carry each out and send back what came of it,
or throw in what it raised. ``yield from append(...)`` reads as a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.events import Event
from agent_memory_log.memory.hooks import Extraction, Extractor, RunSlice
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, RunPage, Store, SyncStore

_T = TypeVar("_T")


class Append(msgspec.Struct, frozen=True):
    """Append events to a run that is at ``expected_version``; answered with the ``AppendResult``."""

    agent: str
    run: str
    events: tuple[Event, ...]
    expected_version: int


class Load(msgspec.Struct, frozen=True):
    """Read a run; answered with the ``Snapshot``."""

    agent: str
    run: str
    after: int = 0
    types: tuple[str, ...] | None = None
    limit: int | None = None


class Redact(msgspec.Struct, frozen=True):
    """Redact events; answered with the ``AppendResult``."""

    agent: str
    run: str
    seqs: tuple[int, ...]
    reason: str


class ListRuns(msgspec.Struct, frozen=True):
    """A page of all runs, the library's own among them; answered with the ``RunPage``."""

    cursor: str | None = None


class Extract(msgspec.Struct, frozen=True):
    """Ask an extractor; answered with the ``Extraction``."""

    extractor: Extractor
    new: RunSlice


class Work(msgspec.Struct, frozen=True):
    """Do something that takes its time and asks no store; answered with what it returns."""

    do: Callable[[], object]


Request = Append | Load | Redact | ListRuns | Extract | Work
Steps = Generator[Request, Any, _T]
"""An operation: yields requests, is sent their answers, returns a ``_T``."""


def append(request: Append) -> Steps[AppendResult]:
    """Carry out an append. Raises what ``Store.append_events`` raises."""
    return cast("AppendResult", (yield request))


def load(request: Load) -> Steps[Snapshot]:
    """Carry out a read. Raises what ``Store.load_run`` raises."""
    return cast("Snapshot", (yield request))


def redact(request: Redact) -> Steps[AppendResult]:
    """Carry out a redaction. Raises what ``Store.redact_events`` raises."""
    return cast("AppendResult", (yield request))


def list_runs(request: ListRuns) -> Steps[RunPage]:
    """Read a page of runs. Raises what ``Store.list_runs`` raises."""
    return cast("RunPage", (yield request))


def extract(request: Extract) -> Steps[Extraction]:
    """Ask an extractor. Raises what it raises."""
    return cast("Extraction", (yield request))


def work(do: Callable[[], _T]) -> Steps[_T]:
    """Do something that takes its time. Raises what it raises."""
    return cast("_T", (yield Work(do)))


async def run_async(steps: Steps[_T], store: Store) -> _T:
    """Run an operation as a part of this task; extractors, and what else takes its time, in threads of their own."""
    resume: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return cast("_T", end.value)
        try:
            answer: object
            if isinstance(request, Load):
                answer = await store.load_run(
                    request.agent, request.run, after=request.after, types=request.types, limit=request.limit
                )
            elif isinstance(request, Append):
                answer = await store.append_events(
                    request.agent, request.run, *request.events, expected_version=request.expected_version
                )
            elif isinstance(request, Redact):
                answer = await store.redact_events(request.agent, request.run, request.seqs, reason=request.reason)
            elif isinstance(request, ListRuns):
                answer = await store.list_runs(cursor=request.cursor, limit=_PAGE, include_reserved=True)
            elif isinstance(request, Work):
                answer = await asyncio.to_thread(request.do)
            else:
                answer = await asyncio.to_thread(request.extractor.extract, request.new)
        except Exception as error:  # noqa: BLE001  # the operation decides what becomes of it
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)


def run_sync(steps: Steps[_T], store: SyncStore) -> _T:
    """Run an operation on this thread."""
    resume: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return cast("_T", end.value)
        try:
            answer: object
            if isinstance(request, Load):
                answer = store.load_run(
                    request.agent, request.run, after=request.after, types=request.types, limit=request.limit
                )
            elif isinstance(request, Append):
                answer = store.append_events(
                    request.agent, request.run, *request.events, expected_version=request.expected_version
                )
            elif isinstance(request, Redact):
                answer = store.redact_events(request.agent, request.run, request.seqs, reason=request.reason)
            elif isinstance(request, ListRuns):
                answer = store.list_runs(cursor=request.cursor, limit=_PAGE, include_reserved=True)
            elif isinstance(request, Work):
                answer = request.do()
            else:
                answer = request.extractor.extract(request.new)
        except Exception as error:  # noqa: BLE001  # the operation decides what becomes of it
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)


_PAGE = 200
