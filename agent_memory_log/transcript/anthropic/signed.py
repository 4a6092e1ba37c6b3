"""Rules for thinking, which the provider signs or encrypts, with what stands before it.

- ``thinking_unsigned``: a block has its signature; its text may be empty (``rules.py`` finds it).
- ``thinking_last``: none ends a message (as above).
- ``thinking_edited``: a block is as it was recorded. ``thinking_order``: once each, in the order of recording.
- ``thinking_prefix``: what stands before a block is what it was signed with, system prompt and tools included.
- ``thinking_first``: with a thinking budget, the last assistant message, if it calls a tool, begins with thinking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.model import Facts, Recorded

Signed = tuple[int, int, str, str]
"""A block of thinking: message, place in it, signature or encrypted text, text."""

Find = Callable[..., None]


def check_signed(messages: Sequence[object], signed: Sequence[Signed], facts: Facts, find: Find) -> None:
    """Call ``find(rule, message, *where)`` for what is wrong with the blocks of a transcript."""
    if facts.recorded is None:
        _check_repeated(signed, find)
    else:
        _check_recorded(signed, facts.recorded, facts, len(messages), find)
    place = calls_without_thinking(messages) if has_budget(facts) else None
    if place is not None:
        find(
            "thinking_first",
            "with a thinking budget, the last message that calls a tool must begin with thinking",
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
    stale = facts.stale_ranges(length)
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
        elif stale and any(begin <= index < end for begin, end in stale):
            found = "it was signed with another system prompt or other tools"
            find("thinking_prefix", found, index, "content", place)


def has_budget(facts: Facts) -> bool:
    """Whether the transcript is to be sent with a thinking budget, rather than adaptive thinking or none."""
    thinking = facts.request.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"


def calls_without_thinking(messages: Sequence[object]) -> int | None:
    """The index of the last assistant message, if it calls a tool and does not begin with thinking."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not is_map(message) or message.get("role") != "assistant":
            continue
        content = message.get("content")
        kinds = [block.get("type") if is_map(block) else None for block in content] if is_list(content) else []
        return index if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking") else None
    return None
