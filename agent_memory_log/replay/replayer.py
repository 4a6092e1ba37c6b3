"""The replayer gives an agent's code recorded model turns and tool results instead of real ones.

A replayer never waits, so its methods need no ``await``. One class serves synchronous code, tasks and threads.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from agent_memory_log.errors import InvalidArgument, ReplayDivergence, ToolFailed
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.recording.calls import Enclosing
from agent_memory_log.replay.checking import MATCHES, MadeCall, Match, StepChecker
from agent_memory_log.replay.clients.sdk import replayed_client
from agent_memory_log.replay.differences import arguments_in, json_in, own_value
from agent_memory_log.replay.expectations import ModelTurn, provider_of, read_expectations
from agent_memory_log.snapshot import Snapshot, require_snapshot
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import list_in
from agent_memory_log.transcript.providers import find_provider, request

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from openai import AsyncOpenAI, OpenAI


class ReplayedCall(msgspec.Struct, frozen=True):
    """A tool call whose own code runs in a replay.

    Attributes:
        event: The recorded event of the call.
        recorded: The recorded result, or None if the recording has no result.
    """

    event: Event
    recorded: ToolResult | None


Arguments = str | Mapping[str, JsonValue] | None
"""The arguments of a call: JSON text, a map, or None for no arguments."""

_Entered = TypeVar("_Entered")


class _Block(ABC, Generic[_Entered]):
    """A context manager for ``with`` and ``async with``. Both do the same, because the block never waits."""

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
    """The context manager for a call whose own code runs; see ``Replayer.tool_call``."""

    def __init__(self, block: AbstractContextManager[ReplayedCall]) -> None:
        """Create the block; ``Replayer.tool_call`` does this."""
        self._block = block

    def _enter(self) -> ReplayedCall:
        return self._block.__enter__()

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self._block.__exit__(None, None, None)
        else:
            self._block.__exit__(type(error), error, error.__traceback__)


class Replayer(_Block["Replayer"]):
    """Replays one recorded run: gives an agent's code the recorded model turns and tool results.

        with Replayer(snapshot) as replayer:  # or async with
            turn = replayer.model_turn()
            for call in turn.tool_calls:
                result = replayer.tool_result(call)

    A replay is strict by default. The first step that differs from the recording raises ``ReplayDivergence``. Agents
    often catch the exceptions of their tools. Every later method call and the end of the block therefore raise the
    divergence again. The end of the block also raises it if a recorded turn, or a call with a result, was not used.

    The rules of a strict replay are:

    - Each call uses one recorded call with the same tool, equal arguments and the same parent call. If the agent passes
      an id, the id must be the same too. The tool may have its recorded name or its name on the provider's wire. Equal
      calls are used in their recorded order.
    - Arguments are compared as JSON values. White space and the order of keys do not matter. 1, 1.0 and true are three
      different values. Missing arguments equal ``{}``.
    - The calls of one task must be in the recorded order; this also holds for the thread that created the replayer. A
      recorded call comes before another only if it ended before the other began.
    - Calls of different tasks or threads may be in any order, and so may calls that the model requested in one turn.
    - Before the agent requests a turn, it must make all calls whose results are recorded before this turn.

    The other values of ``match`` are for agents that may behave differently: ``"call_id"`` matches calls by id,
    ``"arguments"`` by tool and arguments, and ``"order"`` always takes the next recorded call. Each recorded call is
    used at most once, and an unused call is no divergence. Model turns always keep their order.

    Any number of tasks and threads may share one replayer.
    """

    def __init__(self, snapshot: Snapshot, provider: str | None = None, *, match: Match = "strict") -> None:
        """Create a replayer for a whole run.

        Args:
            snapshot: The recorded run, loaded without ``after``, ``types`` and ``limit``.
            provider: The provider that defines the form of the messages in model turns. By default, it is the provider
                that the run was recorded with.
            match: The rule that matches calls with recorded calls.

        Raises:
            InvalidArgument: The snapshot is empty or is only a part of its run, ``provider`` or ``match`` is unknown,
                or the run does not name its provider.
        """
        require_snapshot(snapshot)
        name = f"{snapshot.agent}/{snapshot.run}"
        if not len(snapshot.log):
            raise InvalidArgument(f"{name} has no events to replay; check the names of the agent and the run")
        if snapshot.types is not None or snapshot.after >= snapshot.first_seq or snapshot.last_seq < snapshot.version:
            raise InvalidArgument(f"a replay needs the whole run; load {name} without after, types and limit")
        if match not in MATCHES:
            raise InvalidArgument(f"unknown match {describe(match)}; known: {', '.join(MATCHES)}")
        provider_name = provider or provider_of(snapshot)
        if provider_name is None:
            raise InvalidArgument(f"{name} does not name its provider; pass provider=...")
        self.snapshot = snapshot
        self.provider = provider_name = find_provider(provider_name).name
        self._expected = read_expectations(snapshot, provider_name)
        self._checker = StepChecker(snapshot, self._expected, match)
        self._strict = match == "strict"
        self._lock = threading.Lock()
        self._thread = threading.current_thread()
        self._first: ReplayDivergence | None = None

    def model_turn(self) -> ModelTurn:
        """Return the model's next recorded answer. Raises ``ReplayDivergence``."""
        with self._step():
            return self._checker.next_turn().turn

    def expect_messages(self, messages: Iterable[Mapping[str, JsonValue]]) -> None:
        """Check that the agent would send the recorded messages to the model for the next turn.

        The messages are compared as JSON with the transcript before the next turn. The results of parallel calls may be
        in any order. Content may be plain text or a list with one text block. Answers of the model may lack fields that
        the provider need not get back: empty fields, ``annotations``, ``caller``, ``citations``, ``logprobs``,
        ``status``, and the ids of items of OpenAI Responses.

        Args:
            messages: The agent's messages in the provider's form. They include the system prompt if the provider has it
                among the messages.

        Raises:
            ReplayDivergence: A message differs from the recording.
            DecodeError: An item is not a message.
        """
        with self._step():
            self._checker.check_messages(messages, self._leading, self.provider)

    def openai_client(self) -> OpenAI:
        """Return a client of the package ``openai`` whose model is the recording.

        The client answers ``chat.completions`` and ``responses``, with their streams and helpers, from the recorded
        turns. A strict replay compares the messages of each request as ``expect_messages`` does. The messages hold the
        results of the agent's calls, so the agent may run its tools itself; calls after the last request are not
        checked.

        Raises:
            InvalidArgument: The package is not installed, or the messages of the replayer are not OpenAI's. The client
                raises it for any other request.
        """
        return cast("OpenAI", replayed_client("OpenAI", self.provider, self._answer))

    def async_openai_client(self) -> AsyncOpenAI:
        """Return an ``AsyncOpenAI``; see ``openai_client``."""
        return cast("AsyncOpenAI", replayed_client("AsyncOpenAI", self.provider, self._answer))

    def anthropic_client(self) -> Anthropic:
        """Return a client of the package ``anthropic``, which answers ``messages``; see ``openai_client``."""
        return cast("Anthropic", replayed_client("Anthropic", self.provider, self._answer))

    def async_anthropic_client(self) -> AsyncAnthropic:
        """Return an ``AsyncAnthropic``; see ``anthropic_client``."""
        return cast("AsyncAnthropic", replayed_client("AsyncAnthropic", self.provider, self._answer))

    def _answer(self, body: Mapping[str, Any]) -> ModelTurn:
        """Check the request of a client and return the turn that answers it."""
        messages = body.get(find_provider(self.provider).messages_key)
        sent = [{"role": "user", "content": messages}] if isinstance(messages, str) else list_in(messages)
        continued = body.get("previous_response_id") or ("" if body.get("conversation") else None)
        with self._step():
            return self._checker.answer_request(sent, self._leading, self.provider, continued).turn

    @cached_property
    def _leading(self) -> list[WireMessage]:
        """The messages before the transcript: the system prompt, if the provider has it among the messages."""
        sent: list[WireMessage] = request(self.snapshot, self.provider)[find_provider(self.provider).messages_key]
        return sent[: len(sent) - len(self._expected.segments[-1].transcript)]

    def tool_result(
        self, tool: str | Event, arguments: Arguments = None, *, tool_call_id: str | None = None
    ) -> ToolResult:
        """Return the recorded result of a call, including an error and a retry hint.

        A recorded error is returned and not raised; ``value_of`` raises it. The tool does not run, so the calls
        recorded inside it count as made.

        Args:
            tool: The tool's name, or the event of a call (from ``ModelTurn.tool_calls``), which has its own arguments
                and id.
            arguments: The arguments of the call, as JSON text or as a map.
            tool_call_id: The id of the call.

        Raises:
            ReplayDivergence: The call differs from the recording, or the recording has no result for it.
            InvalidArgument: The arguments are not text or a JSON map, or ``match="call_id"`` is used without an id.
        """
        with self._step():
            index = self._checker.take_call(self._made_call(tool, arguments, tool_call_id), with_inside=True)
            return self._checker.check_result(index)

    def tool_call(
        self, tool: str | Event, arguments: Arguments = None, *, tool_call_id: str | None = None
    ) -> ReplayedCallBlock:
        """Return a context manager for a call whose own code runs, while the calls inside it are replayed.

        The value of the ``with`` statement is a ``ReplayedCall``. Calls that the block makes are inside this call. The
        same holds for tasks that the block starts, and for threads with a copy of its context. When the block
        ends, the agent must have made all calls that were recorded inside.

        The arguments and errors are those of ``tool_result``.

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
        """Raise ``ReplayDivergence`` if a step diverged, or if a recorded turn or a call with a result was not used.

        The end of the ``with`` block calls this method.
        """
        with self._step():
            self._checker.check_end()

    @contextmanager
    def _step(self) -> Generator[None]:
        """Run one step at a time, and raise the first divergence of a strict replay again."""
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
            raise InvalidArgument(f"tool must be a name or the event of a tool call, got {describe(tool)}")
        parent = cast("int | None", Enclosing.call_of(self))
        return MadeCall(name, _arguments(arguments), tool_call_id, parent, self._lane())

    def _lane(self) -> object:
        """Return the current task, or the thread if it created the replayer. The calls of a lane have an order.

        Any other thread gets a new lane for each call: a pool's thread may run unrelated work one after the other.
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
            error.add_note(str(self._first))  # the divergence may have caused the error


def value_of(result: ToolResult) -> object:
    """Return the value of a tool result: the decoded JSON, or the text itself if it is not JSON.

    Numbers with a fraction become floats. If the tool failed, the function raises ``ToolFailed`` with the recorded
    message; the retry hint is in ``result.retry_hint``.
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
        raise InvalidArgument(f"arguments must be a map or JSON text, got {describe(arguments)}")
    try:
        return own_value(arguments)  # pyright: ignore[reportUnknownArgumentType]  # own_value checks the map
    except NotJson as error:
        raise InvalidArgument(f"arguments{error.path} {error}") from error
