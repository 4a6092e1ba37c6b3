"""Cancels a call at one of its awaits."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any


async def cancel_at(number: int, call: Coroutine[Any, Any, object]) -> bool:
    """Run ``call`` in a task, and cancel the task at an await.

    Args:
        number: The number of the await, from 0.
        call: The call.

    Returns:
        Whether the task was cancelled. False means that the call returned before this await.

    Raises:
        AssertionError: The call returned although it was cancelled, so the cancellation was lost.
    """
    reached = False

    @types.coroutine
    def step_by_step() -> Generator[Any, Any, None]:
        nonlocal reached
        thrown: BaseException | None = None
        passed = 0
        while True:
            try:
                waited_for = call.send(None) if thrown is None else call.throw(thrown)
            except StopIteration:
                return
            if passed == number:
                reached = True
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            passed += 1
            thrown = None
            try:
                yield waited_for
            except BaseException as error:
                thrown = error

    async def run() -> None:
        await step_by_step()

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    if task.cancelled():
        assert reached
        return True
    task.result()
    assert not reached, f"the cancellation at await {number} was lost"
    return False
