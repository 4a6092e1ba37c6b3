"""The recorder for asyncio code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.python_values import EncHook
from agent_memory_log.recording.calls import CallBlock, RecordedCall
from agent_memory_log.recording.operations import CallToMake, RecordedResponse
from agent_memory_log.recording.recorder import Recorder, note_unrecorded
from agent_memory_log.recording.sdk_objects import read_stream_async
from agent_memory_log.recording.turns import Turns
from agent_memory_log.steps import Steps, require_store, run_async
from agent_memory_log.store import Store

_T = TypeVar("_T")


class ToolCallBlock(CallBlock):
    """The context manager for a tool call of a ``RunRecorder``; see ``Recorder.tool_call``."""

    async def __aenter__(self) -> RecordedCall:
        return self._enter(await self._begin())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._leave(error)
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
    """Records one run of an agent in a ``Store``. Every method except ``tool_call`` must be awaited.

        async with RunRecorder(store, "support-agent", "run-42") as recorder:
            await recorder.user("Where is my order?")
            async with recorder.tool_call("orders.find", {"id": 7}) as call:
                call.result(await find_order(7))
            await recorder.assistant("It is on its way.")

    Any number of tasks of the store's event loop may share one recorder. At its end, the block waits until the results
    of cancelled tool calls are recorded. The store stays open.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        run: str,
        *,
        meta: Mapping[str, JsonValue] | None = None,
        before_append: Callable[[Event], Event] | None = None,
        enc_hook: EncHook | None = None,
    ) -> None:
        """Create a recorder without reading or changing the store.

        Args:
            store: The store to append to.
            agent: The name of the agent.
            run: The name of the run.
            meta: Metadata to store with the run. It is used only if the recorder creates the run.
            before_append: Changes each event before it is appended; see ``Recorder``.
            enc_hook: Converts the values of unknown types in arguments and results; see ``Recorder``.
        """
        require_store(store)
        super().__init__(agent, run, meta, before_append, enc_hook)
        self._store = store
        self._turns = Turns()
        self._unfinished: set[asyncio.Task[Any]] = set()

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

    async def _in_turn(self, turn: asyncio.Future[None], steps: Steps[_T]) -> _T:
        try:
            await turn
            return await run_async(steps, self._store)
        finally:
            self._turns.leave(turn)

    async def _carry_out_with(self, response: object, provider: str | None, key: str | None, labels: Any) -> Any:  # noqa: ANN401  # see Recorder
        received = await read_stream_async(response)
        steps = self._operations.response(received, provider, key, labels)
        if received.failure is None:
            return await self._carry_out(steps)
        await self._carry_out_despite(received.failure, steps)
        raise received.failure

    def _block(self, call: CallToMake) -> ToolCallBlock:
        return ToolCallBlock(self, lambda: self._carry_out(self._operations.begin_call(call)), self._end)

    async def _end(self, call: RecordedCall, error: BaseException | None) -> None:
        await self._carry_out_despite(error, self._operations.end_call(call, error))

    async def _carry_out_despite(self, error: BaseException | None, steps: Steps[Any]) -> None:
        """Run the steps that record the end of a call or stream, even if this task is cancelled meanwhile.

        The tool has already run, and the user may have read the answer. If both fail, ``error`` is the one that
        matters.
        """
        turn = self._turns.join()
        task = asyncio.create_task(self._in_turn(turn, steps))
        task.add_done_callback(partial(self._settled, turn))
        try:
            await asyncio.shield(task)
        except Exception as failure:
            if error is None:
                raise
            note_unrecorded(error, failure)
        except asyncio.CancelledError:
            self._unfinished.add(task)
            raise

    def _settled(self, turn: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
        self._turns.leave(turn)  # a task that is cancelled before it starts does not leave its turn
        if not task.cancelled() and task.exception() is None:
            self._unfinished.discard(task)
