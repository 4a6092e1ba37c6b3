"""The parts of an answer that grow while its stream is read, and the checks of a stream's fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self, cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import decode_json
from agent_memory_log.recording.sdk_objects import Map, map_at

LONGEST_ERROR = 1_000
"""The most characters of a provider's error that are kept."""


class Joined(NamedTuple):
    """The answer that a stream contains.

    Attributes:
        answer: The answer that the provider returns without streaming; if it is partial, as far as it came.
        partial: ``cut_off`` if the stream ended too early, ``error`` if the provider sent an error, ``""`` if the
            answer is complete.
        error: The provider's error, or ``""``.
    """

    answer: Map
    partial: str = ""
    error: str = ""

    @classmethod
    def of(cls, answer: Map, *, is_complete: bool, error: object) -> Self:
        """Return the answer with its state. ``error`` is what the provider sent, or None."""
        if error:
            return cls(answer, "error", _error_text(error))
        return cls(answer, "" if is_complete else "cut_off")


class Pieces:
    """Text that still grows. Its pieces are joined once, at the end of the stream."""

    def __init__(self, text: str) -> None:
        self.texts = [text]


class Items(list[object]):
    """A list that still grows, and the growing maps in it by their index."""

    def __init__(self, items: Iterable[object] = ()) -> None:
        super().__init__(items)
        self.by_index: dict[str, Map] = {}


def add_text(grown: Map, key: str, text: str) -> None:
    """Append ``text`` to the text at ``key``. Raises ``DecodeError`` if the value at ``key`` is no text."""
    pieces = grown.get(key) or ""
    if isinstance(pieces, str):
        grown[key] = pieces = Pieces(pieces)
    if not isinstance(pieces, Pieces):
        raise DecodeError(f"a stream continues {key} with text, but {key} is {describe(pieces)}")
    pieces.texts.append(text)


def items_at(grown: Map, key: str) -> Items:
    """Return the growing list at ``key``; create it if necessary."""
    items = grown.get(key)
    if not isinstance(items, Items):
        grown[key] = items = Items(cast("list[object]", items) if isinstance(items, list) else ())
    return items


def put_together(grown: Map) -> None:
    """Join all text pieces in ``grown`` and in the maps inside it."""
    for key, value in grown.items():
        grown[key] = _together(value)


def _together(value: object) -> object:
    if isinstance(value, Pieces):
        return "".join(value.texts)
    if isinstance(value, list):
        return [_together(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        own = cast("Map", value)
        put_together(own)
        return own
    return value


class Blocks:
    """The content blocks of an answer by index, and the pieces of their calls' arguments."""

    def __init__(self) -> None:
        self._blocks: dict[int, Map] = {}
        self._arguments: dict[int, list[str]] = {}

    def begin(self, index: int, block: Map) -> None:
        """Add a block."""
        self._blocks[index] = block

    def at(self, index: int) -> Map:
        """Return a block. Raises ``DecodeError`` if it did not begin."""
        if index not in self._blocks:
            raise DecodeError(f"a stream continues block {index}, but the start of this block is missing")
        return self._blocks[index]

    def at_or_new(self, index: int) -> Map:
        """Return a block, or add an empty one."""
        return self._blocks.setdefault(index, {})

    def add_arguments(self, index: int, text: str) -> None:
        """Append ``text`` to the arguments of the call in a block."""
        self._arguments.setdefault(index, []).append(text)

    def content(self, *inside: str) -> list[Map]:
        """Return the blocks in order. ``inside`` is the path from a block to the map that gets the call's arguments."""
        for block in self._blocks.values():
            put_together(block)
        for index, pieces in self._arguments.items():
            text = "".join(pieces)
            if text:
                map_at(self.at(index), *inside)["input"] = _arguments(text)
        return [self._blocks[index] for index in sorted(self._blocks)]


def _arguments(text: str) -> object:
    """Return a call's arguments. Text that is not a JSON object, as in a shortened answer, gives ``INVALID_JSON``.

    Anthropic's documentation recommends this form.
    """
    try:
        arguments: object = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"INVALID_JSON": text}
    return arguments if isinstance(arguments, dict) else {"INVALID_JSON": text}  # pyright: ignore[reportUnknownVariableType]  # any JSON object


def type_of(event: Map) -> str:
    """Return the type of an event; ``""`` if it has none."""
    kind = event.get("type")
    return kind if isinstance(kind, str) else ""


def index_at(event: Map, key: str) -> int:
    """Return the integer at ``key``."""
    index = event.get(key)
    if type(index) is not int:
        raise DecodeError(f"a stream event must have an integer {key}, got {describe(index)}")
    return index


def text_at(delta: Map, key: str) -> str:
    """Return the text at ``key``."""
    text = delta.get(key)
    if not isinstance(text, str):
        raise DecodeError(f"a stream delta must have text as {key}, got {describe(text)}")
    return text


def _error_text(error: object) -> str:
    message = map_at(error).get("message", error)
    text = message if isinstance(message, str) else describe(message)
    return text[:LONGEST_ERROR]
