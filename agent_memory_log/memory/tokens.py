"""How many tokens a text has: as counted where there is a tokenizer, else never too few."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Protocol, cast

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
    """The bytes of a text in UTF-8: no tokenizer that starts from bytes makes more tokens of it."""
    return len(text.encode())
