"""Files of chat transcripts, one JSON object with ``messages`` a line, and their way into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.steps import Steps, append, run_async, run_sync
from agent_memory_log.store import AppendResult, Store, SyncStore
from agent_memory_log.transcript.providers import parse
from agent_memory_log.transfer.importing import RunImport, decode_line


class ChatLine(NamedTuple):
    """A conversation read from a line of a file.

    - ``line``: the line's number, from 1.
    - ``run``: the text of its ``run`` field, None when it has none.
    - ``messages``: its ``messages``, all of them maps.
    - ``extra``: its other fields; they make the run's ``meta``.
    """

    line: int
    run: str | None
    messages: list[dict[str, JsonValue]]
    extra: dict[str, JsonValue]


def read_chat_lines(lines: Iterable[bytes | str]) -> Iterator[ChatLine]:
    """Read conversations, one JSON object with ``messages`` a line; empty lines are passed over.

    Lines are read as they are asked for. Raises ``DecodeError`` naming the line.

        for line, run, messages, extra in read_chat_lines(open("runs.jsonl", "rb")): ...
    """
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        found = decode_line(text, number)
        messages = found.pop("messages", None)
        if not isinstance(messages, list):
            raise DecodeError(f"line {number}: messages must be a list, found {describe(messages)}")
        for index, message in enumerate(messages):
            if not isinstance(message, dict):
                raise DecodeError(f"line {number}: messages[{index}] must be a map, found {describe(message)}")
        name = found.get("run")
        run = name if isinstance(name, str) and name else None
        if run is not None:
            del found["run"]
        yield ChatLine(number, run, cast("list[dict[str, JsonValue]]", messages), found)


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
    """Append a provider's ``messages`` to a run, in batches, so that a conversation may be of any length.

    Importing again stores nothing, importing once the conversation has grown what is new, and an import that was
    interrupted goes on when it is repeated. ``meta`` is kept with the run if this creates it; ``before_append`` is as
    for a ``RunRecorder``. The result is as of one append of all the events.

    Raises what ``parse`` and ``append_events`` raise; ``EventConflict`` means the run holds another conversation.
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
    """``import_transcript`` without ``await``."""
    return run_sync(_import(agent, run, messages, provider, meta, before_append), store)


def _import(  # as import_transcript
    agent: str,
    run: str,
    messages: Iterable[Mapping[str, JsonValue]],
    provider: str,
    meta: Mapping[str, JsonValue] | None,
    before_append: Callable[[Event], Event] | None,
) -> Steps[AppendResult]:
    importing = RunImport(agent, run, meta=meta)
    stored: list[Event] = []
    for index, event in enumerate(parse(messages, provider, source=run), 1):
        if before_append is not None:
            event = before_append(event)  # noqa: PLW2901  # what is appended in its place
        importing.add(event, size=len(encode_json(event.data)), where=f"event {index} of the transcript")
        if importing.full:
            stored += yield from importing.flush()
    stored += yield from importing.flush()
    if not stored:
        return (yield from append(agent, run, ()))
    return AppendResult(importing.version, importing.inserted, tuple(stored))
