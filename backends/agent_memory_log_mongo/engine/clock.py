"""Limits the duration of a call and chooses the rests between its attempts.

``timeoutMS`` limits a call, including all its commands and rests. Nothing else limits how often a command or an
attempt is repeated. ``Call.restart`` makes two exceptions. Each independent part of a call, like one run of
``expire_runs``, has the full time. A follower has no limit after its first read of the run.
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
"""The first and the largest upper limit of a rest, in seconds. The upper limit doubles with each rest.

Each rest is a random time below the upper limit. The first limit is about the duration of one append, so
that the other writer can finish. The largest limit is far shorter than an election, which MongoDB expects to take up to
12 seconds. So a call finds a new primary soon after its election.
"""

_LONGEST_WAIT_OF_A_FOLLOWER = 5.0
"""The interval, in seconds, at which a follower that cannot reach a server checks whether its handle was closed."""


class Clock:
    """The remaining time of a call, its last failure, and the number of its rests."""

    def __init__(self, seconds: float, where: str, forget: Callable[[], object]) -> None:
        self._seconds = seconds
        self._until: float | None = time.monotonic() + seconds
        self._where = where
        self._rests = 0
        self._forget = forget
        self._failure: Exception | None = None

    def left(self) -> float:
        """Return the seconds left. Raises ``StoreUnavailable`` when the time is up."""
        if self._until is None:
            return _LONGEST_WAIT_OF_A_FOLLOWER
        left = self._until - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(
                f"{self._where}: the call did not finish within {self._seconds:g} s; "
                + (f"last error: {self._failure}" if self._failure else "other writers kept changing the run")
                + ". The events may or may not be stored; it is safe to append the same events again"
            ) from self._failure
        return left

    def rest(self, longest: float | None = None) -> float:
        """Return the seconds to rest before the next attempt: a random time of at most ``longest``.

        The random part keeps writers that collided from colliding again. With None, the longest rest doubles each time.
        """
        if longest is None:
            longest = min(_FIRST_REST * 2.0**self._rests, _LONGEST_REST)
            # A follower may rest many times over days, so the exponent must stop growing before the float overflows.
            self._rests += longest < _LONGEST_REST
        return min(random.uniform(0, longest), self.left())  # noqa: S311  # not for secrets

    def restart(self, *, endless: bool) -> None:
        """Restart the time limit, or remove it with ``endless``."""
        self._until = None if endless else time.monotonic() + self._seconds
        self._rests = 0

    def note(self, error: PyMongoError) -> None:
        """Record a temporary failure and forget the remembered heads.

        Raises this library's error for any other failure, or when the time is up.
        """
        self._failure = error
        self._forget()
        if self._until is None and (passes(error) or is_timeout(error)):
            return
        if not passes(error) or (is_timeout(error) and self._until is not None and time.monotonic() >= self._until):
            raise translated(error, self._where) from error

    def is_acknowledged(self, reply: Document) -> bool:
        """Return whether a write met its write concern.

        If not, record the failure as ``note`` does, which may raise.
        """
        code = write_concern_code(reply)
        if code is None:
            return True
        self.note(WriteConcernError(str(reply["writeConcernError"].get("errmsg")), code, reply["writeConcernError"]))
        return False

    def unreadable(self, error: BSONError) -> DecodeError:
        """Return the error for a reply that the driver cannot decode."""
        return DecodeError(f"{self._where}: a stored document cannot be decoded: {error}")
