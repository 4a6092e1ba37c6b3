"""What memory asks of a store and of an extractor, step by step, so that it is written once for both kinds of store.

An operation is a generator of *requests*. ``run_async`` and ``run_sync`` carry each out and send back what came of it,
or throw in what it raised. ``yield from append(...)`` reads as a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.memory.records.protocols import Extraction, Extractor, RunSlice
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, RunHead, RunPage, Store, SyncStore

_T = TypeVar("_T")


class Append(msgspec.Struct, frozen=True):
    """Append events to a run of memory's own that is at ``expected_version``; answered with the ``AppendResult``."""

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


class Peek(msgspec.Struct, frozen=True):
    """Ask where runs stand; answered with a ``RunHead`` for each, None for one that has expired."""

    runs: tuple[tuple[str, str], ...]


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


class Each(msgspec.Struct, frozen=True):
    """Carry out several operations, at the same time where the store awaits; answered with a list of what they return.

    What one of them raises ends the others.
    """

    operations: tuple[Steps[Any], ...]


Request = Append | Load | Peek | Redact | ListRuns | Extract | Work | Each
Steps = Generator[Request, Any, _T]
"""An operation: yields requests, is sent their answers, returns a ``_T``."""


def append(request: Append) -> Steps[AppendResult]:
    """Carry out an append. Raises what ``Store.append_events`` raises."""
    return cast("AppendResult", (yield request))


def load(request: Load) -> Steps[Snapshot]:
    """Carry out a read. Raises what ``Store.load_run`` raises."""
    return cast("Snapshot", (yield request))


def peek(request: Peek) -> Steps[tuple[RunHead | None, ...]]:
    """Ask where runs stand. Raises what ``Store.peek_runs`` raises."""
    return cast("tuple[RunHead | None, ...]", (yield request))


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


def each(operations: Iterable[Steps[_T]]) -> Steps[list[_T]]:
    """Carry out several operations. Raises what one of them raises."""
    return cast("list[_T]", (yield Each(tuple(operations))))


async def run_async(steps: Steps[_T], store: Store) -> _T:
    """Run an operation as a part of this task; extractors, and what else takes its time, in threads of their own."""
    resume: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return cast("_T", end.value)
        try:
            answer = await _carry_out_async(request, store)
        except Exception as error:  # noqa: BLE001  # the operation decides what becomes of it
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)


async def _carry_out_async(request: Request, store: Store) -> object:
    answer: object
    if isinstance(request, Load):
        answer = await store.load_run(
            request.agent, request.run, after=request.after, types=request.types, limit=request.limit
        )
    elif isinstance(request, Append):
        answer = await store.append_events(
            request.agent, request.run, *request.events, expected_version=request.expected_version, reserved=True
        )
    elif isinstance(request, Peek):
        answer = await store.peek_runs(request.runs)
    elif isinstance(request, Each):
        answer = await _run_each(request.operations, store)
    elif isinstance(request, Redact):
        answer = await store.redact_events(request.agent, request.run, request.seqs, reason=request.reason)
    elif isinstance(request, ListRuns):
        answer = await store.list_runs(cursor=request.cursor, limit=_PAGE, include_reserved=True)
    elif isinstance(request, Work):
        answer = await asyncio.to_thread(request.do)
    else:
        answer = await asyncio.to_thread(request.extractor.extract, request.new)
    return answer


async def _run_each(operations: Sequence[Steps[Any]], store: Store) -> list[object]:
    answers: list[object] = [None] * len(operations)
    left = iter(enumerate(operations))

    async def run_some() -> None:
        for number, one in left:
            answers[number] = await run_async(one, store)

    tasks = [asyncio.create_task(run_some()) for _ in range(min(_AT_ONCE, len(operations)))]
    try:
        # Not a TaskGroup, which would take a task's own cancellation for its end, and hide one error in a group.
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return answers


def run_sync(steps: Steps[_T], store: SyncStore) -> _T:
    """Run an operation on this thread."""
    resume: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return cast("_T", end.value)
        try:
            answer = _carry_out_sync(request, store)
        except Exception as error:  # noqa: BLE001  # the operation decides what becomes of it
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)


def _carry_out_sync(request: Request, store: SyncStore) -> object:
    answer: object
    if isinstance(request, Load):
        answer = store.load_run(
            request.agent, request.run, after=request.after, types=request.types, limit=request.limit
        )
    elif isinstance(request, Append):
        answer = store.append_events(
            request.agent, request.run, *request.events, expected_version=request.expected_version, reserved=True
        )
    elif isinstance(request, Peek):
        answer = store.peek_runs(request.runs)
    elif isinstance(request, Each):
        answer = [run_sync(one, store) for one in request.operations]
    elif isinstance(request, Redact):
        answer = store.redact_events(request.agent, request.run, request.seqs, reason=request.reason)
    elif isinstance(request, ListRuns):
        answer = store.list_runs(cursor=request.cursor, limit=_PAGE, include_reserved=True)
    elif isinstance(request, Work):
        answer = request.do()
    else:
        answer = request.extractor.extract(request.new)
    return answer


_PAGE = 200

_AT_ONCE = 16
"""How many operations run at the same time, so that one search does not take all of a store's connections."""
