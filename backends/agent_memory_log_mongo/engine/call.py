"""One call on a store: sends commands to the server, waits, and enforces the time limit.

Every operation is written once, as a coroutine that uses a ``Call``. The synchronous store runs the same coroutine on a
thread. There the driver's methods and the waits block (``Surface``), so the coroutine never suspends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import Any, TypeVar, cast

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from agent_memory_log.backend_kit import ChangeSignal
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log_mongo.documents.commits import Document, Run
from agent_memory_log_mongo.engine.clock import Clock
from agent_memory_log_mongo.engine.database import OpenDatabase
from agent_memory_log_mongo.engine.surface import finished

_T = TypeVar("_T")

PLAIN: CodecOptions[Document] = CodecOptions(tz_aware=False)
"""Codec options that decode a reply to plain values. Dates become naive datetimes in UTC."""

BYTES: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",  # a later check refuses an id that is not UTF-8
)
"""Codec options that leave the documents of a reply as bytes."""

_MOST_DOCUMENTS = 100_000
"""The batch size for all documents of one reply. MongoDB's limit of 16 MiB for a reply is reached first."""

_DUPLICATE_KEY = 11000


class TryAgain(Exception):  # never leaves this package
    """Raised by an attempt that must start again: its data is outdated, or another writer was faster."""

    def __init__(self, seconds: float | None = None) -> None:
        """``seconds`` is the longest pause before the next attempt; ``Call.pause`` documents None."""
        super().__init__()
        self.seconds = seconds


class Call:
    """A call in progress. It reads and writes with the handle's read and write concerns."""

    def __init__(
        self,
        database: OpenDatabase,
        check_open: Callable[[], object],
        *,
        is_stream: bool = False,
    ) -> None:
        """``check_open`` raises once the handle is closed. That ends a stream, but not any other call."""
        self.database = database
        self.check_open = check_open
        self._clock = Clock(database.settings.timeout_seconds, database.name, database.forget)
        self._surface = database.surface
        self._is_stream = is_stream
        self.codec: CodecOptions[Any] = PLAIN
        """The codec options for replies."""

    async def send(self, command: Document, *, once: bool = False) -> Document | None:
        """Send a command and return its reply.

        After a temporary error, the command is sent again until the time is up. With ``once``, it is not sent again;
        the result is None, and the server may or may not have executed the command. Raises ``StoreUnavailable``.
        """
        clock = self._clock
        while True:
            if self._is_stream:
                self.check_open()
            try:
                with pymongo.timeout(clock.left()):
                    result = self.database.driver.command(command, codec_options=self.codec)
                    reply = cast("Document", result if type(result) is dict else await finished(result))
                if clock.is_acknowledged(reply):
                    return reply
            except PyMongoError as error:
                clock.note(error)
            except BSONError as error:
                raise clock.unreadable(error) from error
            await self.pause()
            if once:
                return None

    async def ask(self, command: Document) -> Document:
        """Send a command that may be repeated. Raises ``StoreUnavailable`` if the server refused it."""
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
        """Return the matching documents that fit in one reply, at least one if any document matches.

        Args:
            collection: the name of the collection.
            where: the filter.
            sort: the sort order.
            limit: the largest number of documents; 0 for no limit.
            fields: the projection.
            hint: the name of the index to use.
        """
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
        # No cursor stays open. After a full reply, the caller sends a new query that starts at the next position.
        # Unlike a cursor, that also works after a failover.
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
        """Return the first matching document, or None."""
        return next(iter(await self.find(collection, where, sort=sort, limit=1, fields=fields, hint=hint)), None)

    async def find_in_order(
        self, collection: str, where: Mapping[str, object], by: str, *, is_sorted_here: bool
    ) -> tuple[list[Document], bool]:
        """Return the first matching documents that fit in one reply, and whether these are all of them.

        Args:
            collection: the name of the collection.
            where: the filter.
            by: the name of the integer field that gives the order.
            is_sorted_here: whether this process sorts the documents, because some servers would read all of them twice.
                The server may then use any index.
        """
        command: Document = {"find": collection, "filter": where, "batchSize": _MOST_DOCUMENTS}
        if not is_sorted_here:
            command["sort"] = {by: 1}
        command["readConcern"] = {"level": self.database.level}
        cursor = (await self.ask(command))["cursor"]
        documents: list[Document] = cursor["firstBatch"]
        if not cursor["id"]:
            if is_sorted_here:
                documents.sort(key=itemgetter(by))
            return documents, True
        await self.ask({"killCursors": collection, "cursors": [cursor["id"]]})
        # No rule says which of the documents an unsorted reply omits.
        return (await self.find(collection, where, sort={by: 1}) if is_sorted_here else documents), False

    async def insert_once(self, collection: str, document: object) -> bool | None:
        """Insert a document without retrying.

        Returns True if it was stored, False if a unique index refused it, and None if the outcome is unknown.
        """
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
        """Update the matching documents. Returns False if an upsert met a duplicate key, else True.

        Args:
            collection: the name of the collection.
            where: the filter.
            change: the update document or pipeline.
            many: whether to update all matching documents instead of the first one.
            upsert: whether to insert a document if no document matches.
            hint: the name of the index to use.
        """
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
        """Run an attempt and return its result. After ``TryAgain``, pause and run it again until the time is up."""
        while True:
            try:
                return await attempt()
            except TryAgain as again:
                await self.pause(again.seconds)

    async def pause(self, seconds: float | None = None) -> None:
        """Rest for a random time of at most ``seconds``. With None, ``Clock.rest`` chooses the duration."""
        await finished(self._surface.sleep(self._clock.rest(seconds)))

    async def wait(self, signal: ChangeSignal, seen: int, seconds: float | None) -> None:
        """Wait until the count of ``signal`` is above ``seen``, for at most ``seconds``, or without limit if None."""
        await finished(self._surface.wait(signal, seen, seconds))

    async def acquire(self, lock: object, run: Run) -> None:
        """Acquire the lock of a run. Raises ``StoreUnavailable`` if the time is up first."""
        is_acquired = self._surface.acquire(lock, self._clock.left())
        if is_acquired is not True and not await finished(is_acquired):
            raise StoreUnavailable(
                f"{self.database.name}: this append waited for other appends of this handle to {run.name} until its "
                "time was up; it stored no event, so it is safe to repeat it"
            )

    def restart(self, *, endless: bool = False) -> None:
        """Restart the time limit for the next part of the call, or remove the limit with ``endless``."""
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
