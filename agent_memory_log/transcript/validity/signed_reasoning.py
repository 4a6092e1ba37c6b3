"""Checks reasoning that a provider signs or encrypts together with the content before it.

- ``thinking_edited``: a block equals the recorded block.
- ``thinking_order``: each block appears once, in recording order.
- ``thinking_prefix``: the content before a block did not change since it was signed. The content includes the system
  prompt and the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent_memory_log.transcript.findings import Path
from agent_memory_log.transcript.log_facts import Facts

SignedBlock = tuple[int, int, str, str]
"""A block of reasoning: message index, index in the message, signature or encrypted content, and text."""


def check_signed(
    blocks: Iterable[SignedBlock],
    facts: Facts,
    length: int,
    path_of: Callable[[SignedBlock], Path],
    find: Callable[[str, str, Path], None],
) -> None:
    """Call ``find(rule, message, path)`` for each rule that the reasoning breaks.

    Args:
        blocks: The blocks of reasoning, in the order of the transcript.
        facts: Facts from the log and about the request.
        length: The number of messages.
        path_of: Returns the path of a block.
        find: Receives each finding.
    """
    recorded = None if facts.recorded is None else facts.recorded.signed
    edited_from = facts.edited_from
    is_stale = facts.stale_positions(length)
    seen: set[str] = set()
    newest = -1
    for block in blocks:
        message, number, signature, text = block
        if signature in seen:
            find("thinking_order", "an earlier block is the same", path_of(block))
            continue
        seen.add(signature)
        if recorded is not None:
            recorded_block = recorded.get(signature)
            if recorded_block is None or recorded_block[1] != text:
                find("thinking_edited", "the log does not contain this block", path_of(block))
                continue
            if recorded_block[0] <= newest:
                find("thinking_order", "it was recorded before the block that precedes it", path_of(block))
            else:
                newest = recorded_block[0]
        if edited_from is not None and (message, number) >= edited_from:
            find("thinking_prefix", "the content before it differs from the content it was signed with", path_of(block))
        elif is_stale is not None and is_stale(message):
            find("thinking_prefix", "it was signed with another system prompt or other tools", path_of(block))


def in_content(block: SignedBlock) -> Path:
    """Return the path of a block in the content of its message."""
    return block[0], "content", block[1]
