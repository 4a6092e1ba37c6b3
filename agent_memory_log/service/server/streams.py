"""Streams: an operation's results, which may wait for the next one, and their form as server-sent events.

A stream of heads carries no events of the log. The client reads these with ``load_run``, because an event that was sent
ahead could be redacted before the client reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from starlette.types import Receive, Send

from agent_memory_log.backend_kit import check_after, check_reached
from agent_memory_log.errors import AgentMemoryLogError, RunDeleted, RunExpired
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.problems import problem_of
from agent_memory_log.service.store_operations import CheckStore, FollowRun
from agent_memory_log.service.wire import encode_result
from agent_memory_log.store import RunHead, Store

MEDIA_TYPE = "text/event-stream"

_HEARTBEAT = b":\n\n"

_GLANCE_SECONDS = 1.0
"""The time in which the newest event of a run comes, unless the run is being deleted."""


def results_of(store: Store, operation: Operation[Any]) -> AsyncGenerator[Any]:
    """Return the results of an operation that is a stream."""
    if isinstance(operation, FollowRun):
        return _heads(store, operation)
    assert isinstance(operation, CheckStore), f"{type(operation).__name__} is no stream"  # noqa: S101  # see the table
    return _each(store.check(operation.agent, operation.run))


async def _each(results: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    async for result in results:
        yield result


async def _heads(store: Store, operation: FollowRun) -> AsyncGenerator[RunHead]:
    """Yield the head of a run now and after each change.

    A reader that is slow misses heads but never the newest one, because a head is read when it is sent.
    """
    agent, run = operation.agent, operation.run

    async def head() -> RunHead:
        (current,) = await store.peek_runs([(agent, run)])
        if current is None:
            raise RunExpired(f"{agent}/{run} has expired")
        if first_seq is not None and current.first_seq != first_seq:
            raise RunDeleted(f"{agent}/{run} was deleted while it was followed")
        return current

    first_seq = operation.first_seq
    last = await head()
    first_seq = last.first_seq
    check_after(operation.after)
    check_reached(agent, run, operation.after, last.version)
    holds_events = last.version >= last.first_seq
    async with aclosing(store.follow(agent, run, after=last.version - holds_events)) as events:
        if holds_events:
            await _newest(events, head)  # from now on, the store notices a deletion
            last = await head()
        yield last
        async for event in events:
            if event.seq > last.version:
                last = await head()
                yield last


async def _newest(events: AsyncGenerator[Event], head: Callable[[], Awaitable[RunHead]]) -> None:
    """Wait for the newest event of a run. Raises an error of ``head`` if the run was deleted before it was read."""
    newest = asyncio.ensure_future(_next_or_end(events))
    try:
        while not newest.done():
            await asyncio.wait({newest}, timeout=_GLANCE_SECONDS)
            if not newest.done():
                await head()
        newest.result()
    finally:
        newest.cancel()
        await asyncio.gather(newest, return_exceptions=True)


class Interrupted(Exception):
    """A stream stopped before its end, because the client went away or the server stops."""


async def watched(
    operation: type[Operation[Any]],
    results: AsyncGenerator[Any],
    check: Callable[[], Awaitable[object]],
    check_seconds: float,
    *interrupts: Callable[[], Coroutine[Any, Any, object]],
) -> AsyncGenerator[bytes | None]:
    """Yield results as JSON, and None now and then as a sign of life.

    Args:
        operation: The operation, which is a stream.
        results: Its results. They are closed when the stream ends.
        check: Raises an error when the caller may no longer read the stream. It is called before each item.
        check_seconds: The time after which a sign of life comes.
        interrupts: When the wait of one of them ends, the stream is interrupted.

    Raises:
        Interrupted: The stream was interrupted, so the client must ask again.
    """
    ends = {asyncio.ensure_future(interrupt()) for interrupt in interrupts}
    next_result = _next(results)
    now = asyncio.get_running_loop().time
    check_at = now() + check_seconds
    try:
        while True:
            await asyncio.wait({next_result, *ends}, timeout=check_at - now(), return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends):
                raise Interrupted
            await check()
            if now() >= check_at:
                yield None
                check_at = now() + check_seconds
            if next_result.done():
                result = next_result.result()
                if result is _END:
                    return
                yield encode_json(encode_result(operation, result))
                next_result = _next(results)
    finally:
        for task in (next_result, *ends):
            task.cancel()
        await asyncio.gather(next_result, *ends, return_exceptions=True)
        await results.aclose()


async def send_stream(items: AsyncGenerator[bytes | None], send: Send) -> None:
    """Send items as server-sent events. An interrupted stream ends without an end event."""

    async def write(part: bytes) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": True})

    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await write(_HEARTBEAT)
    try:
        async with aclosing(items):
            async for item in items:
                await write(_HEARTBEAT if item is None else b"data: " + item + b"\n\n")
        await write(b"event: end\ndata: null\n\n")
    except Interrupted:
        pass
    except AgentMemoryLogError as error:
        await write(b"event: error\ndata: " + encode_json(problem_of(error)) + b"\n\n")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


_END = object()
"""Stands for the end of the results, because a task cannot raise ``StopAsyncIteration``."""


def _next(results: AsyncGenerator[Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(_next_or_end(results))


async def _next_or_end(results: AsyncGenerator[Any]) -> object:
    return await anext(results, _END)


async def disconnected(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
