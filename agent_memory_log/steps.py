"""Runs an operation over a ``Store`` or a ``SyncStore``, so that each operation is written only once.

An operation is a generator. It yields requests: a call of a store method, slow work, or several operations at once.
``run_async`` and ``run_sync`` carry out each request and send its result back into the generator. If the request raises
an ``Exception``, they throw it into the generator, which may catch it. ``yield from load(...)`` reads like a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Erasures, RunHead, RunInfo, RunPage, Store, SyncStore

_T = TypeVar("_T")

_PAGE = 500
"""The page size of ``all_runs``, in runs."""

_AT_ONCE = 16
"""The most operations of ``each`` that run at the same time, so that they do not use all connections of a store."""


class StoreCall(msgspec.Struct, frozen=True):
    """The request to call a method of the store.

    Attributes:
        method: The name of the method.
        arguments: Its positional arguments.
        options: Its keyword arguments.
    """

    method: str
    arguments: tuple[object, ...]
    options: dict[str, Any]


class Work(msgspec.Struct, frozen=True):
    """The request to call a slow function that does not use the store. ``run_async`` calls it in a thread."""

    function: Callable[[], object]


class Each(msgspec.Struct, frozen=True):
    """The request to run several operations. ``run_async`` runs them concurrently. The result is a list."""

    operations: tuple[Steps[Any], ...]


class On(msgspec.Struct, frozen=True):
    """The request to run an operation on another store of the same kind."""

    store: Store | SyncStore
    operation: Steps[Any]


Request = StoreCall | Work | Each | On
Steps = Generator[Request, Any, _T]
"""An operation. It yields requests, receives their results and returns a ``_T``."""


def append(
    agent: str,
    run: str,
    events: Iterable[Event],
    *,
    expected_version: int | None = None,
    meta: Mapping[str, JsonValue] | None = None,
    first_seq: int | None = None,
    reserved: bool = False,
) -> Steps[AppendResult]:
    """Call ``Store.append_events``."""
    options = {"expected_version": expected_version, "meta": meta, "first_seq": first_seq, "reserved": reserved}
    return cast("AppendResult", (yield StoreCall("append_events", (agent, run, *events), options)))


def load(
    agent: str,
    run: str,
    after: int = 0,
    types: Sequence[str] | None = None,
    limit: int | None = None,
    last: int | None = None,
) -> Steps[Snapshot]:
    """Call ``Store.load_run``."""
    options = {"after": after, "types": types, "limit": limit, "last": last}
    return cast("Snapshot", (yield StoreCall("load_run", (agent, run), options)))


def find(agent: str, run: str, event_id: str) -> Steps[Event | None]:
    """Call ``Store.find_events`` with one id, and return the event or None."""
    (event,) = cast("tuple[Event | None]", (yield StoreCall("find_events", (agent, run, (event_id,)), {})))
    return event


def peek(runs: Sequence[tuple[str, str]]) -> Steps[tuple[RunHead | None, ...]]:
    """Call ``Store.peek_runs``."""
    return cast("tuple[RunHead | None, ...]", (yield StoreCall("peek_runs", (runs,), {})))


def erasures(runs: Sequence[tuple[str, str]], after: int = 0) -> Steps[Erasures]:
    """Call ``Store.erasures``."""
    return cast("Erasures", (yield StoreCall("erasures", (), {"after": after, "runs": runs})))


def redact(agent: str, run: str, seqs: Iterable[int], reason: str) -> Steps[AppendResult]:
    """Call ``Store.redact_events``."""
    return cast("AppendResult", (yield StoreCall("redact_events", (agent, run, seqs), {"reason": reason})))


def all_runs(agent: str | None = None, *, include_reserved: bool = False) -> Steps[list[RunInfo]]:
    """Return all runs, or all runs of ``agent``, the most recently created first. See ``Store.list_runs``."""
    runs: list[RunInfo] = []
    options: dict[str, Any] = {"limit": _PAGE, "include_reserved": include_reserved}
    while True:
        page = cast("RunPage", (yield StoreCall("list_runs", (agent,), options)))
        runs += page.runs
        if page.cursor is None:
            return runs
        options = {**options, "cursor": page.cursor}


def work(function: Callable[[], _T]) -> Steps[_T]:
    """Call a slow function that does not use the store, and return its result."""
    return cast("_T", (yield Work(function)))


def each(operations: Iterable[Steps[_T]]) -> Steps[list[_T]]:
    """Run several operations and return their results. An error in one of them stops the others."""
    return cast("list[_T]", (yield Each(tuple(operations))))


def on(store: Store | SyncStore, operation: Steps[_T]) -> Steps[_T]:
    """Run an operation on another store of the same kind, and return its result."""
    return cast("_T", (yield On(store, operation)))


def require_store(store: object) -> None:
    """Raise ``InvalidArgument``, with what to use instead, for a ``SyncStore`` and for a store that is not open."""
    if not hasattr(store, "aclose") and (hasattr(store, "close") or _is_not_open(store)):
        use = "for a SyncStore, use the class that begins with Sync, or the function that ends in _sync"
        raise InvalidArgument(f"expected a Store, as open_store opens it, got {_described(store, use)}")


def require_sync_store(store: object) -> None:
    """Raise ``InvalidArgument``, with what to use instead, for a ``Store`` and for a store that is not open."""
    is_async = hasattr(store, "aclose") and not hasattr(store, "close")
    if is_async or (not hasattr(store, "load_run") and _is_not_open(store)):
        use = "for a Store, use the class without Sync, or the function without _sync, and await its calls"
        raise InvalidArgument(f"expected a SyncStore, as open_sync_store opens it, got {_described(store, use)}")


def _is_not_open(store: object) -> bool:
    return store is None or isinstance(store, str) or isawaitable(store)


def _described(store: object, use: str) -> str:
    if not _is_not_open(store):
        return f"a {type(store).__name__}: {use}"
    return f"{describe(store)}: {'await it first' if isawaitable(store) else 'open the store first'}"


async def run_async(steps: Steps[_T], store: Store) -> _T:
    """Run an operation on an asynchronous store."""
    require_store(store)
    resume: Callable[[], Request] = partial(next, steps)
    try:
        while True:
            try:
                request = resume()
            except StopIteration as end:
                return cast("_T", end.value)
            try:
                if isinstance(request, StoreCall):
                    result = await getattr(store, request.method)(*request.arguments, **request.options)
                elif isinstance(request, Work):
                    result = await asyncio.to_thread(request.function)
                elif isinstance(request, Each):
                    result = await _run_each(request.operations, store)
                else:
                    result = await run_async(request.operation, cast("Store", request.store))
            except Exception as error:  # noqa: BLE001  # the operation handles or raises it
                resume = partial(steps.throw, error)
            except BaseException:
                steps.close()  # a cancelled operation gives back its indexes now, not when Python collects it
                raise
            else:
                resume = partial(steps.send, result)
    finally:
        del resume  # a raised error refers to this frame: avoid a reference cycle


def run_sync(steps: Steps[_T], store: SyncStore) -> _T:
    """Run an operation on a synchronous store."""
    require_sync_store(store)
    resume: Callable[[], Request] = partial(next, steps)
    try:
        while True:
            try:
                request = resume()
            except StopIteration as end:
                return cast("_T", end.value)
            try:
                result: object
                if isinstance(request, StoreCall):
                    result = getattr(store, request.method)(*request.arguments, **request.options)
                elif isinstance(request, Work):
                    result = request.function()
                elif isinstance(request, Each):
                    result = [run_sync(operation, store) for operation in request.operations]
                else:
                    result = run_sync(request.operation, cast("SyncStore", request.store))
            except Exception as error:  # noqa: BLE001  # the operation handles or raises it
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, result)
    finally:
        del resume  # a raised error refers to this frame: avoid a reference cycle


async def _run_each(operations: Sequence[Steps[Any]], store: Store) -> list[object]:
    results: list[object] = [None] * len(operations)
    waiting = iter(enumerate(operations))

    async def run_some() -> None:
        for index, operation in waiting:
            results[index] = await run_async(operation, store)

    tasks = [asyncio.create_task(run_some()) for _ in range(min(_AT_ONCE, len(operations)))]
    try:
        # A TaskGroup would ignore the cancellation of a single task, and wrap a single error in a group.
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return results
