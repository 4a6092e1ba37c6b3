"""Divides a message into its sentences, and hides quotes, code and quoted mail."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_TEXT = 4000
"""The number of characters of a message that are read. Longer texts are usually pasted."""

_FENCE = re.compile(r"(?:```|~~~).*?(?:```|~~~|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^(?:[ \t]*[>|]|\t| {4}).*$", re.MULTILINE)
_LINE_MARKS = frozenset(" \t>|")  # the first character of a quoted line
_QUOTES = re.compile(
    r"\"[^\"\n]{0,600}\"|“[^”\n]{0,600}”|„[^“”\n]{0,600}[“”]|«[^»\n]{0,600}»|`[^`\n]{0,600}`|(?<!\w)'[^'\n]{0,600}'(?!\w)"
)
_SENTENCE = re.compile(
    r"\n+|\s(?=¿)|(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b[DMS]r\.)(?<!\bMrs\.)(?<!\b[Ss]t\.)\s+"
    r"(?!(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b)"
)
_GAP = re.compile(r"([^\S\n]{8})[^\S\n]+")
_HIDDEN = "\0"


def readable(text: str) -> str:
    """Return the first ``MAX_TEXT`` characters of a message, with plain apostrophes and with long gaps shortened.

    A gap is white space inside a line. The patterns try every position of a gap, so a long gap would cost quadratic
    time.
    """
    return _GAP.sub(r"\1", text[:MAX_TEXT]).replace("\u2019", "'")


def hide(text: str) -> str:
    """Hide quotes, code and quoted lines. Every other character keeps its position."""
    if "\n" in text or text[:1] in _LINE_MARKS or "```" in text or "~~~" in text:
        for rule in (_FENCE, _QUOTED_LINE):
            text = rule.sub(lambda match: "\n" * len(match.group()), text)
    return _QUOTES.sub(lambda match: match.group()[0] + _HIDDEN * (len(match.group()) - 2) + match.group()[-1], text)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each sentence."""
    start = 0
    for gap in _SENTENCE.finditer(text):
        if gap.start() > start:
            yield start, gap.start()
        start = gap.end()
    if start < len(text):
        yield start, len(text)
