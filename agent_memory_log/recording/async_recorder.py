"""The recorder for code that awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.recording.calls import CallBlock, RecordedCall
from agent_memory_log.recording.operations import CallToMake, RecordedResponse
from agent_memory_log.recording.recorder import Recorder, note_unrecorded
from agent_memory_log.recording.sdk_objects import read_stream_async
from agent_memory_log.recording.turns import Turns
from agent_memory_log.steps import Steps, run_async
from agent_memory_log.store import Store

_T = TypeVar("_T")


class ToolCallBlock(CallBlock):
    """The block of a tool call of a ``RunRecorder``; see ``Recorder.tool_call``."""

    async def __aenter__(self) -> RecordedCall:
        return self._enter(await self._begin())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._leave()
        if call is not None:
            await self._end(call, error)


class RunRecorder(
    Recorder[
        Coroutine[Any, Any, Event],
        Coroutine[Any, Any, Event | None],
        Coroutine[Any, Any, RecordedResponse],
        Coroutine[Any, Any, RecordedResponse | None],
        ToolCallBlock,
    ]
):
    """Records one run of an agent, through a ``Store``; every method is to be awaited.

        async with RunRecorder(store, "support-agent", "run-42") as recorder:
            await recorder.user("Where is my order?")
            async with recorder.tool_call("orders.find", {"id": 7}) as call:
                call.result(await find_order(7))
            await recorder.assistant("It is on its way.")

    ``meta`` is kept with the run if the recorder creates it. Any number of tasks of the store's event loop may use one
    recorder. When the block ends, what cancelled calls are still recording is waited for; the store stays open.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        run: str,
        *,
        meta: Mapping[str, JsonValue] | None = None,
        before_append: Callable[[Event], Event] | None = None,
    ) -> None:
        """Does nothing to the store."""
        super().__init__(agent, run, meta, before_append)
        self._store = store
        self._turns = Turns()
        self._unfinished: set[asyncio.Task[Event]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._unfinished:
            return
        await asyncio.wait(self._unfinished)
        for task in tuple(self._unfinished):
            self._unfinished.discard(task)
            failure = None if task.cancelled() else task.exception()
            if failure is not None:
                if error is None:
                    raise failure
                note_unrecorded(error, failure)

    async def _carry_out(self, steps: Steps[_T]) -> _T:
        return await self._in_turn(self._turns.join(), steps)

    async def _in_turn(self, place: asyncio.Future[None], steps: Steps[_T]) -> _T:
        try:
            await place
            return await run_async(steps, self._store)
        finally:
            self._turns.leave(place)

    async def _carry_out_with(self, response: object, provider: str | None, key: str | None, labels: Any) -> Any:  # noqa: ANN401  # see Recorder
        response = await read_stream_async(response)
        return await self._carry_out(self._operations.response(response, provider, key, labels))

    def _block(self, call: CallToMake) -> ToolCallBlock:
        return ToolCallBlock(self, lambda: self._carry_out(self._operations.begin_call(call)), self._end)

    async def _end(self, call: RecordedCall, error: BaseException | None) -> None:
        """Record what came of a call even if this task is cancelled meanwhile: the tool has run."""
        steps = self._operations.end_call(call, error)
        place = self._turns.join()
        task = asyncio.create_task(self._in_turn(place, steps))
        task.add_done_callback(partial(self._settled, place))
        try:
            await asyncio.shield(task)
        except Exception as failure:
            if error is None:
                raise
            note_unrecorded(error, failure)
        except asyncio.CancelledError:
            self._unfinished.add(task)
            raise

    def _settled(self, place: asyncio.Future[None], task: asyncio.Task[Event]) -> None:
        self._turns.leave(place)  # if it was cancelled before it began
        if not task.cancelled() and task.exception() is None:
            self._unfinished.discard(task)
