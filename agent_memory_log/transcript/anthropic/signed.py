"""Rules for thinking, which the provider signs or encrypts, with what stands before it.

- ``thinking_unsigned``: a block has its signature; its text may be empty (``rules.py`` finds it).
- ``thinking_last``: none ends a message (as above).
- ``thinking_edited``: a block is as it was recorded. ``thinking_order``: once each, in the order of recording.
- ``thinking_prefix``: what stands before a block is what it was signed with, system prompt and tools included.
- ``thinking_first``: with a thinking budget, the last assistant message, if it calls a tool, begins with thinking, or
  the turn does that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.model import Facts, Recorded

Signed = tuple[int, int, str, str]
"""A block of thinking: message, place in it, signature or encrypted text, text."""

Find = Callable[..., None]


def sendable(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other arguments; without a thinking budget where the last call does not begin with thinking, as it must."""
    is_off = has_budget(request) and calls_without_thinking(messages) is not None
    return {key: value for key, value in request.items() if not (is_off and key == "thinking")}


def check_signed(messages: Sequence[object], signed: Sequence[Signed], facts: Facts, find: Find) -> None:
    """Call ``find(rule, message, *where)`` for what is wrong with the blocks of a transcript."""
    if facts.recorded is None:
        _check_repeated(signed, find)
    else:
        _check_recorded(signed, facts.recorded, facts, len(messages), find)
    place = calls_without_thinking(messages) if has_budget(facts.request) else None
    if place is not None:
        find(
            "thinking_first",
            "with a thinking budget, the last message that calls a tool, or its turn, must begin with thinking",
            place,
            "content",
            0,
        )


def _check_repeated(signed: Sequence[Signed], find: Find) -> None:
    seen: set[str] = set()
    for index, place, signature, _ in signed:
        if signature in seen:
            find("thinking_order", "the same block stands before it", index, "content", place)
        seen.add(signature)


def _check_recorded(signed: Sequence[Signed], recorded: Recorded, facts: Facts, length: int, find: Find) -> None:
    seen: set[str] = set()
    newest = -1
    stale = facts.stale_places(length)
    edited = facts.edited_from
    known = recorded.signed
    for index, place, signature, text in signed:
        was = known.get(signature)
        if signature in seen:
            find("thinking_order", "the same block stands before it", index, "content", place)
            continue
        seen.add(signature)
        if was is None or was[1] != text:
            find("thinking_edited", "the log holds no such block", index, "content", place)
            continue
        if was[0] <= newest:
            find("thinking_order", "it was recorded before the block that precedes it", index, "content", place)
        else:
            newest = was[0]
        if edited is not None and (index, place) >= edited:
            find("thinking_prefix", "what stands before it is not what it was signed with", index, "content", place)
        elif stale is not None and stale(index):
            found = "it was signed with another system prompt or other tools"
            find("thinking_prefix", found, index, "content", place)


def has_budget(request: Mapping[str, JsonValue]) -> bool:
    """Whether a request has a thinking budget, rather than adaptive thinking or none."""
    thinking = request.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"


def calls_without_thinking(messages: Sequence[object]) -> int | None:
    """The index of the last assistant message, if it calls a tool and thinking begins neither it nor its turn.

    A turn goes on as long as the user sends results: without interleaved thinking the model thinks once in it.
    """
    last: int | None = None
    begins = False
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        role = message.get("role") if is_map(message) else None
        kinds = _kinds_in(message)
        if role == "assistant":
            begins = bool(kinds) and kinds[0] in ("thinking", "redacted_thinking")
            if last is None and (begins or "tool_use" not in kinds):
                return None
            last = index if last is None else last
        elif role == "user" and "tool_result" not in kinds and last is not None:
            break
    return None if begins else last


def _kinds_in(message: object) -> list[object]:
    content = message.get("content") if is_map(message) else None
    return [block.get("type") if is_map(block) else None for block in content] if is_list(content) else []
