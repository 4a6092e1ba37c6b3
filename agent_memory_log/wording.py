"""Formats counts and lists of numbers for messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: ``1 event``, ``2,686 events``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ranges(numbers: list[int]) -> str:
    """Return ascending numbers as text, with consecutive numbers as ranges: ``2, 5-7``."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(numbers) + 1):
        if end < len(numbers) and numbers[end] == numbers[end - 1] + 1:
            continue
        first, last = numbers[start], numbers[end - 1]
        parts.append(str(first) if first == last else f"{first}-{last}")
        start = end
    return ", ".join(parts)
