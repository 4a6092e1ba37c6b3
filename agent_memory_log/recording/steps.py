"""What recording asks of a store, step by step, so that it is written once for both kinds of store.

An operation is a generator of *requests*: an append, a read. ``run_async`` and ``run_sync`` carry each out and send
back what came of it, or throw in what it raised. ``yield from append(...)`` reads as a call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Store, SyncStore

_T = TypeVar("_T")


class Append(msgspec.Struct, frozen=True):
    """Append events; answered with the ``AppendResult``."""

    agent: str
    run: str
    events: tuple[Event, ...]
    expected_version: int | None = None
    meta: Mapping[str, JsonValue] | None = None


class Load(msgspec.Struct, frozen=True):
    """Read what comes after a seq; answered with the ``Snapshot``."""

    agent: str
    run: str
    after: int = 0


Request = Append | Load
Steps = Generator[Request, Any, _T]
"""An operation: yields requests, is sent their answers, returns a ``_T``."""


def append(request: Append) -> Steps[AppendResult]:
    """Carry out an append. Raises what ``Store.append_events`` raises."""
    return cast("AppendResult", (yield request))


def load(request: Load) -> Steps[Snapshot]:
    """Carry out a read. Raises what ``Store.load_run`` raises."""
    return cast("Snapshot", (yield request))


async def run_async(steps: Steps[_T], store: Store) -> _T:
    """Run an operation as a part of this task."""
    resume: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return cast("_T", end.value)
        try:
            if isinstance(request, Append):
                answer: AppendResult | Snapshot = await store.append_events(
                    request.agent,
                    request.run,
                    *request.events,
                    expected_version=request.expected_version,
                    meta=request.meta,
                )
            else:
                answer = await store.load_run(request.agent, request.run, after=request.after)
        except AgentMemoryLogError as error:
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
            if isinstance(request, Append):
                answer: AppendResult | Snapshot = store.append_events(
                    request.agent,
                    request.run,
                    *request.events,
                    expected_version=request.expected_version,
                    meta=request.meta,
                )
            else:
                answer = store.load_run(request.agent, request.run, after=request.after)
        except AgentMemoryLogError as error:
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)
