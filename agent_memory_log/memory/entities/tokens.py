"""Divides a text into the pieces that names are made of: words, numbers, mail addresses, URLs and ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

_TOKEN: Final = re.compile(
    r"""
    (?P<exact>
        (?:https?://|www\.)[^\s<>"'()\[\]{}]{1,500}
        |[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}
        |\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
        |\#\d{2,12}\b
        |\b[A-Z][A-Z0-9]{0,9}(?:[-_/]\d{1,12}){1,3}\b
    )
    |(?P<number>\d{1,4}(?:\.\d{1,3})?\b)
    |(?P<word>[^\W_](?:\w|['\u2019.&+-](?=[^\W_])){0,63})
    """,
    re.VERBOSE,
)
"""The parts are bounded, so that a search of a hostile text takes linear time."""

_SENTENCE_END: Final = re.compile(
    r"""[.!?\u2026\u3002\uff01\uff1f]['"\u201d\u2019\u00bb)]*\s|\n|^\s*[-*\u2022\u2013\u2014]"""
)
_ELISION: Final = re.compile(r"^(?:[cdjlmnst]|qu)['\u2019](?=\w)", re.IGNORECASE)
_OWNER: Final = re.compile(r"['\u2019](?:s|m|d|ve|ll|re)?$", re.IGNORECASE)
_DENIED: Final = ("n't", "n\u2019t")
_TRAILING: Final = ".,;:!?*_"


class Token(msgspec.Struct, frozen=True):
    """A piece of a text.

    Attributes:
        kind: ``exact`` for a mail address, a URL or an id, which is a name as it is.
        text: The piece, without an elided article and without an ending such as ``'s``.
        folded: The text in the form for comparison with the tables.
        start: The position in the text.
        gap: The text between this piece and the one before.
        starts: Whether a sentence begins here.
        owns: Whether the piece had an ending such as ``'s``. No name continues after it.
    """

    kind: Literal["exact", "number", "word"]
    text: str
    folded: str
    start: int
    gap: str
    starts: bool
    owns: bool

    @property
    def is_capital(self) -> bool:
        """Return whether the word begins with a capital letter, or is odd."""
        return self.text[:1].isupper() or self.is_odd

    @property
    def is_odd(self) -> bool:
        """Return whether the word has a form that only names have, such as NASA, iPhone or GPT4."""
        rest = self.text[1:]
        if not rest or (rest.isalpha() and rest.islower()):
            return False
        return rest != rest.lower() or (self.text[0].isupper() and any(map(str.isdigit, rest)))


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the pieces of a text, in their order."""
    end = 0
    for match in _TOKEN.finditer(text):
        gap, starts = text[end : match.start()], not end
        end = match.end()
        starts = starts or (gap != " " and _SENTENCE_END.search(gap) is not None)
        if match["exact"]:
            yield Token("exact", match[0].rstrip(_TRAILING), "", match.start(), gap, starts=starts, owns=True)
            continue
        own = bare = match[0]
        if not own.isalnum():
            own = _ELISION.sub("", own, count=1)
            bare = _OWNER.sub("", own)
            if bare.endswith(_DENIED):  # "Don't" is not a name
                bare = bare.lower()
        kind: Literal["number", "word"] = "number" if match["number"] else "word"
        yield Token(kind, bare, bare.casefold(), match.start(), gap, starts=starts, owns=bare != own)
