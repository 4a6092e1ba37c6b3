"""How many tokens a text has: as counted where there is a tokenizer, else never too few."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from typing import Literal, Protocol, cast

CountTokens = Callable[[str], int]
"""How many tokens a text has."""

_ENCODING = "o200k_base"


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class _Tiktoken(Protocol):
    def get_encoding(self, encoding_name: str) -> _Encoding: ...


@cache
def default_count() -> CountTokens:
    """The count of ``tiktoken``, if it is installed and has its vocabulary; else ``count_bytes``."""
    try:
        encoding = cast("_Tiktoken", import_module("tiktoken")).get_encoding(_ENCODING)
    except Exception:  # noqa: BLE001  # not installed; or its vocabulary, which it fetches, cannot be had
        return count_bytes
    return lambda text: len(encoding.encode_ordinary(text))


def count_bytes(text: str) -> int:
    """The bytes of a text in UTF-8: no tokenizer that starts from bytes makes more tokens of it.

    Some start from the text in its form NFC or NFKC, in which a character can have more bytes, and by the tables of
    whatever version of Unicode: for each character the form with the most bytes counts.
    """
    if text.isascii():
        return len(text)
    is_mark = [unicodedata.combining(character) != 0 for character in text] + [False]
    return sum(_most_bytes(character, is_mark[at] or is_mark[at + 1]) for at, character in enumerate(text))


@lru_cache(4_096)
def _most_bytes(character: str, in_company: bool) -> int:
    """The bytes of a character; ``in_company`` of marks, it may come apart, as another mark takes its base."""
    forms: tuple[Literal["NFC", "NFKC", "NFD", "NFKD"], ...] = ("NFD", "NFKD") if in_company else ("NFC", "NFKC")
    return max(len(character.encode()), *(len(unicodedata.normalize(form, character).encode()) for form in forms))
