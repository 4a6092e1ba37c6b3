"""Shortens a long text to the sentences that share words with a query."""

from __future__ import annotations

import re
from collections.abc import Sequence

SENTENCE = re.compile(r"[^\n]+?(?:[.!?…](?=\s)|(?=\n)|\Z)")
"""A sentence of a text, or a line."""

_WORD = re.compile(r"\w+")
_STEM = 5
"""Two words match if they are equal up to this number of letters, so that an inflected word matches too."""

_LEAST_LETTERS = 3
_GAP = " … "


def excerpt(text: str, query: str, length: int) -> str:
    """Return a text of at most ``length`` characters: all of ``text``, or its sentences that match the query best.

    A sentence that matches brings its neighbours if there is room. The sentences stay in their order, and ``…`` stands
    for what is left out. A text that shares no word with the query is cut at its end.
    """
    if len(text) <= length:
        return text
    sentences = [match.span() for match in SENTENCE.finditer(text)]
    sought = _stems(query)
    scores = [len(sought & _stems(text[start:end])) for start, end in sentences]
    if not any(scores):
        return text[: length - 1] + "…"
    chosen: set[int] = set()
    left = length
    best_first = sorted(range(len(sentences)), key=lambda number: (-scores[number], number))
    for number in best_first:
        if not scores[number]:
            break
        for neighbour in (number, number + 1, number - 1):
            if neighbour in chosen or not 0 <= neighbour < len(sentences):
                continue
            start, end = sentences[neighbour]
            size = end - start + len(_GAP)
            if size <= left:
                chosen.add(neighbour)
                left -= size
    if best_first[0] not in chosen:
        return _around(text, sentences[best_first[0]], sought, length)
    return _joined(text, sentences, sorted(chosen))


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:_STEM] for word in _WORD.findall(text.casefold()) if len(word) >= _LEAST_LETTERS)


def _around(text: str, sentence: tuple[int, int], sought: frozenset[str], length: int) -> str:
    """Return the part of a long sentence around its first word that matches."""
    start, end = sentence
    matching = (word.start() for word in _WORD.finditer(text, start, end) if word[0].casefold()[:_STEM] in sought)
    begin = max(start, min(next(matching, start) - length // 4, end - length + 2))
    part = text[begin : begin + length - 2]
    return f"{'…' if begin else ''}{part}{'…' if begin + len(part) < len(text) else ''}"


def _joined(text: str, sentences: Sequence[tuple[int, int]], chosen: Sequence[int]) -> str:
    parts: list[str] = []
    previous = -1
    for number in chosen:
        start, end = sentences[number]
        if number != previous + 1:
            parts.append("…")
        parts.append(text[start:end].strip())
        previous = number
    if previous + 1 < len(sentences):
        parts.append("…")
    return " ".join(filter(None, parts))
