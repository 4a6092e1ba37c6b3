"""What both recorders have in common. Every method is written once: it makes steps, which the kind carries out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    PlannerNote,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    UserMessage,
)
from agent_memory_log.recording.calls import Enclosing, RecordedCall, payload_text
from agent_memory_log.recording.operations import CallToMake, Operations, recorded_call
from agent_memory_log.steps import Steps

_Stored = TypeVar("_Stored")
_Changed = TypeVar("_Changed")
_Answered = TypeVar("_Answered")
_Known = TypeVar("_Known")
_Block = TypeVar("_Block")


class Recorder(ABC, Generic[_Stored, _Changed, _Answered, _Known, _Block]):
    """What ``RunRecorder`` and ``SyncRunRecorder`` have in common, which is all but the ``await``.

    Each method that records returns the event as it stands in the store, once the store has acknowledged it. Events are
    appended in the order the methods were called in, whatever tasks or threads called them.

    A ``key``, any text, names a step of the run: doing the step again, after a crash or in a retry, adds nothing. What
    a step says itself must be the same again (another message under the same key is an ``EventConflict``); what came of
    it, a tool's result or a model's answer, is handed back as it was recorded. Steps of different kinds may share a
    key.

    ``labels`` are text to text. All methods raise what ``append_events`` raises, and ``InvalidArgument`` for a key that
    is not non-empty text.

    ``before_append`` is given each event before it is appended, and returns what is appended in its place, with the
    same event id. It must return equal events for equal ones, or a step that is done again conflicts with itself.
    ``agent_memory_log.secrets.redacted_event`` is one: it masks secrets.
    """

    def __init__(
        self,
        agent: str,
        run: str,
        meta: Mapping[str, JsonValue] | None,
        before_append: Callable[[Event], Event] | None,
    ) -> None:
        self.agent = agent
        self.run = run
        self._operations = Operations(agent, run, meta, before_append)

    @abstractmethod
    def _carry_out(self, steps: Steps[Any]) -> Any:  # noqa: ANN401  # with or without await: the type arguments say which
        """Carry out an operation in its turn."""

    @abstractmethod
    def _carry_out_with(self, response: object, provider: str | None, key: str | None, labels: Any) -> Any:  # noqa: ANN401  # as above
        """Read a response to its end, then record it."""

    @abstractmethod
    def _block(self, call: CallToMake) -> _Block:
        """The context manager of a call."""

    def user(
        self,
        message: str,
        *,
        structured: JsonValue = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record what the user said; see ``UserMessage``."""
        return self.record(UserMessage(message, structured), key=key, labels=labels)

    def assistant(
        self,
        message: str,
        *,
        structured: JsonValue = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record what the assistant said; what an SDK returned is better recorded with ``record_response``."""
        return self.record(AssistantMessage(message, structured), key=key, labels=labels)

    def system(
        self,
        message: str,
        *,
        structured: JsonValue = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record instructions given to the model as a message; those given beside the messages are a ``request``'s."""
        return self.record(SystemMessage(message, structured), key=key, labels=labels)

    def thinking(
        self,
        text: str = "",
        *,
        signature: str = "",
        redacted: bytes = b"",
        content_index: int = 0,
        final: bool = True,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record a thinking block of Claude's; see ``Thinking``."""
        thinking = Thinking(text=text, signature=signature, redacted=redacted, content_index=content_index, final=final)
        return self.record(thinking, key=key, labels=labels)

    def note(self, note: str, *, key: str | None = None, labels: Mapping[str, str] | None = None) -> _Stored:
        """Record a note the planner made for itself; no model is sent it."""
        return self.record(PlannerNote(note), key=key, labels=labels)

    def annotate(self, message: str, *, key: str | None = None, labels: Mapping[str, str] | None = None) -> _Stored:
        """Record a remark about the run; its metadata are the ``labels``."""
        return self.record(Annotation(message), key=key, labels=labels)

    def retry_hint(
        self, hint: RetryHint, *, key: str | None = None, labels: Mapping[str, str] | None = None
    ) -> _Stored:
        """Record a hint that belongs to no call being made; inside a call, ``call.retry`` is meant."""
        return self.record(hint, key=key, labels=labels)

    def record(self, payload: EventData, *, key: str | None = None, labels: Mapping[str, str] | None = None) -> _Stored:
        """Record any payload, a registered one of your own included."""
        stored: _Stored = self._carry_out(self._operations.record(payload, key, labels))
        return stored

    def request(
        self,
        provider: str,
        model: str,
        *,
        system: JsonValue = None,
        tools: JsonValue = None,
        parameters: Mapping[str, JsonValue] | None = None,
    ) -> _Changed:
        """Record what the model is about to be asked with, beside the conversation, unless the latest request is equal.

        ``system``, ``tools`` and ``parameters`` are the arguments of the provider's own call as they are sent; what an
        earlier request of the run had is not stored again. Returns None where nothing was recorded. Raises
        ``InvalidArgument`` naming what is unknown or not JSON.
        """
        changed: _Changed = self._carry_out(self._operations.request(provider, model, system, tools, parameters))
        return changed

    def record_response(
        self,
        response: object,
        *,
        provider: str | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Answered:
        """Record a model's answer so that ``transcript.build`` gives back exactly what must be sent back.

        ``response`` is what an SDK returned, as its own object or a plain map, or a stream of events (any iterable;
        with a ``RunRecorder`` an asynchronous one too), which is read to its end: an Anthropic ``Message``, an OpenAI
        Chat Completion with one choice, an OpenAI ``Response``, what Bedrock's Converse or ConverseStream returned.
        Whose it is, is seen by its shape unless ``provider`` names it.

        The answer is one append, whole or not at all. Its events have the labels ``provider``, ``model``,
        ``response_id`` and ``stop_reason``, in the provider's words; the first has ``usage`` too, as the provider's
        JSON. Of audio only the id is kept, which is what may be sent back. A model that answered with nothing is
        recorded as an ``Annotation``, as there is nothing to send back.

        With a ``key`` whose answer is there already, that one is handed back and ``response`` is not looked at; ask
        ``recorded_response`` first to save the model's call.

        Raises ``InvalidArgument`` for an unknown provider, ``DecodeError`` for what is no provider's answer and for a
        stream that was cut off.
        """
        answered: _Answered = self._carry_out_with(response, provider, key, labels)
        return answered

    def recorded_response(self, key: str) -> _Known:
        """The answer that ``record_response`` recorded with this ``key``, None when it is not there."""
        known: _Known = self._carry_out(self._operations.recorded_response(key))
        return known

    def tool_call(
        self,
        tool: str | Event,
        payload: str | Mapping[str, JsonValue] | None = None,
        *,
        tool_call_id: str | None = None,
        parent_tool_call_id: str | None = None,
        queue: str = "",
        expected_children_total: int = 0,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Block:
        """A block that makes a tool call: the call is recorded before it, what came of it after it.

        ``tool`` is the tool's name or the event of a call that the model asked for (of ``RecordedResponse.tool_calls``
        or ``Reader.open_tool_calls``), which then is answered and not recorded again; so is one named by its
        ``tool_call_id``, as long as it is open. ``payload``: the arguments, as JSON text to be kept byte for byte or as
        a map. Without a ``tool_call_id`` the call gets a new one.

        The block's value is a ``RecordedCall``: its ``result``, ``fail`` and ``retry`` say what came of the tool.
        ``duration_ns`` is what the block took. An exception in the block is recorded, its message as ``error_message``
        and its class as the label ``error_type``, and passes through; a cancellation as an error that begins with
        ``interrupted``. A block that says nothing is recorded as a result without content.

        A call made inside the block of another one of this recorder is its child, in the same task, in tasks started
        there, and in threads that run in a copy of its context, as those of ``asyncio.to_thread`` do; elsewhere give
        the ``parent_tool_call_id``.

        With a ``key`` whose result is there already, ``RecordedCall.recorded`` is that result: do not run the tool.

            async with recorder.tool_call("orders.find", {"id": 7}, key="find-7") as call:
                if call.recorded is None:
                    call.result(await find_order(7))

        A call that was recorded without a result, for the process died, is made again. The ``key`` and arguments must
        then be the same, and a parent without a key must have an id of its own.
        """
        if isinstance(tool, Event):
            return self._block(CallToMake(tool, recorded_call(tool), None, None))
        if parent_tool_call_id is None:
            outer = cast("RecordedCall | None", Enclosing.call_of(self))
            parent_tool_call_id = "" if outer is None else outer.tool_call_id
        data = ToolCall(
            tool_call_id or "",
            tool,
            parent_tool_call_id=parent_tool_call_id,
            payload_json=payload_text(payload),
            queue=queue,
            expected_children_total=expected_children_total,
        )
        return self._block(CallToMake(None, data, key, labels))


def note_unrecorded(error: BaseException, failure: BaseException) -> None:
    """The exception that is on its way stays what it is; that it could not be recorded is said beside it."""
    error.add_note(f"this could not be recorded: {failure}")
