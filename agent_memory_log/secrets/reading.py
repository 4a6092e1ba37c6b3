"""Normalizes a text before the search: it removes invisible characters and converts full-width forms.

A person who reads a secret does not see a zero-width space or a soft hyphen in it, so it must be found anyway.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right

# Invisible characters (soft hyphen, joiners, direction marks, variation selectors, tags), and full-width and
# mathematical forms of letters and digits.
_ODD = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uff01-\uff5e\uffa0\U0001d400-\U0001d7ff\U000e0000-\U000e01ef]"
)


class Reading:
    """A text in the form that the rules search.

    Attributes:
        plain: The text without invisible characters, in plain letters and digits.
        lower: ``plain`` in lower case, with each character at the same index.
    """

    def __init__(self, text: str) -> None:
        self._removed: list[int] = []  # for each removed character, the length of ``plain`` before it
        self.plain = text if text.isascii() else self._read(text)
        lower = self.plain.lower()
        if len(lower) != len(self.plain):  # "İ" becomes two characters
            lower = "".join(small if len(small := char.lower()) == 1 else char for char in self.plain)
        self.lower = lower

    def _read(self, text: str) -> str:
        parts: list[str] = []
        length = done = 0
        for match in _ODD.finditer(text):
            parts.append(text[done : match.start()])
            length += match.start() - done
            done = match.end()
            plain = unicodedata.normalize("NFKC", match.group())
            if len(plain) == 1 and not _ODD.match(plain):
                parts.append(plain)
                length += 1
            else:
                self._removed.append(length)
        parts.append(text[done:])
        return "".join(parts)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text for ``plain[start:end]``; ``end`` must be greater than ``start``."""
        if not self._removed:
            return start, end
        return start + bisect_right(self._removed, start), end + bisect_right(self._removed, end - 1)
