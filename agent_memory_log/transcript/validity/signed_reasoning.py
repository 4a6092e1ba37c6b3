"""The rules for reasoning that a provider signs or encrypts, with what stands before it.

- ``thinking_edited``: a block is as it was recorded. ``thinking_order``: once each, in the order of recording.
- ``thinking_prefix``: what stands before a block is what it was signed with, system prompt and tools included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent_memory_log.transcript.findings import Path
from agent_memory_log.transcript.log_facts import Facts

SignedBlock = tuple[int, int, str, str]
"""A block of reasoning: message, place in it, signature or encrypted content, and text."""


def check_signed(
    blocks: Iterable[SignedBlock],
    facts: Facts,
    length: int,
    path_of: Callable[[SignedBlock], Path],
    find: Callable[[str, str, Path], None],
) -> None:
    """Call ``find(rule, message, where)`` for each rule that the reasoning of ``length`` messages breaks."""
    recorded = None if facts.recorded is None else facts.recorded.signed
    edited_from = facts.edited_from
    is_stale = facts.stale_positions(length)
    seen: set[str] = set()
    newest = -1
    for block in blocks:
        message, number, signature, text = block
        if signature in seen:
            find("thinking_order", "the same block stands before it", path_of(block))
            continue
        seen.add(signature)
        if recorded is not None:
            known = recorded.get(signature)
            if known is None or known[1] != text:
                find("thinking_edited", "the log holds no such block", path_of(block))
                continue
            if known[0] <= newest:
                find("thinking_order", "it was recorded before the block that precedes it", path_of(block))
            else:
                newest = known[0]
        if edited_from is not None and (message, number) >= edited_from:
            find("thinking_prefix", "what stands before it is not what it was signed with", path_of(block))
        elif is_stale is not None and is_stale(message):
            find("thinking_prefix", "it was signed with another system prompt or other tools", path_of(block))


def in_content(block: SignedBlock) -> Path:
    """The place of a block in the content of its message."""
    return block[0], "content", block[1]
