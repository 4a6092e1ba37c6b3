"""One call on a store: it sends commands, waits, and ends when its time is up.

Every operation is written once, as a coroutine that does these things through a ``Call``. On a thread, nothing that it
awaits suspends it: the driver's methods and the waits block (``Surface``), so that it runs to its end at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from agent_memory_log.backend_kit import ChangeSignal
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log_mongo.documents.commits import Document
from agent_memory_log_mongo.engine.clock import Clock
from agent_memory_log_mongo.engine.database import OpenDatabase
from agent_memory_log_mongo.engine.surface import finished

_T = TypeVar("_T")

PLAIN: CodecOptions[Document] = CodecOptions(tz_aware=False)
"""Decodes a reply to plain values, its dates to naive ones in UTC."""

BYTES: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",  # so that an id that is not UTF-8 can be refused as an id
)
"""Decodes a reply no further than to the documents in it."""

_MOST_DOCUMENTS = 100_000
"""How many documents one reply may have; MongoDB ends it at 16 MiB before."""

_DUPLICATE_KEY = 11000


class TryAgain(Exception):  # never leaves this package
    """What an attempt found no longer holds, or another writer was faster; ``seconds`` are for ``Call.pause``."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__()
        self.seconds = seconds


class Call:
    """A call under way. What it reads and writes has the handle's read and write concerns."""

    def __init__(
        self,
        database: OpenDatabase,
        check_open: Callable[[], object],
        *,
        is_stream: bool = False,
    ) -> None:
        """``check_open`` raises once the handle is closed: a stream ends then, any other call carries on."""
        self.database = database
        self.check_open = check_open
        self._clock = Clock(database.settings.timeout_seconds, database.name, database.forget)
        self._surface = database.surface
        self._is_stream = is_stream
        self.codec: CodecOptions[Any] = PLAIN
        """What replies are decoded to."""

    async def send(self, command: Document, *, once: bool = False) -> Document | None:
        """Send a command; its reply. One that fails for a cause that passes is sent again as long as the time lasts.

        With ``once`` it is not: None says that it may or may not have been carried out. Raises ``StoreUnavailable``.
        """
        clock = self._clock
        while True:
            if self._is_stream:
                self.check_open()
            try:
                with pymongo.timeout(clock.left()):
                    reply = await finished(self.database.driver.command(command, codec_options=self.codec))
                if clock.is_acknowledged(reply):
                    return cast("Document", reply)
            except PyMongoError as error:
                clock.note(error)
            except BSONError as error:
                raise clock.unreadable(error) from error
            await self.pause()
            if once:
                return None

    async def ask(self, command: Document) -> Document:
        """Carry out a command that may be repeated. Raises ``StoreUnavailable`` when the server refused it."""
        reply = cast("Document", await self.send(command))
        _check(reply, command)
        return reply

    async def find(
        self,
        collection: str,
        where: Mapping[str, object],
        *,
        sort: Mapping[str, int] | None = None,
        limit: int = 0,
        fields: Mapping[str, object] | None = None,
        hint: str | None = None,
    ) -> list[Document]:
        """The documents that match, all of them that one reply holds, which is at least one."""
        command: Document = {"find": collection, "filter": where, "batchSize": limit or _MOST_DOCUMENTS}
        if sort:
            command["sort"] = sort
        if limit:
            command["limit"] = limit
        if fields:
            command["projection"] = fields
        if hint:
            command["hint"] = hint
        command["readConcern"] = {"level": self.database.level}
        # No cursor is kept open: what comes after a full reply is asked for anew, by its place, which survives a
        # failover.
        command["singleBatch"] = True
        reply = await self.ask(command)
        documents: list[Document] = reply["cursor"]["firstBatch"]
        return documents

    async def find_one(
        self,
        collection: str,
        where: Mapping[str, object],
        *,
        sort: Mapping[str, int] | None = None,
        fields: Mapping[str, object] | None = None,
        hint: str | None = None,
    ) -> Document | None:
        """The first document that matches."""
        return next(iter(await self.find(collection, where, sort=sort, limit=1, fields=fields, hint=hint)), None)

    async def insert_once(self, collection: str, document: object) -> bool | None:
        """Insert a document: True when it is stored, False when a unique index refused it, None when nobody knows."""
        command: Document = {"insert": collection, "documents": [document], "writeConcern": self.database.concern}
        reply = await self.send(command, once=True)
        if reply is None:
            return None
        if _is_duplicate(reply):
            return False
        _check(reply, command)
        return True

    async def update(
        self,
        collection: str,
        where: Mapping[str, object],
        change: object,
        *,
        many: bool = False,
        upsert: bool = False,
        hint: str | None = None,
    ) -> bool:
        """Update what matches; False where an upsert met a duplicate key."""
        statement: Document = {"q": where, "u": change, "multi": many, "upsert": upsert}
        if hint:
            statement["hint"] = hint
        command: Document = {"update": collection, "updates": [statement], "writeConcern": self.database.concern}
        reply = cast("Document", await self.send(command))
        if _is_duplicate(reply):
            return False
        _check(reply, command)
        return True

    async def until_done(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Carry out an attempt, and again from its beginning after each ``TryAgain``, as long as the time lasts."""
        while True:
            try:
                return await attempt()
            except TryAgain as again:
                await self.pause(again.seconds)

    async def pause(self, seconds: float | None = None) -> None:
        """Rest for a random part of ``seconds``, or as ``Clock.rest`` says."""
        await finished(self._surface.sleep(self._clock.rest(seconds)))

    async def wait(self, signal: ChangeSignal, seen: int, seconds: float | None) -> None:
        """Wait for a change that ``signal`` counts behind ``seen``, for some seconds or without end."""
        await finished(self._surface.wait(signal, seen, seconds))

    async def acquire(self, lock: object, name: str) -> None:
        """Acquire the lock of the run that has this name. Raises ``StoreUnavailable`` when the time is up before."""
        if not await finished(self._surface.acquire(lock, self._clock.left())):
            raise StoreUnavailable(
                f"{self.database.name}: other appends of this handle to {name} took all of the time; nothing of this "
                "one was stored"
            )

    def restart(self, *, endless: bool = False) -> None:
        """What follows stands by itself: it has all of a call's time again, or as long as it must."""
        self._clock.restart(endless=endless)


def _is_duplicate(reply: Document) -> bool:
    errors = reply.get("writeErrors") or ()
    return any(error.get("code") == _DUPLICATE_KEY for error in errors)


def _check(reply: Document, command: Document) -> None:
    for error in reply.get("writeErrors") or ():
        name = next(iter(command))
        raise StoreUnavailable(
            f"MongoDB refused the {name} on {command[name]}: {error.get('errmsg')} (code {error.get('code')})"
        )
