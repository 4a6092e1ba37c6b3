"""As much of MongoDB's wire protocol as a proxy must understand to tell one request from another."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from struct import unpack_from
from typing import Any

from bson.raw_bson import RawBSONDocument

_OP_MSG = 2013
_SECTIONS = 20
"""Where the sections begin: behind the header's four integers (length, id, id answered, kind) and one of flags."""
_BODY = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A command on its way to the server."""

    command: str
    """Its name, such as ``insert``."""
    body: Mapping[str, Any]
    """The command's own document, with ``$db``, ``lsid`` and what else the driver added."""
    documents: Sequence[Mapping[str, Any]]
    """What it carries beside that: the documents of an insert, the statements of an update or a delete."""


When = Callable[[Request], bool]
"""Which requests a fault is for."""


def command(*names: str) -> When:
    """Requests of these commands."""
    return lambda request: request.command in names


def parse_request(message: bytes) -> Request | None:
    """The request in a whole message; None if it is no OP_MSG: a driver's first greeting, or compressed."""
    if unpack_from("<i", message, 12) != (_OP_MSG,):
        return None
    body: Mapping[str, Any] = {}
    documents: list[Mapping[str, Any]] = []
    at = _SECTIONS
    while at < len(message):
        (size,) = unpack_from("<i", message, at + 1)
        section = message[at + 1 : at + 1 + size]
        if message[at] == _BODY:
            body = RawBSONDocument(section)
        else:
            documents += _sequence(section)
        at += 1 + size
    return Request(next(iter(body)), body, documents)


def _sequence(section: bytes) -> Generator[Mapping[str, Any]]:
    """The documents behind a section's size and its name, which ends with a zero byte."""
    at = section.index(b"\0", 4) + 1
    while at < len(section):
        (size,) = unpack_from("<i", section, at)
        yield RawBSONDocument(section[at : at + size])
        at += size


def ids(message: bytes) -> tuple[int, int]:
    """A message's own id, and the id of the one it answers."""
    own, answered = unpack_from("<ii", message, 4)
    return own, answered
