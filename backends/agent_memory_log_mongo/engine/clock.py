"""The one rule for how long a call may take, and how long it rests before it tries something again.

A call has the time that ``timeoutMS`` gives it, every command and every rest included. Nothing else limits how often a
command or an attempt is repeated. Two exceptions are asked for with ``Call.restart``: each part of a call that stands
by itself (one run of ``expire_runs``) has all of that time, and a follower that has read its run once has no end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from bson.errors import BSONError
from pymongo.errors import PyMongoError, WriteConcernError

from agent_memory_log.errors import DecodeError, StoreUnavailable
from agent_memory_log_mongo.documents.commits import Document
from agent_memory_log_mongo.engine.driver_errors import is_timeout, passes, translated, write_concern_code

_FIRST_REST = 0.002
_LONGEST_REST = 0.25
"""A rest is a random part of these seconds: of the first at first, of twice as many each time, of the last at most.

The first is about as long as an append takes, so that whoever was in the way is done. The last is far shorter than an
election, which MongoDB expects to take up to 12 seconds: the new primary is found soon after there is one.
"""

_LONGEST_WAIT_OF_A_FOLLOWER = 5.0
"""After how many seconds a follower whose server is away looks whether its handle was closed."""


class Clock:
    """The time that a call has left, the failure it met last, and the rests it took."""

    def __init__(self, seconds: float, where: str, forget: Callable[[], object]) -> None:
        self._seconds = seconds
        self._until: float | None = time.monotonic() + seconds
        self._where = where
        self._rests = 0
        self._forget = forget
        self._failure: Exception | None = None

    def left(self) -> float:
        """The seconds left. Raises ``StoreUnavailable`` when there are none."""
        if self._until is None:
            return _LONGEST_WAIT_OF_A_FOLLOWER
        left = self._until - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(
                f"{self._where}: not done within {self._seconds:g} s"
                + (f"; last met: {self._failure}" if self._failure else ", for others were writing")
                + ": what was to be written may be stored or not; the same append again is safe"
            ) from self._failure
        return left

    def rest(self, longest: float | None = None) -> float:
        """How long to rest before the next attempt: a random part of ``longest`` seconds, so that those who collided
        do not again; None: of twice as many as the last time.
        """
        if longest is None:
            longest = min(_FIRST_REST * 2.0**self._rests, _LONGEST_REST)
            # A follower may rest for days, and no float holds 2 to the power of a thousand.
            self._rests += longest < _LONGEST_REST
        return min(random.uniform(0, longest), self.left())  # noqa: S311  # not for secrets

    def restart(self, *, endless: bool) -> None:
        """Have all of the time again, or no end."""
        self._until = None if endless else time.monotonic() + self._seconds
        self._rests = 0

    def note(self, error: PyMongoError) -> None:
        """Note a failure that passes. Raises what it means when it does not, or when time is up."""
        self._failure = error
        self._forget()
        if self._until is None and (passes(error) or is_timeout(error)):
            return
        if not passes(error) or (is_timeout(error) and self._until is not None and time.monotonic() >= self._until):
            raise translated(error, self._where) from error

    def is_acknowledged(self, reply: Document) -> bool:
        """Whether a write stands where it was asked to; if not, notes it, or raises what it means."""
        code = write_concern_code(reply)
        if code is None:
            return True
        self.note(WriteConcernError(str(reply["writeConcernError"].get("errmsg")), code, reply["writeConcernError"]))
        return False

    def unreadable(self, error: BSONError) -> DecodeError:
        """The error for a reply that the driver cannot read."""
        return DecodeError(f"{self._where}: what is stored cannot be read: {error}")
