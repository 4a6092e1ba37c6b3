"""Divides text of any script into words. All other modules use these words.

Text with spaces is divided into runs of letters, marks and digits, after folding of case, width and compatibility
forms. Scripts without spaces are divided into overlapping runs of characters, so they need no dictionary.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

LONGEST_WORD: Final = 64
"""The number of characters of a word that the index compares. Longer words are mostly keys, hashes or noise."""

_PAIRED: Final = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af"
)
"""The characters of Han, kana and hangul, which are divided into pairs.

Hangul has spaces, but its endings are attached to the words.
"""

_TRIPLED: Final = "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"
"""The characters of Thai, Lao, Burmese and Khmer. Three characters are about a syllable."""

_HAN: Final = re.compile("[\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")


def fold(text: str) -> str:
    """Return ``text`` in the form in which words are compared: casefolded, in Unicode's form NFKC."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@lru_cache(maxsize=65_536)
def without_accents(word: str) -> str:
    """Return ``word`` without accents, which people often omit: café becomes cafe. Indic vowel marks remain."""
    if word.isascii():
        return word
    bare = "".join(
        character for character in unicodedata.normalize("NFD", word) if not "\u0300" <= character <= "\u036f"
    )
    return unicodedata.normalize("NFC", bare) or word


def words(folded: str) -> list[str]:
    """Return the words of a folded text in their order. A number with separators, such as 1,000.50, is one word."""
    if folded.isascii():
        return _ASCII_WORDS.findall(folded)
    text_words: list[str] = _any_words().findall(folded.replace("_", " "))
    if _UNSPACED.search(folded):
        return [gram for word in text_words for gram in _grams(word)]
    return text_words


_ASCII_WORDS: Final[re.Pattern[str]] = re.compile(r"[a-z]*[0-9]+(?:[.,:][0-9]+)+|[a-z0-9]+")


@cache
def _any_words() -> re.Pattern[str]:
    # re's \w does not match the marks that are vowels in Indic scripts, so it would divide their words.
    marks = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"[0-9]+(?:[.,:][0-9]+)+|\w[\w{marks}]*")


_UNSPACED: Final = re.compile(f"[{_PAIRED}{_TRIPLED}]")
_RUNS: Final = re.compile(f"([{_PAIRED}]+)|([{_TRIPLED}\u0300-\u036f]+)|([^{_PAIRED}{_TRIPLED}]+)")


def _grams(word: str) -> Iterator[str]:
    for run in _RUNS.finditer(word):
        paired, tripled, other = run.groups()
        if paired:
            yield from _HAN.findall(paired)
            if len(paired) > 1:
                yield from (paired[at : at + 2] for at in range(len(paired) - 1))
            elif not _HAN.match(paired):
                yield paired
        elif tripled:
            yield from (tripled[at : at + 3] for at in range(max(1, len(tripled) - 2)))
        else:
            yield other


_THOUSANDS: Final = re.compile(r"[0-9]{1,3}(?:[.,][0-9]{3})+")
_ORDINAL: Final = re.compile(r"([0-9]{1,64})(?:st|nd|rd|th)")


def plain_number(word: str) -> str:
    """Return a number in plain digits: 1,000 becomes 1000, 3rd and ٣ become 3, 3.50 stays. Other words stay too."""
    if not word[0].isdecimal():
        return word
    if not word.isascii():
        word = "".join(str(unicodedata.decimal(character, character)) for character in word)
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    return re.sub("[.,]", "", word) if _THOUSANDS.fullmatch(word) else word
