"""Where a transcript may be cut."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.transcript.bedrock.rules import kind_of
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.shapes import list_in
from agent_memory_log.transcript.windows import Seams


def seams(messages: Sequence[Message]) -> Seams:
    """Where it may be cut: a turn begins with what the user says and no result, a round with the assistant."""
    head = next((place for place, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    turns: list[int] = []
    openings: list[int] = []
    rounds: list[int] = []
    for place in range(head, len(messages)):
        role = messages[place].get("role")
        if role == "assistant":
            rounds.append(place)
        elif role == "user" and not _has_results(messages[place]):
            turns.append(place)
            openings.append(place + 1)
        elif role == "system" and openings and openings[-1] == place:
            openings[-1] = place + 1
    return Seams(head, turns, openings, rounds)


def _has_results(message: Message) -> bool:
    return any(kind_of(block) == "toolResult" for block in list_in(message.get("content")))
