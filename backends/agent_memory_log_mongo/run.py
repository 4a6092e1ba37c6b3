"""Running operations: with and without ``await``, repeating what fails for a cause that passes, within a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

import pymongo
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import MongoClient
from pymongo.errors import InvalidName, PyMongoError, WriteConcernError

from agent_memory_log.errors import DecodeError, InvalidArgument, StoreUnavailable
from agent_memory_log_mongo.documents import Document
from agent_memory_log_mongo.failures import is_timeout, passes, translated, write_concern_code
from agent_memory_log_mongo.steps import Command, Failed, Onward, Pause, Request, Steps

_T = TypeVar("_T")

CODEC: CodecOptions[Document] = CodecOptions(tz_aware=False)
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25
_LONGEST_WAIT_OF_A_FOLLOWER = 5.0
"""After how many seconds a follower whose server is away looks whether its handle was closed."""


class SyncDatabase(Protocol):
    """What is used of ``pymongo.database.Database``."""

    def command(self, command: Document, /, *, codec_options: CodecOptions[Document]) -> Document:
        """Run a command on the primary."""
        ...


class AsyncDatabase(Protocol):
    """What is used of ``pymongo.asynchronous.database.AsyncDatabase``, and of Motor's."""

    def command(self, command: Document, /, *, codec_options: CodecOptions[Document]) -> Awaitable[Document]:
        """Run a command on the primary."""
        ...


def database_of(client: object, name: str, kind: str, *, is_sync: bool) -> Any:  # noqa: ANN401  # of any driver
    """The database ``name`` of a client that was handed in to a ``kind``. Raises ``InvalidArgument``."""
    if isinstance(client, MongoClient) is not is_sync:
        wanted = "pymongo's MongoClient" if is_sync else "pymongo's AsyncMongoClient, or Motor's AsyncIOMotorClient"
        raise InvalidArgument(f"{kind} takes {wanted}, found a {type(client).__name__}")
    try:
        return cast("MongoClient[Document]", client)[name]
    except (InvalidName, TypeError) as error:
        raise InvalidArgument(f"{name!r} is no name of a database: {error}") from error


class Clock:
    """The time an operation has, the causes it met, and the pauses it made. ``seconds`` None is no end."""

    def __init__(self, seconds: float | None, where: str, forget: Callable[[], object] | None = None) -> None:
        self._seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds
        self._where = where
        self._pauses = 0
        self._forget = forget
        self._met: Exception | None = None
        self._check: Callable[[], object] | None = None

    def left(self) -> float:
        """The seconds left. Raises ``StoreUnavailable`` when there are none."""
        if self._until is None:
            if self._check is not None:
                self._check()
            return _LONGEST_WAIT_OF_A_FOLLOWER
        left = self._until - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(
                f"{self._where}: not done within {self._seconds:g} s"
                + (f"; last met: {self._met}" if self._met else ", for others were writing")
                + ": what was to be written may be stored or not; the same append again is safe"
            ) from self._met
        return left

    def pause(self) -> float:
        """How long to wait before the next attempt, in seconds; spread, so that those who collided do not again."""
        longest = min(_FIRST_PAUSE * 2.0**self._pauses, _LONGEST_PAUSE)
        # A follower may pause for days, and no float holds 2 to the power of a thousand.
        self._pauses += longest < _LONGEST_PAUSE
        return min(random.uniform(0, longest), self.left())  # noqa: S311  # not for secrets

    def part(self, seconds: float) -> float:
        """How long to wait for others, in seconds: some part of ``seconds``, so that they do not meet again."""
        return min(random.uniform(0, seconds), self.left())  # noqa: S311  # not for secrets

    def begin_anew(self) -> None:
        """Have all of the time again."""
        self._until = None if self._seconds is None else time.monotonic() + self._seconds
        self._pauses = 0

    def lasts(self, check: Callable[[], object] | None = None) -> None:
        """From now on there is no end but what ``check``, called before each attempt and each pause, raises."""
        self._until = None
        self._check = check

    def met(self, error: PyMongoError) -> None:
        """Note a failure that passes. Raises what it means when it does not, or when time is up."""
        self._met = error
        if self._forget is not None:
            self._forget()
        if self._until is None and (passes(error) or is_timeout(error)):
            return
        if not passes(error) or (is_timeout(error) and self._until is not None and time.monotonic() >= self._until):
            raise translated(error, self._where) from error

    def unreadable(self, error: BSONError) -> DecodeError:
        """The error for a reply that the driver cannot read."""
        return DecodeError(f"{self._where}: what is stored cannot be read: {error}")

    def met_in(self, reply: Document) -> bool:
        """Note a write concern error in a reply. Raises what it means when it does not pass."""
        if write_concern_code(reply) is None:
            return False
        error = WriteConcernError(
            str(reply["writeConcernError"].get("errmsg")), write_concern_code(reply), reply["writeConcernError"]
        )
        self.met(error)
        return True


def run_sync(steps: Steps[_T], database: SyncDatabase, clock: Clock) -> _T:
    """Run an operation on this thread."""
    answer: object = None
    try:
        while True:
            answer = carry_out_sync(steps.send(answer), database, clock)
    except StopIteration as end:
        done: _T = end.value
        return done


def carry_out_sync(request: Request, database: SyncDatabase, clock: Clock) -> object:
    """Carry out a command or a pause."""
    while isinstance(request, Command):
        try:
            with pymongo.timeout(clock.left()):
                reply = database.command(request.document, codec_options=CODEC)
            if not clock.met_in(reply):
                return reply
        except PyMongoError as error:
            clock.met(error)
        except BSONError as error:
            raise clock.unreadable(error) from error
        time.sleep(clock.pause())
        if request.once:
            return Failed()
    if isinstance(request, Pause):
        time.sleep(clock.part(request.seconds))
    if isinstance(request, Onward):
        clock.begin_anew()
    return None


async def run_async(steps: Steps[_T], database: AsyncDatabase, clock: Clock) -> _T:
    """Run an operation as a part of this task."""
    answer: object = None
    try:
        while True:
            answer = await carry_out_async(steps.send(answer), database, clock)
    except StopIteration as end:
        done: _T = end.value
        return done


async def carry_out_async(request: Request, database: AsyncDatabase, clock: Clock) -> object:
    """Carry out a command or a pause."""
    while isinstance(request, Command):
        try:
            reply = await _answered(request.document, database, clock.left())
            if not clock.met_in(reply):
                return reply
        except PyMongoError as error:
            clock.met(error)
        except BSONError as error:
            raise clock.unreadable(error) from error
        await asyncio.sleep(clock.pause())
        if request.once:
            return Failed()
    if isinstance(request, Pause):
        await asyncio.sleep(clock.part(request.seconds))
    if isinstance(request, Onward):
        clock.begin_anew()
    return None


async def _answered(command: Document, database: AsyncDatabase, seconds: float) -> Document:
    """The reply to a command. A cancellation is never lost, as Python 3.11's ``wait_for``, in the driver, may do."""
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        with pymongo.timeout(seconds):
            return await database.command(command, codec_options=CODEC)
    finally:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError
