"""The replayer: hands an agent's code what was recorded, in place of the model and the tools.

Nothing here waits, so nothing is awaited: one class serves synchronous code, tasks and threads.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from types import TracebackType
from typing import Generic, TypeVar, cast

import msgspec

from agent_memory_log.errors import InvalidArgument, ReplayDivergence, ToolFailed
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.recording.calls import Enclosing
from agent_memory_log.replay.checking import MATCHES, MadeCall, Match, StepChecker
from agent_memory_log.replay.differences import arguments_in, json_in, own_value
from agent_memory_log.replay.expectations import ModelTurn, provider_of, read_expectations
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.providers import find_provider, request


class ReplayedCall(msgspec.Struct, frozen=True):
    """A call whose own code runs in a replay.

    - ``event``: the call as it was recorded.
    - ``recorded``: the result that was recorded, None where there is none.
    """

    event: Event
    recorded: ToolResult | None


Arguments = str | Mapping[str, JsonValue] | None
"""A call's arguments: JSON text or a map; None are no arguments."""

_Entered = TypeVar("_Entered")


class _Block(ABC, Generic[_Entered]):
    """Can be entered by ``with`` and by ``async with``, which do the same: nothing waits."""

    @abstractmethod
    def _enter(self) -> _Entered: ...

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None: ...

    def __enter__(self) -> _Entered:
        return self._enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    async def __aenter__(self) -> _Entered:
        return self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)


class ReplayedCallBlock(_Block[ReplayedCall]):
    """The block of a call whose own code runs; see ``Replayer.tool_call``."""

    def __init__(self, block: AbstractContextManager[ReplayedCall]) -> None:
        """Made by ``tool_call``."""
        self._block = block

    def _enter(self) -> ReplayedCall:
        return self._block.__enter__()

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self._block.__exit__(None, None, None)
        else:
            self._block.__exit__(type(error), error, error.__traceback__)


class Replayer(_Block["Replayer"]):
    """Gives an agent's code the recorded model turns and tool results in place of the real ones.

        with Replayer(snapshot) as replayer:  # or async with
            turn = replayer.model_turn()
            for call in turn.tool_calls:
                result = replayer.tool_result(call)

    Strict by default: the first time the agent does something else than was recorded, ``ReplayDivergence`` says what.
    Agents tend to catch what their tools raise, so from then on every method raises it again, and so does the end of
    the block, which also finds what was recorded and not used.

    - A call is one recorded call: the same tool (by our name or the provider's), equal arguments, the same id if one is
      given, inside the same call. Arguments are compared as JSON values: white space and the order of keys do not
      matter, 1, 1.0 and true are three values, and no arguments are ``{}``. Equal calls are used up in their order.
    - What one task, or the thread the replayer was made in, does one after the other must come in the recorded order,
      as far as the log shows one (what ended before the other began). Calls of several tasks or threads may come in any
      order, and so may those that the model asked for in one turn. The model is asked for a turn after all calls that
      were answered before it.

    ``match`` is for agents that may do otherwise: ``"call_id"`` finds a call by its id alone, ``"arguments"`` by tool
    and arguments, ``"order"`` takes the next one whatever is asked; each recorded call once, and what is not used is no
    divergence. Model turns come in their order always.

    Any number of tasks and threads may use one replayer.
    """

    def __init__(self, snapshot: Snapshot, provider: str | None = None, *, match: Match = "strict") -> None:
        """``provider``: whose form the model's turns have; by default the one the run was recorded with.

        Raises ``InvalidArgument`` for a snapshot that is empty or only a part of its run, for an unknown provider or
        ``match``, and where no provider is given and the run does not tell.
        """
        name = f"{snapshot.agent}/{snapshot.run}"
        if not len(snapshot.log):
            raise InvalidArgument(f"{name} holds no events to replay: is it the run that was meant?")
        if snapshot.types is not None or snapshot.after >= snapshot.first_seq or snapshot.last_seq < snapshot.version:
            raise InvalidArgument(f"a replay needs the whole run: load {name} without after, types and limit")
        if match not in MATCHES:
            raise InvalidArgument(f"unknown match {describe(match)}; known: {', '.join(MATCHES)}")
        named = provider or provider_of(snapshot)
        if named is None:
            raise InvalidArgument(f"{name} does not say which provider it was recorded with: name one")
        self.snapshot = snapshot
        self.provider = named
        self._expected = read_expectations(snapshot, named)
        self._checker = StepChecker(snapshot, self._expected, match)
        self._strict = match == "strict"
        self._lock = threading.Lock()
        self._thread = threading.current_thread()
        self._first: ReplayDivergence | None = None

    def model_turn(self) -> ModelTurn:
        """What the model answers next. Raises ``ReplayDivergence``."""
        with self._step():
            return self._checker.next_turn().turn

    def expect_messages(self, messages: Iterable[Mapping[str, JsonValue]]) -> None:
        """Check that ``messages``, which the agent would ask the model with, are those of the recording so far.

        ``messages`` are in the provider's form, with the system prompt where it stands among them. Compared as JSON
        with the transcript before the next turn. Results of calls made in parallel may stand in any order, and what the
        user said may be text alone or a list of one text block. Raises ``ReplayDivergence`` with what differs, and
        ``DecodeError`` for what are no messages.
        """
        with self._step():
            self._checker.check_messages(messages, self._leading, self.provider)

    @cached_property
    def _leading(self) -> list[WireMessage]:
        """The system prompt as it stands before the transcript, where the provider has it there."""
        sent: list[WireMessage] = request(self.snapshot, self.provider)[find_provider(self.provider).messages_key]
        return sent[: len(sent) - len(self._expected.transcript)]

    def tool_result(
        self, tool: str | Event, arguments: Arguments = None, *, tool_call_id: str | None = None
    ) -> ToolResult:
        """What came of a call, as it was recorded: the value or the error, the retry hint, all of it.

        ``tool`` is the tool's name, or the event of a call (of ``ModelTurn.tool_calls``), which has its arguments and
        id; ``arguments`` are JSON text or a map. An error is returned, not raised: ``value_of`` raises it. The tool
        does not run, so calls recorded inside it are done with it.

        Raises ``ReplayDivergence``, also where the recording has no result of the call, and ``InvalidArgument`` for
        arguments that are no JSON map or text, and for no id where calls are matched by it.
        """
        with self._step():
            index = self._checker.take_call(self._made_call(tool, arguments, tool_call_id), with_inside=True)
            return self._checker.check_result(index)

    def tool_call(
        self, tool: str | Event, arguments: Arguments = None, *, tool_call_id: str | None = None
    ) -> ReplayedCallBlock:
        """A block in which the call's own code runs, and calls inside it are replayed; its value is a ``ReplayedCall``.

        Calls made in the block are inside the call, also in tasks started there and in threads that run in a copy of
        its context. When the block ends, all that was recorded inside must have been made. The rest is as for
        ``tool_result``.

            with replayer.tool_call("orders.report", {"year": 2026}) as call:  # or async with
                report = make_report(2026)
        """
        return ReplayedCallBlock(self._inside(tool, arguments, tool_call_id))

    @contextmanager
    def _inside(self, tool: str | Event, arguments: Arguments, tool_call_id: str | None) -> Generator[ReplayedCall]:
        with self._step():
            index = self._checker.take_call(self._made_call(tool, arguments, tool_call_id), with_inside=False)
        expected = self._expected.calls[index]
        enclosing: Enclosing[int] = Enclosing(self)
        enclosing.enter(index)
        try:
            yield ReplayedCall(expected.event, expected.result)
        finally:
            enclosing.leave()
        with self._step():
            self._checker.check_inside(index)

    def finish(self) -> None:
        """Raise ``ReplayDivergence`` if there was one, or if something recorded was not used; a block does it too."""
        with self._step():
            self._checker.check_end()

    @contextmanager
    def _step(self) -> Generator[None]:
        """One step at a time; the first divergence of a strict replay stays."""
        with self._lock:
            if self._first is not None:
                raise ReplayDivergence(str(self._first), reason=self._first.reason, seq=self._first.seq)
            try:
                yield
            except ReplayDivergence as divergence:
                if self._strict:
                    self._first = divergence
                raise

    def _made_call(self, tool: str | Event, arguments: Arguments, tool_call_id: str | None) -> MadeCall:
        if isinstance(tool, Event):
            if not isinstance(tool.data, ToolCall):
                raise InvalidArgument(f"event {tool.seq} is a {tool.type}, not a tool_call")
            name, arguments, tool_call_id = tool.data.tool_name, tool.data.payload_json, tool.data.tool_call_id
        elif isinstance(tool, str):
            name = tool
        else:
            raise InvalidArgument(f"a tool is named by text or by the event of its call, found {describe(tool)}")
        parent = cast("int | None", Enclosing.call_of(self))
        return MadeCall(name, _arguments(arguments), tool_call_id, parent, self._lane())

    def _lane(self) -> object:
        """What does one thing after the other: a task, or the thread the replayer was made in.

        Another thread may be one of a pool, and do now this one's work and now that one's.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not None:
            return task
        return self._thread if threading.current_thread() is self._thread else object()

    def _enter(self) -> Replayer:
        return self

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self.finish()
        elif self._first is not None and not isinstance(error, ReplayDivergence):
            error.add_note(str(self._first))  # what may have led to it


def value_of(result: ToolResult) -> object:
    """What a tool returned: the recorded JSON decoded, with fractions as floats; text that is no JSON as it is.

    Raises ``ToolFailed`` with the recorded message where the tool failed; a retry hint is in ``result.retry_hint``.
    """
    if result.error_message:
        raise ToolFailed(result.error_message, tool_name=result.tool_name, tool_call_id=result.tool_call_id)
    return json_in(result.result_json)


def _arguments(arguments: object) -> JsonValue:
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        return arguments_in(arguments)
    if not isinstance(arguments, Mapping):
        raise InvalidArgument(f"a call's arguments must be a map or JSON text, found {describe(arguments)}")
    try:
        return own_value(arguments)  # pyright: ignore[reportUnknownArgumentType]  # a map of anything is what is checked
    except NotJson as error:
        raise InvalidArgument(f"arguments{error.path} {error}") from error
