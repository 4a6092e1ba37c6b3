"""The one engine that runs an operation over a ``Store`` or a ``SyncStore``, so that each operation is written once.

An operation is a generator. It yields *requests*: a call on the store, work that takes its time, or several operations
at once. ``run_async`` and ``run_sync`` carry each request out and send back its answer, or throw in the ``Exception``
it raised, which the operation may catch. ``yield from load(...)`` reads as a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, RunHead, RunInfo, RunPage, Store, SyncStore

_T = TypeVar("_T")

_PAGE = 500
"""How many runs ``all_runs`` reads at a time."""

_AT_ONCE = 16
"""How many operations of ``each`` run at the same time, so that they do not take all of a store's connections."""


class Ask(msgspec.Struct, frozen=True):
    """Call a method of the store; answered with what it returns, awaited on a ``Store``."""

    method: str
    arguments: tuple[object, ...]
    options: dict[str, Any]


class Work(msgspec.Struct, frozen=True):
    """Do something that takes its time and asks no store, in a thread where the store awaits."""

    do: Callable[[], object]


class Each(msgspec.Struct, frozen=True):
    """Carry out several operations, at the same time where the store awaits; answered with a list of their results."""

    operations: tuple[Steps[Any], ...]


class On(msgspec.Struct, frozen=True):
    """Carry out an operation on another store, one of the same kind; answered with its result."""

    store: Store | SyncStore
    operation: Steps[Any]


Request = Ask | Work | Each | On
Steps = Generator[Request, Any, _T]
"""An operation: yields requests, is sent their answers, returns a ``_T``."""


def append(  # as Store.append_events
    agent: str,
    run: str,
    events: Iterable[Event],
    *,
    expected_version: int | None = None,
    meta: Mapping[str, JsonValue] | None = None,
    first_seq: int | None = None,
    reserved: bool = False,
) -> Steps[AppendResult]:
    """See ``Store.append_events``."""
    options = {"expected_version": expected_version, "meta": meta, "first_seq": first_seq, "reserved": reserved}
    return cast("AppendResult", (yield Ask("append_events", (agent, run, *events), options)))


def load(
    agent: str, run: str, after: int = 0, types: Sequence[str] | None = None, limit: int | None = None
) -> Steps[Snapshot]:
    """See ``Store.load_run``."""
    options = {"after": after, "types": types, "limit": limit}
    return cast("Snapshot", (yield Ask("load_run", (agent, run), options)))


def peek(runs: Sequence[tuple[str, str]]) -> Steps[tuple[RunHead | None, ...]]:
    """See ``Store.peek_runs``."""
    return cast("tuple[RunHead | None, ...]", (yield Ask("peek_runs", (runs,), {})))


def redact(agent: str, run: str, seqs: Iterable[int], reason: str) -> Steps[AppendResult]:
    """See ``Store.redact_events``."""
    return cast("AppendResult", (yield Ask("redact_events", (agent, run, seqs), {"reason": reason})))


def all_runs(agent: str | None = None, *, include_reserved: bool = False) -> Steps[list[RunInfo]]:
    """All runs, or all of ``agent``, the one created last first. Holds them in memory. See ``Store.list_runs``."""
    runs: list[RunInfo] = []
    options: dict[str, Any] = {"limit": _PAGE, "include_reserved": include_reserved}
    while True:
        page = cast("RunPage", (yield Ask("list_runs", (agent,), options)))
        runs += page.runs
        if page.cursor is None:
            return runs
        options = {**options, "cursor": page.cursor}


def work(do: Callable[[], _T]) -> Steps[_T]:
    """Do something that takes its time. Raises what it raises."""
    return cast("_T", (yield Work(do)))


def each(operations: Iterable[Steps[_T]]) -> Steps[list[_T]]:
    """Carry out several operations. What one of them raises ends the others."""
    return cast("list[_T]", (yield Each(tuple(operations))))


def on(store: Store | SyncStore, operation: Steps[_T]) -> Steps[_T]:
    """Carry out an operation on another store, one of the same kind. Raises what the operation raises."""
    return cast("_T", (yield On(store, operation)))


async def run_async(steps: Steps[_T], store: Store) -> _T:
    """Run an operation as a part of this task."""
    resume: Callable[[], Request] = partial(next, steps)
    try:
        while True:
            try:
                request = resume()
            except StopIteration as end:
                return cast("_T", end.value)
            try:
                if isinstance(request, Ask):
                    answer = await getattr(store, request.method)(*request.arguments, **request.options)
                elif isinstance(request, Work):
                    answer = await asyncio.to_thread(request.do)
                elif isinstance(request, Each):
                    answer = await _run_each(request.operations, store)
                else:
                    answer = await run_async(request.operation, cast("Store", request.store))
            except Exception as error:  # noqa: BLE001  # the operation decides what becomes of it
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, answer)
    finally:
        del resume  # an error that leaves holds this frame: it must not hold the error


def run_sync(steps: Steps[_T], store: SyncStore) -> _T:
    """Run an operation on this thread."""
    resume: Callable[[], Request] = partial(next, steps)
    try:
        while True:
            try:
                request = resume()
            except StopIteration as end:
                return cast("_T", end.value)
            try:
                answer: object
                if isinstance(request, Ask):
                    answer = getattr(store, request.method)(*request.arguments, **request.options)
                elif isinstance(request, Work):
                    answer = request.do()
                elif isinstance(request, Each):
                    answer = [run_sync(operation, store) for operation in request.operations]
                else:
                    answer = run_sync(request.operation, cast("SyncStore", request.store))
            except Exception as error:  # noqa: BLE001  # the operation decides what becomes of it
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, answer)
    finally:
        del resume  # an error that leaves holds this frame: it must not hold the error


async def _run_each(operations: Sequence[Steps[Any]], store: Store) -> list[object]:
    answers: list[object] = [None] * len(operations)
    waiting = iter(enumerate(operations))

    async def run_some() -> None:
        for number, operation in waiting:
            answers[number] = await run_async(operation, store)

    tasks = [asyncio.create_task(run_some()) for _ in range(min(_AT_ONCE, len(operations)))]
    try:
        # Not a TaskGroup, which would take a task's own cancellation for its end, and hide one error in a group.
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return answers
