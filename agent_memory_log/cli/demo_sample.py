"""The events that the demo writes: the shipped samples, in a fixed order, with ids alike in every process."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json
from agent_memory_log.samples import sample_lines
from agent_memory_log.transcript import parse, read_chat_lines

CHAT_AGENT = "support-agent"
PROVIDER = "openai-chat"

_RUNS_BEFORE_THE_LONG_ONE = 2


class SampleRun(msgspec.Struct, frozen=True):
    """A run of the demo; ``messages`` are the chat messages it was made from, None for the one that is our own."""

    agent: str
    run: str
    meta: Mapping[str, JsonValue]
    events: list[Event]
    messages: list[dict[str, JsonValue]] | None


def sample_runs() -> list[SampleRun]:
    """All runs. The long one, which the demo shows, stands where the writer dies in the middle of it."""
    chats = [
        SampleRun(
            CHAT_AGENT,
            chat.run or f"chat-{chat.line}",
            chat.extra,
            parse(chat.messages, PROVIDER, source=chat.run or f"chat-{chat.line}"),
            chat.messages,
        )
        for chat in read_chat_lines(sample_lines("support.jsonl"))
    ]
    return [*chats[:_RUNS_BEFORE_THE_LONG_ONE], _long_run(), *chats[_RUNS_BEFORE_THE_LONG_ONE:]]


def _long_run() -> SampleRun:
    header, *events, _end = (_read_map(line) for line in sample_lines("demo.jsonl"))
    meta = header["meta"]
    return SampleRun(
        str(header["agent"]),
        str(header["run"]),
        meta if isinstance(meta, dict) else {},
        [Event.from_map(event) for event in events],
        None,
    )


def _read_map(line: bytes) -> dict[str, JsonValue]:
    read: dict[str, JsonValue] = decode_json(line)
    return read
