"""The recorder for code without ``await``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.python_values import EncHook
from agent_memory_log.recording.calls import CallBlock, RecordedCall
from agent_memory_log.recording.operations import CallToMake, RecordedResponse
from agent_memory_log.recording.recorder import Recorder, note_unrecorded
from agent_memory_log.recording.sdk_objects import read_stream
from agent_memory_log.steps import Steps, require_sync_store, run_sync
from agent_memory_log.store import SyncStore

_T = TypeVar("_T")


class SyncToolCallBlock(CallBlock):
    """The context manager for a tool call of a ``SyncRunRecorder``; see ``Recorder.tool_call``."""

    def __enter__(self) -> RecordedCall:
        return self._enter(self._begin())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._leave(error)
        if call is not None:
            self._end(call, error)


class SyncRunRecorder(Recorder[Event, Event | None, RecordedResponse, RecordedResponse | None, SyncToolCallBlock]):
    """Records one run of an agent in a ``SyncStore``, without ``await``. Any number of threads may share one recorder.

        with SyncRunRecorder(store, "support-agent", "run-42") as recorder:
            recorder.user("Where is my order?")

    The store stays open when the block ends.
    """

    def __init__(
        self,
        store: SyncStore,
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
        require_sync_store(store)
        super().__init__(agent, run, meta, before_append, enc_hook)
        self._store = store
        # Reentrant: Python may collect a suspended generator in the middle of another operation. That ends the
        # generator's open tool call in the same thread.
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: every method has already recorded its events when it returns."""

    def _carry_out(self, steps: Steps[_T]) -> _T:
        with self._lock:
            return run_sync(steps, self._store)

    def _carry_out_with(self, response: object, provider: str | None, key: str | None, labels: Any) -> Any:  # noqa: ANN401  # see Recorder
        received = read_stream(response)
        steps = self._operations.response(received, provider, key, labels)
        if received.failure is None:
            return self._carry_out(steps)
        self._carry_out_despite(received.failure, steps)
        raise received.failure

    def _block(self, call: CallToMake) -> SyncToolCallBlock:
        return SyncToolCallBlock(self, lambda: self._carry_out(self._operations.begin_call(call)), self._end)

    def _end(self, call: RecordedCall, error: BaseException | None) -> None:
        self._carry_out_despite(error, self._operations.end_call(call, error))

    def _carry_out_despite(self, error: BaseException | None, steps: Steps[object]) -> None:
        """Run the steps that record the end of a call or stream. If both fail, ``error`` is the one that matters."""
        try:
            self._carry_out(steps)
        except Exception as failure:
            if error is None:
                raise
            note_unrecorded(error, failure)
