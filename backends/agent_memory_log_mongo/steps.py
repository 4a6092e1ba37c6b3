"""What an operation asks of the world, step by step, so that it is written once for every kind of client.

An operation is a generator of *requests*: a database command, a pause. Whoever runs it (``run.py``) carries each out,
with or without ``await``, and sends back what came of it. ``yield from ask(...)`` reads as a call.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.event import Event
from agent_memory_log.store import Flaw
from agent_memory_log_mongo.documents import Document

_T = TypeVar("_T")

MOST_DOCUMENTS = 100_000
"""How many documents one reply may have; MongoDB ends it at 16 MiB before."""

DUPLICATE_KEY = 11000


class Command(msgspec.Struct, frozen=True, gc=False):
    """A database command; answered with its reply.

    One that fails for a cause that passes is sent again until the operation's time is up, unless ``once``: then the
    answer is a ``Failed``.
    """

    document: Document
    once: bool = False


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Wait for some part of ``seconds``, up to the operation's time; answered with None."""

    seconds: float = 0.001


class News(msgspec.Struct, frozen=True, gc=False):
    """Wait until something may have been appended to the run with this key; answered with None.

    ``seen`` is the count of its signal before the operation looked; ``until`` is when to look again in any case, in
    microseconds since the epoch.
    """

    key: bytes
    seen: int
    until: int | None = None


class Count(msgspec.Struct, frozen=True, gc=False):
    """Ask for the count of a run's signal, for ``News``."""

    key: bytes


class Settled(msgspec.Struct, frozen=True, gc=False):
    """A follower has read the run once: from now on it waits for the server as long as it must."""


class Onward(msgspec.Struct, frozen=True, gc=False):
    """A part of the operation stands by itself and is done: the next has all of a call's time again."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A command sent ``once`` may or may not have been carried out."""


Request = Command | Pause | News | Count | Settled | Onward | Event | Flaw
Steps = Generator[Request, Any, _T]
"""An operation: yields requests, is sent their answers, returns a ``_T``."""


def ask(document: Document) -> Steps[Document]:
    """Carry out a command that may be repeated. Raises ``StoreUnavailable`` when the server refused it."""
    reply = cast("Document", (yield Command(document)))
    _check(reply, document)
    return reply


def find(
    collection: str,
    where: Mapping[str, object],
    level: str,
    *,
    sort: Mapping[str, int] | None = None,
    limit: int = 0,
    fields: Mapping[str, object] | None = None,
    hint: str | None = None,
) -> Steps[list[Document]]:
    """The documents that match, all of them that one reply holds, which is at least one."""
    command: Document = {"find": collection, "filter": where, "batchSize": limit or MOST_DOCUMENTS}
    if sort:
        command["sort"] = sort
    if limit:
        command["limit"] = limit
    if fields:
        command["projection"] = fields
    if hint:
        command["hint"] = hint
    command["readConcern"] = {"level": level}
    # No cursor is kept open: what comes after a full reply is asked for anew, by its place, which survives a failover.
    command["singleBatch"] = True
    reply = yield from ask(command)
    documents: list[Document] = reply["cursor"]["firstBatch"]
    return documents


def insert_once(collection: str, document: object, concern: Document) -> Steps[bool | None]:
    """Insert a document: True when it is stored, False when a unique index refused it, None when nobody knows."""
    command: Document = {"insert": collection, "documents": [document], "writeConcern": concern}
    reply = cast("Document | Failed", (yield Command(command, once=True)))
    if isinstance(reply, Failed):
        return None
    errors = reply.get("writeErrors")
    if errors and errors[0].get("code") == DUPLICATE_KEY:
        return False
    _check(reply, command)
    return True


def update(
    collection: str,
    where: Mapping[str, object],
    change: object,
    concern: Document,
    *,
    many: bool = False,
    upsert: bool = False,
    hint: str | None = None,
) -> Steps[Document]:
    """Update what matches; the reply says how many (``n``). A duplicate key at an upsert counts as none."""
    statement: Document = {"q": where, "u": change, "multi": many, "upsert": upsert}
    if hint:
        statement["hint"] = hint
    command: Document = {"update": collection, "updates": [statement], "writeConcern": concern}
    reply = cast("Document", (yield Command(command)))
    errors = reply.get("writeErrors")
    if not (errors and errors[0].get("code") == DUPLICATE_KEY):
        _check(reply, command)
    return reply


def _check(reply: Document, command: Document) -> None:
    errors = reply.get("writeErrors") or ()
    for error in errors:
        name = next(iter(command))
        raise StoreUnavailable(
            f"MongoDB refused the {name} on {command[name]}: {error.get('errmsg')} (code {error.get('code')})"
        )
