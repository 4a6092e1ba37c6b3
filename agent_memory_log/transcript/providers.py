"""The public functions that work with every provider: parse, build, validate, repair, request and window.

To add a provider, write a package like ``anthropic`` with its ``Provider``. Add it to ``_PROVIDERS`` here, and add its
name to ``PROVIDERS`` in ``names``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from msgspec.structs import replace

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import SystemMessage
from agent_memory_log.snapshot import Snapshot, require_snapshot
from agent_memory_log.transcript.anthropic import ANTHROPIC
from agent_memory_log.transcript.bedrock import BEDROCK
from agent_memory_log.transcript.findings import Finding, WireMessage, path_order
from agent_memory_log.transcript.gemini import GEMINI
from agent_memory_log.transcript.json_types import is_list, own_map
from agent_memory_log.transcript.log_facts import Facts, Recorded
from agent_memory_log.transcript.openai_chat import CHAT, VENDOR_CHATS
from agent_memory_log.transcript.openai_responses import RESPONSES
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import (
    RecordedRequest,
    fingerprint,
    latest_request,
    own_request,
    recorded_model,
    recorded_request,
    stored_up_to,
    text_of_leading,
)
from agent_memory_log.transcript.transcripts import Repair, Sending, Transcript, Window
from agent_memory_log.transcript.validity.repairing import Draft
from agent_memory_log.transcript.vendors.profiles import VENDORS, is_openai_model, provider_name
from agent_memory_log.transcript.windows import cut_transcript, find_seams

_OWN = {package.name: package for package in (ANTHROPIC, BEDROCK, GEMINI, CHAT, RESPONSES)}
_PROVIDERS: dict[str, Provider] = _OWN | {package.name: package for package in VENDOR_CHATS}


Partial = Literal["leave_out", "keep"]
"""The treatment of partial answers; see ``build``."""


def provider_names() -> tuple[str, ...]:
    """Return the names of the APIs that ``parse`` and ``build`` take. They take the names of vendors too."""
    return tuple(_OWN)


def vendor_names() -> tuple[str, ...]:
    """Return the names of the vendors that speak the shape of ``openai-chat``."""
    return tuple(VENDORS)


def parse(messages: Iterable[Mapping[str, JsonValue]], provider: str, *, source: str = "") -> list[Event]:
    """Return the events of a provider's ``messages``, in order, ready to be appended.

    Nothing is lost: ``build`` returns equal JSON for any messages. Content without a payload field is stored in the
    payload's ``structured``. A message that fits no payload becomes an ``UnknownPayload``. Each event has the message's
    role as a label.

    Event ids depend on ``provider``, ``source`` and the position in ``messages``. A conversation that is parsed again
    with the same ``source`` gets the same ids, even if it has grown, so an append stores only new events: pass the
    whole conversation each time. Messages have no times. Timestamps begin at the current time and increase by a
    microsecond.

    Without ``source``, every call gives new ids, so messages may be parsed one by one, even equal ones. An append of a
    conversation that is parsed again stores it again.

        events = parse([{"role": "user", "content": "Where is my order?"}], "openai-chat", source="run-42")

    Args:
        messages: The provider's messages, or the items of ``input`` for OpenAI Responses.
        provider: One of ``provider_names()``.
        source: A name for the conversation, which becomes part of the event ids. The default is ``""``: new ids.

    Raises:
        InvalidArgument: The provider is unknown.
        DecodeError: A message is not a map or not JSON. The error contains the message's index.
    """
    parser = find_provider(provider).parser(source)
    return [event for message in _list_of(messages) for event in parser.add(message)]


def build(
    snapshot: Snapshot,
    provider: str,
    *,
    max_result_bytes: int | None = None,
    partial: Partial = "leave_out",
) -> Transcript:
    """Return the provider's messages of a run, in append order. The new list shares nothing with the snapshot.

    For a run that ``parse`` created, the result is equal to the original JSON. For any other run, the result holds the
    conversation as the model received it or would have received it: system, user and assistant messages, thinking that
    the provider accepts, tool calls, and tool results. A tool call is part of the assistant message before it. A result
    holds the error message, the retry hint's message and the value, on lines of their own.

    Notes, annotations, redacted events, and calls inside another call of this log are left out. ``server_data`` never
    appears. A call id changes if the provider does not allow it, or allows it only once. Tool names are encoded as in
    ``encode_name``. The transcript's ``losses`` list the lost content.

        messages = build(await store.load_run("support-agent", "run-42"), "openai-chat")

    Args:
        snapshot: The run.
        provider: One of ``provider_names()``.
        max_result_bytes: The largest value of a result, in UTF-8 bytes. A larger value becomes the JSON text
            ``{"omitted": true, "reason": "size_limit", "note", "preview", "bounds"}``. Error messages and hints are
            never cut. With None, the default, results with ``structured`` stay whole, because a provider sent or
            received them, and the limit of all others is 65,536.
        partial: What happens to answers whose stream was cut off or failed. ``"leave_out"``, the default, leaves them
            out. ``"keep"`` keeps their text as messages of the assistant, without their thinking and calls.

    Raises:
        InvalidArgument: The provider is unknown, the limit is below 1, or ``partial`` has another value.
    """
    require_snapshot(snapshot)
    package = find_provider(provider)
    provider = package.name
    if partial not in ("leave_out", "keep"):
        raise InvalidArgument(f"partial must be leave_out or keep, got {describe(partial)}")
    if max_result_bytes is not None and (not isinstance(max_result_bytes, int) or max_result_bytes < 1):
        raise InvalidArgument(f"max_result_bytes must be an integer from 1, got {describe(max_result_bytes)}")
    return Transcript.build(snapshot, provider, package.builder, max_result_bytes, keeps_partial=partial == "keep")


def validate(
    transcript: Iterable[Mapping[str, JsonValue]], provider: str, *, request: Mapping[str, JsonValue] | None = None
) -> list[Finding]:
    """Return the provider's rules that a transcript breaks, in message order. A valid transcript breaks no rule.

    The findings of a ``Transcript`` contain the event's seq. For a ``Transcript``, the function also checks facts from
    the log: whether reasoning equals the recorded reasoning, and whether a result has both an error and a value.

    Args:
        transcript: A ``Transcript`` or a plain list of messages.
        provider: One of ``provider_names()``.
        request: The other arguments of the provider call, as from ``request(...)``. The rules read the system prompt,
            tools and thinking settings. The default is the arguments that the transcript was repaired or cut for. For
            any other transcript, it is the arguments of the latest recorded request to this provider.

    Raises:
        InvalidArgument: The provider is unknown, or the ``Transcript`` is for another provider.
    """
    package = find_provider(provider)
    messages = _checked(transcript, package.name)
    facts = _facts(package, messages, request)
    findings = package.validate(messages, facts)
    for path in facts.recorded.conflicts if facts.recorded is not None else ():
        findings.append(Finding("error_and_value", "the result has both an error and a value", path))
    if isinstance(messages, Transcript):
        findings = [replace(finding, seq=messages.seq_at(finding.path)) for finding in findings]
    return sorted(findings, key=path_order)


def repair(
    transcript: Iterable[Mapping[str, JsonValue]], provider: str, *, request: Mapping[str, JsonValue] | None = None
) -> Repair:
    """Return a valid copy of a transcript, and the changes. The original transcript does not change.

    - An unanswered call gets an error result that says that the call was interrupted.
    - A result in the wrong position moves to its call. A result without a call is dropped.
    - Duplicates are dropped.
    - Reasoning is never created or edited. Signed reasoning is dropped if it follows a change. It is also dropped if it
      was recorded with a system prompt or tools other than those in ``request``.

    A second repair changes nothing.

    Args:
        transcript: A ``Transcript`` or a plain list of messages.
        provider: One of ``provider_names()``.
        request: The other arguments of the provider call, as in ``validate``.

    Raises:
        InvalidArgument: The provider is unknown, or the ``Transcript`` is for another provider.
        DecodeError: A message is not JSON.
    """
    package = find_provider(provider)
    provider = package.name
    messages = _checked(transcript, provider)
    origin = messages if isinstance(messages, Transcript) else Transcript(provider=provider)
    facts = _facts(package, messages, request)
    if request is None:
        facts = replace(facts, request=_sending(package, origin).request)
    pristine = None
    if origin.snapshot is not None:
        pristine = Transcript.build(
            origin.snapshot, provider, package.builder, None, keeps_partial=origin.keeps_partial
        )
    draft = Draft(messages, origins=origin.origins, pristine=pristine)
    for path in facts.recorded.conflicts if facts.recorded is not None else ():
        draft.note("kept_value", "the result has both an error and a value; both are sent", path)
    package.repair(draft, facts)
    repaired_messages = [entry.message for entry in draft.entries]
    other = package.sendable(repaired_messages, facts.request)
    repaired = Transcript(
        repaired_messages,
        provider=provider,
        origins=draft.origins(),
        recorded=draft.recorded(origin.recorded),
        snapshot=origin.snapshot,
        losses=tuple(origin.losses),
        sending=Sending(other, facts.sent),
    )
    return Repair(repaired, draft.in_order(), dict(other))


def request(
    snapshot: Snapshot,
    provider: str,
    *,
    max_result_bytes: int | None = None,
    partial: Partial = "leave_out",
) -> dict[str, Any]:
    """Return every argument of the provider's call that the log can supply.

    The transcript is the value of ``messages``, of ``input`` for OpenAI Responses, or of ``contents`` for Gemini. The
    other arguments come from the latest ``ModelRequest``. If that request was made to this provider, all its arguments
    are used. Otherwise only the system prompt and the tools are used, converted to this provider's format.

    If the latest request continues an answer or a conversation that OpenAI stores (``previous_response_id``,
    ``conversation``), and the run holds that answer, only the messages after it are returned.

        client.messages.create(max_tokens=4096, **request(snapshot, "anthropic"))

    Args:
        snapshot: The run.
        provider: One of ``provider_names()``.
        max_result_bytes: The largest value of a result, in bytes, as in ``build``.
        partial: What happens to partial answers, as in ``build``.

    Raises:
        InvalidArgument: The provider is unknown, the limit is below 1, or ``partial`` has another value.
    """
    package = find_provider(provider)
    provider = package.name
    transcript = build(snapshot, provider, max_result_bytes=max_result_bytes, partial=partial)
    recorded = recorded_request(snapshot, provider, transcript.leading)
    stored = stored_up_to(snapshot, provider, recorded.parameters or {})
    if stored:
        transcript = transcript.after(stored)
    return {package.messages_key: transcript, **package.arguments(recorded, transcript)}


def window(
    source: Snapshot | Iterable[Mapping[str, JsonValue]],
    provider: str,
    *,
    max_events: int | None = None,
    max_tokens: int | None = None,
    since_turn: int | None = None,
    count_tokens: Callable[[WireMessage], int] | None = None,
) -> Window:
    """Return the newest part of a run or transcript that is within the limits. Every cut leaves a valid transcript.

    A turn begins with a message of the user. The function removes whole turns, oldest first. Of the oldest turn
    that stays, it may remove whole rounds, oldest first: model output and its results. It never removes the opening or
    the last round of the newest turn, so the result may exceed the limits; see ``Window.fits``. Instructions at the
    beginning of the messages stay. Signed reasoning after a removed message is removed too, because providers check the
    messages that reasoning was signed with.

    Args:
        source: A run's snapshot, a ``Transcript``, or a plain list of messages.
        provider: One of ``provider_names()``.
        max_events: The largest number of events that stay. In a plain list, parts of messages count as events.
        max_tokens: The largest number of tokens that stay.
        since_turn: The number of the first turn that may stay, from 1. Negative numbers count from the end: ``-1`` is
            the newest turn.
        count_tokens: Returns the number of tokens in a message. The default is about a quarter of the message's bytes.

    Raises:
        InvalidArgument: The provider is unknown, or a limit is out of range.
        DecodeError: A message of a plain list is not a map or not JSON.
    """
    package = find_provider(provider)
    provider = package.name
    for name, value in (("max_events", max_events), ("max_tokens", max_tokens)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidArgument(f"{name} must be an integer from 1, got {describe(value)}")
    if since_turn is not None and (not isinstance(since_turn, int) or since_turn == 0):
        raise InvalidArgument(f"since_turn must be an integer other than 0, got {describe(since_turn)}")
    full = build(source, provider) if isinstance(source, Snapshot) else _checked(source, provider)
    transcript = (
        full
        if isinstance(full, Transcript)
        else Transcript((own_map(item, f"messages[{index}]") for index, item in enumerate(full)), provider=provider)
    )
    return cut_transcript(
        transcript,
        find_seams(transcript, package.side_of, joins_model=package.joins_model),
        package.without_reasoning,
        max_events,
        max_tokens,
        since_turn,
        count_tokens,
        _sending(package, transcript),
        package.sendable,
    )


def find_provider(provider: str) -> Provider:
    """Return the provider of a name or base URL. Raises ``InvalidArgument``, with the known names, if it is unknown."""
    package = None
    if isinstance(provider, str):
        package = _PROVIDERS.get(provider) or _PROVIDERS.get(provider_name(provider))
    if package is None:
        raise InvalidArgument(f"unknown provider {describe(provider)}; choose one of {', '.join(_PROVIDERS)}")
    return package


def _checked(transcript: object, provider: str) -> Sequence[object]:
    if isinstance(transcript, Transcript):
        if transcript.provider != provider:
            raise InvalidArgument(f"the transcript is for {transcript.provider}, not for {provider}")
        return transcript
    messages = _list_of(transcript)
    return messages if is_list(messages) else list(messages)


def _facts(package: Provider, messages: Sequence[object], request: Mapping[str, JsonValue] | None) -> Facts:
    """Return the facts from the log, with the limits of the vendor that gets the transcript."""
    facts = _log_facts(package, messages, request)
    if package.vendor_rules is None:
        return facts
    if package.name in VENDORS:
        return replace(facts, rules=package.vendor_rules)
    model = facts.request.get("model")
    if model is None and isinstance(messages, Transcript) and messages.snapshot is not None:
        model = recorded_model(messages.snapshot, package.name)
    if not isinstance(model, str) or not model:
        return facts
    is_own = is_openai_model(model)
    return replace(facts, rules=None if is_own else package.vendor_rules, is_own_model=is_own)


def _log_facts(package: Provider, messages: Sequence[object], request: Mapping[str, JsonValue] | None) -> Facts:
    if request is not None and package.messages_key in request:  # request() returns the transcript among the arguments
        request = {key: value for key, value in request.items() if key != package.messages_key}
    if not isinstance(messages, Transcript) or messages.recorded is None:
        return Facts(request=request or {})
    recorded = messages.recorded
    leading = _leading_fingerprint(package, recorded.leading)
    if request is not None:
        sent = fingerprint(request.get(package.system_key)), fingerprint(request.get(package.tools_key))
        return Facts(recorded, request, recorded.edited_from, sent, leading)
    if messages.sending is not None:
        return Facts(recorded, messages.sending.request, recorded.edited_from, messages.sending.fingerprints, leading)
    latest = None if messages.snapshot is None else latest_request(messages.snapshot, messages.provider)
    arguments = {} if latest is None else {package.model_key: latest.model, **(latest.parameters or {})}
    return Facts(recorded, arguments, recorded.edited_from, _latest_fingerprints(recorded, leading), leading)


def _sending(package: Provider, transcript: Transcript) -> Sending:
    """Return the arguments to send: those of the repair or window, or those of the provider's latest request."""
    if transcript.sending is not None:
        return transcript.sending
    snapshot, recorded = transcript.snapshot, transcript.recorded
    if snapshot is None or recorded is None:
        return Sending({}, None)
    latest = own_request(snapshot, transcript.provider, transcript.leading)
    # A system prompt inside the transcript is already part of it, or was removed from it.
    request = {} if latest is None else package.arguments(latest, Transcript(provider=transcript.provider))
    return Sending(request, _latest_fingerprints(recorded, _leading_fingerprint(package, recorded.leading)))


def _latest_fingerprints(recorded: Recorded, leading: str) -> tuple[str, str] | None:
    """Return the fingerprints of the latest request to the transcript's provider, if any."""
    newest = next((fingerprints for _, fingerprints in reversed(recorded.requests) if fingerprints is not None), None)
    return None if newest is None else (newest[0] or leading, newest[1])


def _leading_fingerprint(package: Provider, leading: Sequence[SystemMessage]) -> str:
    """Return the fingerprint of the system prompt that ``request`` builds from the leading instructions."""
    if not leading:
        return ""
    prompt = RecordedRequest(own=False, system_text=text_of_leading(leading))
    return fingerprint(package.arguments(prompt, Transcript(provider="")).get(package.system_key))


def _list_of(messages: object) -> Iterable[object]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise DecodeError(f"messages must be a list of maps, got {describe(cast('Any', messages))}")
    return cast("Iterable[object]", messages)
