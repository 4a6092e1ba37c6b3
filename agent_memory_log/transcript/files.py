"""Reads files of chat transcripts, with one conversation on each line, and appends transcripts to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from agent_memory_log.errors import DecodeError, EventConflict
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe, in_quotes
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.steps import Steps, append, run_async, run_sync
from agent_memory_log.store import AppendResult, Store, SyncStore
from agent_memory_log.transcript.providers import parse
from agent_memory_log.transfer.importing import RunImport, decode_line


class ChatLine(NamedTuple):
    """A conversation read from one line of a file.

    Attributes:
        line: The line's number, from 1.
        run: The text of the line's ``run`` field; None if it has none.
        messages: The value of ``messages``; every item is a map.
        extra: The line's other fields. Importers store them in the run's ``meta``.
    """

    line: int
    run: str | None
    messages: list[dict[str, JsonValue]]
    extra: dict[str, JsonValue]


def read_chat_lines(lines: Iterable[bytes | str]) -> Iterator[ChatLine]:
    """Yield the conversations of a file. Each line is a JSON object with ``messages``; empty lines are skipped.

    The function reads each line only when the caller requests the next conversation.

        for line, run, messages, extra in read_chat_lines(open("runs.jsonl", "rb")): ...

    Raises:
        DecodeError: A line is not such an object. The message begins with the line's number.
    """
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        fields = decode_line(text, number)
        messages = fields.pop("messages", None)
        if not isinstance(messages, list):
            raise DecodeError(f"line {number}: messages must be a list, got {describe(messages)}")
        for index, message in enumerate(messages):
            if not isinstance(message, dict):
                raise DecodeError(f"line {number}: messages[{index}] must be a map, got {describe(message)}")
        name = fields.get("run")
        run = name if isinstance(name, str) and name else None
        if run is not None:
            del fields["run"]
        yield ChatLine(number, run, cast("list[dict[str, JsonValue]]", messages), fields)


async def import_transcript(
    store: Store,
    agent: str,
    run: str,
    messages: Iterable[Mapping[str, JsonValue]],
    provider: str,
    *,
    meta: Mapping[str, JsonValue] | None = None,
    before_append: Callable[[Event], Event] | None = None,
) -> AppendResult:
    """Append a provider's messages to a run, in batches, so that a conversation can have any length.

    The import can be repeated with the same arguments. A repeated import stores only messages that the run does not
    have yet. It also completes an import that was interrupted.

    Args:
        store: The open store.
        agent: The agent of the run.
        run: The run; it is created if it does not exist.
        messages: The provider's messages, in order.
        provider: The provider's name, as for ``parse``.
        meta: Metadata for the run. It is used only if this call creates the run.
        before_append: A function that may replace each event before it is appended, as for a ``RunRecorder``.

    Returns:
        The result that one append of all events would return.

    Raises:
        EventConflict: The run holds another conversation.
        DecodeError: A message is not a map or not JSON.
        InvalidArgument: The provider is unknown.
    """
    return await run_async(_import(agent, run, messages, provider, meta, before_append), store)


def import_transcript_sync(
    store: SyncStore,
    agent: str,
    run: str,
    messages: Iterable[Mapping[str, JsonValue]],
    provider: str,
    *,
    meta: Mapping[str, JsonValue] | None = None,
    before_append: Callable[[Event], Event] | None = None,
) -> AppendResult:
    """Append a provider's messages to a run of a ``SyncStore``; see ``import_transcript``."""
    return run_sync(_import(agent, run, messages, provider, meta, before_append), store)


def _import(
    agent: str,
    run: str,
    messages: Iterable[Mapping[str, JsonValue]],
    provider: str,
    meta: Mapping[str, JsonValue] | None,
    before_append: Callable[[Event], Event] | None,
) -> Steps[AppendResult]:
    importing = RunImport(agent, run, meta=meta)
    stored: list[Event] = []
    try:
        for index, event in enumerate(parse(messages, provider, source=run), 1):
            if before_append is not None:
                event = before_append(event)  # noqa: PLW2901  # the replacement is appended
            importing.add(event, size=len(encode_json(event.data)), path=f"event {index} of the transcript")
            if importing.full:
                stored += yield from importing.flush()
        stored += yield from importing.flush()
    except EventConflict as error:  # the ids come from the name of the run
        raise EventConflict(
            f"the run {in_quotes(run)} of the agent {in_quotes(agent)} holds another conversation, which differs at "
            f"seq {error.seq}: give this conversation another run",
            event_id=error.event_id,
            seq=error.seq,
        ) from error
    if not stored:
        return (yield from append(agent, run, ()))
    return AppendResult(importing.version, importing.inserted, tuple(stored))
