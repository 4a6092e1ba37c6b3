"""Parses MongoDB's wire protocol as far as the proxy needs it to recognize a request."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from struct import unpack_from
from typing import Any

from bson.raw_bson import RawBSONDocument

_OP_MSG = 2013
_SECTIONS = 20
"""The offset of the sections, after five integers: length, id, id of the request, kind and flags."""
_BODY = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A command that a client sends."""

    command: str
    """The name of the command, such as ``insert``."""
    body: Mapping[str, Any]
    """The document of the command, with ``$db``, ``lsid`` and the other fields that the driver added."""
    documents: Sequence[Mapping[str, Any]]
    """The documents of an insert, or the statements of an update or a delete."""


When = Callable[[Request], bool]
"""A predicate that selects the requests of a fault."""


def command(*names: str) -> When:
    """Return a predicate for requests of these commands."""
    return lambda request: request.command in names


def parse_request(message: bytes) -> Request | None:
    """Return the request in a message, or None if the message is not an uncompressed OP_MSG."""
    if unpack_from("<i", message, 12) != (_OP_MSG,):
        return None
    body: Mapping[str, Any] = {}
    documents: list[Mapping[str, Any]] = []
    offset = _SECTIONS
    while offset < len(message):
        (size,) = unpack_from("<i", message, offset + 1)
        section = message[offset + 1 : offset + 1 + size]
        if message[offset] == _BODY:
            body = RawBSONDocument(section)
        else:
            documents += _sequence(section)
        offset += 1 + size
    return Request(next(iter(body)), body, documents)


def _sequence(section: bytes) -> Generator[Mapping[str, Any]]:
    """Return the documents of a section, which follow its size and its zero-terminated name."""
    offset = section.index(b"\0", 4) + 1
    while offset < len(section):
        (size,) = unpack_from("<i", section, offset)
        yield RawBSONDocument(section[offset : offset + size])
        offset += size


def ids(message: bytes) -> tuple[int, int]:
    """Return the id of a message and the id of the request that it answers."""
    message_id, request_id = unpack_from("<ii", message, 4)
    return message_id, request_id
