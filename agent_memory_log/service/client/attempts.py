"""Decides how often a request is sent: every operation can be repeated, within the time limit of the call."""

from __future__ import annotations

import random
import time

from agent_memory_log.errors import StoreUnavailable

_FIRST_REST = 0.05
_LONGEST_REST = 2.0
"""The first and the largest upper limit of a rest, in seconds. The upper limit doubles with each rest.

A rest is a random time below the limit, so that clients of a server that restarts do not all come at once.
"""

_LONGEST_ENDLESS_REST = 60.0
"""The longest rest of a call without a time limit, even if the server asks for a longer one."""

_SHORTEST_WAIT = 1.0
_LONGEST_CONNECT = 5.0
"""The limits of the waits for an answer and for a connection, in seconds."""


class Failure(Exception):  # never leaves this package
    """An attempt that failed, and that may succeed later.

    Args:
        error: The error to raise if the time is up.
        seconds: The seconds after which the server wants the next attempt, or None.
        was_sent: Whether the server may have carried out the request.
        is_refused: Whether nobody accepts the connection.
    """

    def __init__(
        self,
        error: StoreUnavailable,
        *,
        seconds: float | None = None,
        was_sent: bool = True,
        is_refused: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.seconds = seconds
        self.was_sent = was_sent
        self.is_refused = is_refused


def broken_stream() -> Failure:
    """Return the failure of a stream that stopped before its end."""
    return Failure(StoreUnavailable("the stream stopped before its end"))


class Attempts:
    """The attempts of one call.

    Args:
        name: The server and the operation, for messages.
        seconds: The time limit of the call.
        writes: Whether the operation changes the store.
        endless: Whether there is no time limit, as for a follower.
    """

    def __init__(self, name: str, seconds: float, *, writes: bool = False, endless: bool = False) -> None:
        self._name = name
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._writes = writes
        self._endless = endless
        self._rests = 0
        self._was_sent = False

    def wait_seconds(self) -> float:
        """Return the seconds that the next attempt may wait for an answer: half of the time that is left.

        So a connection that went silent costs half of the time, and not the whole call.
        """
        if self._endless:
            self._until = time.monotonic() + self._seconds
        left = max(self._until - time.monotonic(), 0.0)
        return max(left / 2, min(left, _SHORTEST_WAIT), 0.001)

    def connect_seconds(self) -> float:
        """Return the seconds that the next attempt may wait for a connection."""
        return min(self.wait_seconds(), _LONGEST_CONNECT)

    def rest_after(self, failure: Failure) -> float:
        """Return the seconds to rest before the next attempt. Raises ``StoreUnavailable`` when the time is up."""
        self._was_sent |= failure.was_sent
        rest = random.uniform(0, min(_FIRST_REST * 2.0**self._rests, _LONGEST_REST))  # noqa: S311  # not for secrets
        self._rests = min(self._rests + 1, 10)
        rest += failure.seconds or 0.0
        if self._endless:
            return min(rest, _LONGEST_ENDLESS_REST)
        if time.monotonic() + rest >= self._until:
            raise self.error_of(failure) from failure.__cause__
        return rest

    def error_of(self, failure: Failure) -> StoreUnavailable:
        """Return the error of a call whose last attempt failed."""
        error = failure.error
        if type(error) is not StoreUnavailable:
            return error
        outcome = ""
        if self._writes and (self._was_sent or failure.was_sent):
            outcome = "; the server may have carried it out, and it is safe to repeat the call"
        elif self._writes:
            outcome = "; nothing was written"
        return StoreUnavailable(f"{self._name}: {error}{outcome}")

    def check_time(self) -> None:
        """Raise ``Failure`` if the time is up while an answer arrives."""
        if time.monotonic() >= self._until:
            raise Failure(StoreUnavailable(f"the answer did not end within {self._seconds:g} s"))

    def succeeded(self) -> None:
        """Note a sign of life in a stream: the next rest is a short one."""
        self._rests = 0
