"""How a text is read: invisible characters are left out and full-width forms are plain, and each place is traced back.

A secret that is split by a zero-width space or a soft hyphen works when a person retypes it, so it is found too.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right

# Soft hyphen, joiners, direction marks, variation selectors and tags; full-width and mathematical letters and digits.
_ODD = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uff01-\uff5e\uffa0\U0001d400-\U0001d7ff\U000e0000-\U000e01ef]"
)


class Reading:
    """A text as the rules read it.

    - ``plain``: the text without invisible characters, in plain letters and digits.
    - ``lower``: ``plain`` in lower case, each character at the same place.
    """

    def __init__(self, text: str) -> None:
        self._removed: list[int] = []  # for each character that was left out, how long ``plain`` was before it
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
        """The span of the text itself that ``plain[start:end]`` was read from; ``end`` is after ``start``."""
        if not self._removed:
            return start, end
        return start + bisect_right(self._removed, start), end + bisect_right(self._removed, end - 1)
