"""The providers whose transcripts are read, built, checked and repaired, and the functions that take any of them.

To add one: a package like ``anthropic`` with its ``Provider``, which goes into ``_PROVIDERS``, and its name in
``PROVIDERS`` of ``names``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import SystemMessage
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.anthropic import ANTHROPIC
from agent_memory_log.transcript.bedrock import BEDROCK
from agent_memory_log.transcript.findings import Finding, WireMessage, path_order
from agent_memory_log.transcript.json_types import is_list
from agent_memory_log.transcript.log_facts import Facts, Recorded
from agent_memory_log.transcript.openai_chat import CHAT
from agent_memory_log.transcript.openai_responses import RESPONSES
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import (
    RecordedRequest,
    fingerprint,
    own_request,
    recorded_parameters,
    recorded_request,
    text_of_leading,
)
from agent_memory_log.transcript.transcripts import Repair, Sending, Transcript, Window
from agent_memory_log.transcript.validity.repairing import Draft
from agent_memory_log.transcript.windows import cut_transcript, find_seams

_PROVIDERS: dict[str, Provider] = {package.name: package for package in (ANTHROPIC, BEDROCK, CHAT, RESPONSES)}


def provider_names() -> tuple[str, ...]:
    """The names ``parse`` and ``build`` take."""
    return tuple(_PROVIDERS)


def parse(messages: Iterable[Mapping[str, JsonValue]], provider: str, *, source: str = "") -> list[Event]:
    """The events of a provider's ``messages``, in order, ready to be appended.

    Nothing is lost: ``build`` gives equal JSON back, whatever the messages hold. What a payload has no field for is
    kept in its ``structured``, a message no payload fits in an ``UnknownPayload``; each event has the message's role as
    a label.

    Event ids stand for ``provider``, ``source`` and the place in ``messages``, never for content: parsing the same
    conversation again, or once it has grown, with the same ``source`` gives the same ids, so that appending stores only
    what is new. Timestamps count up from now by a microsecond, as messages have none.

    Raises ``InvalidArgument`` for an unknown provider, ``DecodeError`` naming the index of a message that is not a map
    or not JSON.

        events = parse([{"role": "user", "content": "Where is my order?"}], "openai-chat", source="run-42")
    """
    parser = find_provider(provider).parser(source)
    return [event for message in _list_of(messages) for event in parser.add(message)]


def build(snapshot: Snapshot, provider: str, *, max_result_bytes: int | None = None) -> Transcript:
    """The provider's ``messages`` of a run, in append order; a new list that shares nothing with the snapshot.

    Of a run that ``parse`` made, equal JSON. Of any other run, what the model saw or would have seen: system, user and
    assistant messages, thinking that the provider can be sent, tool calls joined to the assistant message before them,
    tool results (the error message where there is no result). Notes, annotations, redacted events and calls made inside
    another call of this log are left out; ``server_data`` never appears. A call id that the provider does not allow, or
    allows once only, is another in the transcript; tool names are those of ``encode_name``. What is lost of the run is
    named in the transcript's ``losses``.

    A result of more than ``max_result_bytes`` (None: any size) becomes the JSON text
    ``{"omitted": true, "reason": "size_limit", "preview", "bounds"}``.

    Raises ``InvalidArgument`` for an unknown provider or a limit below 1.

        messages = build(await store.load_run("support-agent", "run-42"), "openai-chat")
    """
    package = find_provider(provider)
    if max_result_bytes is not None and (not isinstance(max_result_bytes, int) or max_result_bytes < 1):
        raise InvalidArgument(f"max_result_bytes must be an integer from 1, found {describe(max_result_bytes)}")
    return Transcript.build(snapshot, provider, package.builder, max_result_bytes)


def validate(
    transcript: Iterable[Mapping[str, JsonValue]], provider: str, *, request: Mapping[str, JsonValue] | None = None
) -> list[Finding]:
    """What a provider would refuse in a transcript, or take amiss, in the order of the transcript; empty: it is valid.

    Of a ``Transcript``, findings name the event's seq, and what only the log can tell is checked too: whether reasoning
    is as it was recorded, and results have an error or a value. ``request`` is the other arguments the transcript will
    be sent with, as in ``request(...)``; what matters is looked at: system prompt, tools, thinking. Without it,
    those are meant that it was repaired or cut for, or else that were recorded last for this provider.

    Raises ``InvalidArgument`` for an unknown provider, and for a ``Transcript`` of another one.
    """
    package = find_provider(provider)
    messages = _checked(transcript, provider)
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
    """A valid copy of a transcript, and what was changed; the transcript given stays as it is.

    An unanswered call is answered with an error that says it was interrupted, a result moves to its call or goes, and
    duplicates collapse. Reasoning is neither invented nor altered: what is signed and stands after a change, or was
    recorded with another system prompt or other tools than those in ``request``, goes. Repairing again changes nothing.
    ``request`` is as in ``validate``.

    Raises ``InvalidArgument`` as ``validate`` does, and ``DecodeError`` for a message that is not JSON.
    """
    package = find_provider(provider)
    messages = _checked(transcript, provider)
    known = messages if isinstance(messages, Transcript) else Transcript(provider=provider)
    facts = _facts(package, messages, request)
    if request is None:
        facts = replace(facts, request=_sending(package, known).request)
    pristine = None if known.snapshot is None else Transcript.build(known.snapshot, provider, package.builder, None)
    draft = Draft(messages, origins=known.origins, pristine=pristine)
    for path in facts.recorded.conflicts if facts.recorded is not None else ():
        draft.note("kept_value", "of a result with both an error and a value, the value is sent", path)
    package.repair(draft, facts)
    repaired_messages = [entry.message for entry in draft.entries]
    other = package.sendable(repaired_messages, facts.request)
    repaired = Transcript(
        repaired_messages,
        provider=provider,
        origins=draft.origins(),
        recorded=draft.recorded(known.recorded),
        snapshot=known.snapshot,
        losses=tuple(known.losses),
        sending=Sending(other, facts.sent),
    )
    return Repair(repaired, draft.in_order(), dict(other))


def request(snapshot: Snapshot, provider: str, *, max_result_bytes: int | None = None) -> dict[str, Any]:
    """Every argument of the provider's call that the log can supply; the transcript under ``messages`` or ``input``.

    The other arguments are those of the latest ``ModelRequest``: all of them if it was made to this provider, system
    prompt and tools in this provider's form otherwise. Raises as ``build`` does.

        client.messages.create(max_tokens=4096, **request(snapshot, "anthropic"))
    """
    package = find_provider(provider)
    transcript = build(snapshot, provider, max_result_bytes=max_result_bytes)
    recorded = recorded_request(snapshot, provider, transcript.leading)
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
    """The newest part of a run or transcript that is within the limits, cut only where what is left stays valid.

    - ``max_events``: how many events (parts of messages, in a plain list) may stay; ``max_tokens``: how many tokens, as
      ``count_tokens`` counts them in a message (by default about a quarter of its bytes); ``since_turn``: the number of
      the first turn that may stay, from 1, or from the end where it is negative: ``-1`` is the newest.
    - A turn begins where the user says something. Whole turns go, oldest first; of the newest one, if it alone is too
      long, whole rounds (what the assistant says, and the results it gets), but never its opening or its last round.
    - Instructions at the beginning of the messages stay. Signed reasoning goes where anything before it did: providers
      check what it was signed with.

    Raises ``InvalidArgument`` for an unknown provider and for limits that are none.
    """
    package = find_provider(provider)
    for name, value in (("max_events", max_events), ("max_tokens", max_tokens)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidArgument(f"{name} must be an integer from 1, found {describe(value)}")
    if since_turn is not None and (not isinstance(since_turn, int) or since_turn == 0):
        raise InvalidArgument(f"since_turn must be an integer other than 0, found {describe(since_turn)}")
    whole = build(source, provider) if isinstance(source, Snapshot) else _checked(source, provider)
    known = whole if isinstance(whole, Transcript) else Transcript(cast("list[WireMessage]", whole), provider=provider)
    return cut_transcript(
        known,
        find_seams(known, package.side_of, joins_model=package.joins_model),
        package.without_reasoning,
        max_events,
        max_tokens,
        since_turn,
        count_tokens,
        _sending(package, known),
        package.sendable,
    )


def find_provider(provider: str) -> Provider:
    """What the package of a provider offers. Raises ``InvalidArgument`` naming those known."""
    found = _PROVIDERS.get(provider) if isinstance(provider, str) else None
    if found is None:
        raise InvalidArgument(f"unknown provider {describe(provider)}; known: {', '.join(_PROVIDERS)}")
    return found


def _checked(transcript: object, provider: str) -> Sequence[object]:
    if isinstance(transcript, Transcript):
        if transcript.provider != provider:
            raise InvalidArgument(f"the transcript is one for {transcript.provider}, not for {provider}")
        return transcript
    messages = _list_of(transcript)
    return messages if is_list(messages) else list(messages)


def _facts(package: Provider, messages: Sequence[object], request: Mapping[str, JsonValue] | None) -> Facts:
    if request is not None:  # that of request() holds the transcript itself
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
    parameters = None if messages.snapshot is None else recorded_parameters(messages.snapshot, messages.provider)
    return Facts(recorded, parameters or {}, recorded.edited_from, _latest_fingerprints(recorded, leading), leading)


def _sending(package: Provider, transcript: Transcript) -> Sending:
    """What a transcript is to be sent with: what it was repaired or cut for, or else its provider's latest request."""
    if transcript.sending is not None:
        return transcript.sending
    snapshot, recorded = transcript.snapshot, transcript.recorded
    if snapshot is None or recorded is None:
        return Sending({}, None)
    latest = own_request(snapshot, transcript.provider, transcript.leading)
    # A system prompt that belongs into the transcript is there already, or was taken out of it.
    request = {} if latest is None else package.arguments(latest, Transcript(provider=transcript.provider))
    return Sending(request, _latest_fingerprints(recorded, _leading_fingerprint(package, recorded.leading)))


def _latest_fingerprints(recorded: Recorded, leading: str) -> tuple[str, str] | None:
    """Those of the latest request to the transcript's provider, None where there was none."""
    newest = next((found for _, found in reversed(recorded.requests) if found is not None), None)
    return None if newest is None else (newest[0] or leading, newest[1])


def _leading_fingerprint(package: Provider, leading: Sequence[SystemMessage]) -> str:
    """That of the system prompt which ``request`` makes of instructions where none was recorded with the request."""
    if not leading:
        return ""
    made = RecordedRequest(own=False, system_text=text_of_leading(leading))
    return fingerprint(package.arguments(made, Transcript(provider="")).get(package.system_key))


def _list_of(messages: object) -> Iterable[object]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise DecodeError(f"messages must be a list of maps, found {describe(cast('Any', messages))}")
    return cast("Iterable[object]", messages)
