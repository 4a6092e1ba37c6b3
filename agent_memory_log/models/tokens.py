"""Counts the tokens of a text with a tokenizer, or returns an upper bound if no tokenizer is installed."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from typing import Literal, Protocol, cast

CountTokens = Callable[[str], int]
"""A function that returns the number of tokens of a text."""

_ENCODING = "o200k_base"


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class _Tiktoken(Protocol):
    def get_encoding(self, encoding_name: str) -> _Encoding: ...


@cache
def default_count() -> CountTokens:
    """Return the token counter of ``tiktoken``, or ``count_bytes`` if ``tiktoken`` cannot be used."""
    try:
        encoding = cast("_Tiktoken", import_module("tiktoken")).get_encoding(_ENCODING)
    except Exception:  # noqa: BLE001  # it is not installed, or it cannot download its vocabulary
        return count_bytes
    return lambda text: len(encoding.encode_ordinary(text))


def count_bytes(text: str) -> int:
    """Return an upper bound for the tokens of a text: its UTF-8 bytes. Byte-based tokenizers never make more tokens.

    Some tokenizers first convert the text to NFC or NFKC with tables of any Unicode version. A character can have more
    bytes in these forms, so the form with the most bytes counts for each character.
    """
    if text.isascii():
        return len(text)
    is_mark = [unicodedata.combining(character) != 0 for character in text] + [False]
    return sum(_most_bytes(character, is_mark[index] or is_mark[index + 1]) for index, character in enumerate(text))


@lru_cache(4_096)
def _most_bytes(character: str, near_mark: bool) -> int:
    """Return the maximum bytes of a character. Near a combining mark, normalization may decompose the character."""
    forms: tuple[Literal["NFC", "NFKC", "NFD", "NFKD"], ...] = ("NFD", "NFKD") if near_mark else ("NFC", "NFKC")
    return max(len(character.encode()), *(len(unicodedata.normalize(form, character).encode()) for form in forms))
