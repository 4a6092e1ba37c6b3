"""The base class of both recorders. Each method is written once; the subclass runs its steps with or without await."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.context_payloads import ContextLike, injected_context
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
from agent_memory_log.events.python_values import EncHook
from agent_memory_log.media import Media
from agent_memory_log.recording.calls import Enclosing, RecordedCall, payload_text
from agent_memory_log.recording.operations import CallToMake, Operations, recorded_call
from agent_memory_log.steps import Steps
from agent_memory_log.transcript.conversion.crossing import Content, text_and_structured

_Stored = TypeVar("_Stored")
_OptionalEvent = TypeVar("_OptionalEvent")
_Answered = TypeVar("_Answered")
_OptionalAnswer = TypeVar("_OptionalAnswer")
_Block = TypeVar("_Block")


class Recorder(ABC, Generic[_Stored, _OptionalEvent, _Answered, _OptionalAnswer, _Block]):
    """The methods of ``RunRecorder`` and ``SyncRunRecorder``.

    Each method that records an event returns the stored event, after the store has acknowledged it. Events are appended
    in the order of the method calls, even if different tasks or threads make the calls.

    A ``key`` is any text that names a step of the run. If the same step is recorded again, after a crash or in a retry,
    nothing is added. The step must have the same content again: a different message with the same key raises
    ``EventConflict``. For a tool call or a model's answer, the recorder returns the stored result or answer. Steps of
    different kinds may share a key.

    ``labels`` is a map from text to text. All methods raise the same errors as ``append_events``, and
    ``InvalidArgument`` if a key is empty or not text.

    ``before_append`` receives each event before it is appended, and returns the event to append instead. It must keep
    the event id. It must return equal events for equal arguments, or a repeated step conflicts with its first event.
    For example, ``agent_memory_log.secrets.redacted_event`` masks secrets.

    ``enc_hook`` receives each value of a type that ``RecordedCall.result`` does not know, and returns a value that it
    knows, for example a list for an array of numbers. It raises any exception for a value that it does not know either.
    """

    def __init__(
        self,
        agent: str,
        run: str,
        meta: Mapping[str, JsonValue] | None,
        before_append: Callable[[Event], Event] | None,
        enc_hook: EncHook | None,
    ) -> None:
        self.agent = agent
        self.run = run
        self._enc_hook = enc_hook
        self._operations = Operations(agent, run, meta, before_append, enc_hook)

    @abstractmethod
    def _carry_out(self, steps: Steps[Any]) -> Any:  # noqa: ANN401  # a value or a coroutine, by the type arguments
        """Run the steps of an operation when its turn begins."""

    @abstractmethod
    def _carry_out_with(self, response: object, provider: str | None, key: str | None, labels: Any) -> Any:  # noqa: ANN401  # as above
        """Read a response to its end, then record it."""

    @abstractmethod
    def _block(self, call: CallToMake) -> _Block:
        """Return the context manager of a call."""

    def user(
        self,
        message: Content,
        *,
        structured: JsonValue = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record a message of the user; see ``UserMessage``.

        ``message`` may be an ``Image`` or other media of ``agent_memory_log.media``, or a list of texts and media. They
        are stored in ``structured``, so ``structured`` cannot be set too. A message with media that is larger than
        ``MAX_CONTENT_BYTES`` raises ``InvalidEvent``.
        """
        if isinstance(message, (Media, list, tuple)):
            if structured is not None:
                raise InvalidArgument("structured cannot be set for a message of several parts, which is stored there")
            return self.record(UserMessage(*text_and_structured(message, "message")), key=key, labels=labels)
        return self.record(UserMessage(cast("str", message), structured), key=key, labels=labels)

    def assistant(
        self,
        message: str,
        *,
        structured: JsonValue = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record a message of the assistant. For an answer from a provider's SDK, use ``record_response``."""
        return self.record(AssistantMessage(message, structured), key=key, labels=labels)

    def system(
        self,
        message: str,
        *,
        structured: JsonValue = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Stored:
        """Record a system message in the conversation. Use ``request`` for a separate system prompt."""
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
        """Record a thinking block of a Claude model; see ``Thinking``."""
        thinking = Thinking(text=text, signature=signature, redacted=redacted, content_index=content_index, final=final)
        return self.record(thinking, key=key, labels=labels)

    def inject(
        self,
        context: str | ContextLike,
        *,
        source: str = "",
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _OptionalEvent:
        """Record background that the next model request contains; see ``InjectedContext``.

            recorder.inject(me.context("Where is my order?"), source="pre_task")

        Args:
            context: The background: a ``MemoryContext``, another object with its fields, or a text.
            source: The reason for the context, for example ``pre_task`` or ``post_compaction``.
            key: The name of the step.
            labels: The labels of the event.

        Returns:
            The stored event, or None if the text is empty and nothing was recorded.
        """
        payload = injected_context(context, source)
        stored: _OptionalEvent = self._carry_out(self._operations.inject(payload, key, labels))
        return stored

    def note(self, note: str, *, key: str | None = None, labels: Mapping[str, str] | None = None) -> _Stored:
        """Record a planner's private note. It is never sent to a model."""
        return self.record(PlannerNote(note), key=key, labels=labels)

    def annotate(self, message: str, *, key: str | None = None, labels: Mapping[str, str] | None = None) -> _Stored:
        """Record a remark about the run; use ``labels`` for its metadata."""
        return self.record(Annotation(message), key=key, labels=labels)

    def retry_hint(
        self, hint: RetryHint, *, key: str | None = None, labels: Mapping[str, str] | None = None
    ) -> _Stored:
        """Record a hint that belongs to no running call. Inside a tool call, use ``call.retry``."""
        return self.record(hint, key=key, labels=labels)

    def record(self, payload: EventData, *, key: str | None = None, labels: Mapping[str, str] | None = None) -> _Stored:
        """Record any payload, including a payload type that you registered."""
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
    ) -> _OptionalEvent:
        """Record the settings of the next model call, unless they equal the latest recorded request.

        A system prompt or tool list that an earlier request of the run has is not stored twice.

        Args:
            provider: The name of the provider or vendor, or the vendor's base URL.
            model: The name of the model.
            system: The system prompt, as it is sent to the provider.
            tools: The tool definitions, as they are sent to the provider.
            parameters: The other arguments of the provider's call.

        Returns:
            The stored event, or None if nothing was recorded.

        Raises:
            InvalidArgument: The provider is unknown, or an argument is not JSON. The message names the argument.
        """
        changed: _OptionalEvent = self._carry_out(self._operations.request(provider, model, system, tools, parameters))
        return changed

    def record_response(
        self,
        response: object,
        *,
        provider: str | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Answered:
        """Record a model's answer so that ``transcript.build`` can return it exactly for the next request.

        The events of the answer are appended together or not at all. They have the labels ``provider``, ``model``,
        ``response_id`` and ``stop_reason``, with the provider's values. The first event also has the label ``usage``,
        the provider's JSON. The label ``vendor`` is ``unknown`` if OpenAI has no such model and no vendor was named.
        The label ``container`` names the container in which Anthropic ran code; ``transcript.request`` continues in it.
        Audio data is not stored; the audio's id is, because only the id may be sent back, and so is its transcript. An
        empty answer is stored as an ``Annotation``.

        The answer of OpenAI's ``responses.compact`` is stored as one ``Compaction``, which replaces all events before
        it in later transcripts.

        If a stream ends too early or with an error, the answer is *partial*: ``RecordedResponse.partial`` says why. It
        is stored as one ``AssistantMessage`` with the text that came, and has the labels ``partial`` and ``error``. Its
        calls are not stored as calls, so that nobody makes them. ``build`` leaves it out unless ``partial="keep"``. It
        does not count as the answer for ``key``. If the stream raises, the answer is stored and the exception
        continues.

        If the store already has an answer for ``key``, that answer is returned and ``response`` is not recorded. Call
        ``recorded_response`` first to avoid a second model call.

        Args:
            response: The answer of a provider's SDK, as its object or as a plain map: an Anthropic ``Message``, an
                OpenAI Chat Completion with one choice, an OpenAI ``Response``, a Converse output of Bedrock, or a
                ``GenerateContentResponse`` of Gemini with one candidate. It can also be an iterable of stream events,
                which is read to its end. A ``RunRecorder`` accepts an asynchronous iterable too.
            provider: The name of the provider or vendor, or the vendor's base URL. By default, it is detected from the
                shape of the answer. A vendor is the vendor of the latest recorded request.
            key: The name of the step.
            labels: More labels for each event of the answer.

        Raises:
            InvalidArgument: The provider is unknown.
            DecodeError: The response is not an answer of a known provider, its stream ended before it had content, or
                the model still works on it in the background.
        """
        answered: _Answered = self._carry_out_with(response, provider, key, labels)
        return answered

    def recorded_response(self, key: str) -> _OptionalAnswer:
        """Return the answer that ``record_response`` recorded with this ``key``, or None."""
        recorded: _OptionalAnswer = self._carry_out(self._operations.recorded_response(key))
        return recorded

    def tool_call(
        self,
        tool: str | Event,
        payload: object = None,
        *,
        tool_call_id: str | None = None,
        parent_tool_call_id: str | None = None,
        queue: str = "",
        expected_children_total: int = 0,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> _Block:
        """Return a context manager that records a tool call when its block begins, and the result when it ends.

        The value of the ``with`` statement is a ``RecordedCall``. Its methods ``result``, ``fail`` and ``retry`` set
        the outcome. If the block sets no outcome, the result has no content. The result's ``duration_ns`` is the
        running time of the block.

        If the block raises, the recorder stores the exception's message as ``error_message`` and its class as the label
        ``error_type``. The exception then continues. For a cancellation, the message begins with ``interrupted``.

        An error of this library, such as ``InvalidEvent``, ``EventTooLarge`` or ``StoreUnavailable``, is never recorded
        as the failure of the tool. No result is recorded, the call stays open, and the error continues. Make the call
        again as after a crash, or ``repair`` tells the model that it was interrupted. To answer the model after such an
        error, catch it inside the block and call ``fail``. Only ``ToolFailed`` is recorded, because it repeats the
        failure of a tool.

        A call inside the block of another call of this recorder becomes its child. This works in the same task, in
        tasks that the block starts, and in threads with a copy of its context, such as those of ``asyncio.to_thread``.
        For other threads, pass ``parent_tool_call_id``.

        If the store already has the result for ``key``, it is in ``RecordedCall.recorded``; do not run the tool again:

            async with recorder.tool_call("orders.find", {"id": 7}, key="find-7") as call:
                if call.recorded is None:
                    call.result(await find_order(7))

        If a crash left a call without a result, make the call again with the same ``key`` and arguments. If its parent
        call has no key, pass the parent the same ``tool_call_id`` again.

        Args:
            tool: The tool's name, or the event of a call that the model requested (from ``RecordedResponse.tool_calls``
                or ``Reader.open_tool_calls``). A call that is already stored is not recorded again.
            payload: The arguments, as JSON text or as a map or another value that ``RecordedCall.result`` accepts.
                Text is stored byte for byte.
            tool_call_id: The id of the call. If the run has an open call with this id, the block answers that call. By
                default, the call gets a new id.
            parent_tool_call_id: The id of the parent call. By default, it is the enclosing call of this recorder.
            queue: See ``ToolCall``.
            expected_children_total: See ``ToolCall``.
            key: The name of the step.
            labels: The labels of the call's event.
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
            payload_json=payload_text(payload, self._enc_hook),
            queue=queue,
            expected_children_total=expected_children_total,
        )
        return self._block(CallToMake(None, data, key, labels))


def note_unrecorded(error: BaseException, failure: BaseException) -> None:
    """Add a note to ``error`` that it was not recorded, because the recording raised ``failure``."""
    error.add_note(f"this exception could not be recorded: {failure}")
