"""Calls a blocking function from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(call: Callable[[], _Result]) -> _Result:
    """Call a function in a thread. A caller that is cancelled waits for the outcome, so that no write comes later.

    The loop may be one of asyncio, or one of trio if anyio is installed.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        from anyio.to_thread import run_sync  # noqa: PLC0415  # asyncio needs no package

        return await run_sync(call)
    future = loop.run_in_executor(None, call)
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = cancellation or error
    if cancellation is not None:
        future.exception()  # it was looked at
        raise cancellation
    return future.result()
