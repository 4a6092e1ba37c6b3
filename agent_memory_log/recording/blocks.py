"""The block of a tool call, of either recorder; see ``Recorder.tool_call``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from agent_memory_log.recording.calls import Enclosing, RecordedCall


class ToolCallBlock:
    """The block of a tool call of a ``RunRecorder``; see ``Recorder.tool_call``."""

    def __init__(
        self,
        enclosing: Enclosing[RecordedCall],
        begin: Callable[[], Coroutine[Any, Any, RecordedCall]],
        end: Callable[[RecordedCall, BaseException | None], Coroutine[Any, Any, None]],
    ) -> None:
        """Made by ``tool_call``."""
        self._enclosing = enclosing
        self._begin = begin
        self._end = end

    async def __aenter__(self) -> RecordedCall:
        call = await self._begin()
        self._enclosing.enter(call)
        return call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._enclosing.leave()
        if call is not None and call.recorded is None:
            await self._end(call, error)


class SyncToolCallBlock:
    """The block of a tool call of a ``SyncRunRecorder``; see ``Recorder.tool_call``."""

    def __init__(
        self,
        enclosing: Enclosing[RecordedCall],
        begin: Callable[[], RecordedCall],
        end: Callable[[RecordedCall, BaseException | None], None],
    ) -> None:
        """Made by ``tool_call``."""
        self._enclosing = enclosing
        self._begin = begin
        self._end = end

    def __enter__(self) -> RecordedCall:
        call = self._begin()
        self._enclosing.enter(call)
        return call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._enclosing.leave()
        if call is not None and call.recorded is None:
            self._end(call, error)
