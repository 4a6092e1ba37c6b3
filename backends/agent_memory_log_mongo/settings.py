"""What a store on MongoDB is opened with, and which promises weaker settings give up."""

from __future__ import annotations

import re
import warnings

import msgspec

from agent_memory_log.errors import InvalidArgument

DEFAULT_PREFIX = "amlog_"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_MAX_EVENT_BYTES = 12 * 1024 * 1024
LONGEST_TIMEOUT_SECONDS = 2_147_483
"""About 25 days: the most that MongoDB takes for ``maxTimeMS``."""

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""The largest document MongoDB holds (``maxBsonObjectSize``)."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,64}")
_READ_LEVELS = ("majority", "linearizable", "local", "available")


class WeakerPromises(UserWarning):
    """A store was opened with settings that give up some of what a store promises; the message says what."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store uses a database.

    - ``collection_prefix``: what the names of its collections begin with (default ``amlog_``; letters, digits, ``_``
      and ``-``).
    - ``write_concern``: ``"majority"`` (the default), or a number of servers, or a tag set's name; fewer than a
      majority can lose acknowledged appends when a primary fails.
    - ``journal``: whether they acknowledge what they have in their journals, on disk (default true), or in memory.
    - ``read_concern``: ``"majority"`` (the default), ``"linearizable"``, or ``"local"`` / ``"available"``, which can
      show what a failover takes back.
    - ``timeout_seconds``: how long a call may take, waits and retries included (default 30, at most some 25 days).
    - ``max_event_bytes``: the largest event, as encoded (default 12 MiB; MongoDB's own limit is 16 MiB for all that one
      append stores).
    - ``verify``: whether every read compares what it got with its checksums (default false; ``check`` always does).

    Raises ``InvalidArgument``; warns with ``WeakerPromises``.
    """

    collection_prefix: str = DEFAULT_PREFIX
    write_concern: str | int = "majority"
    journal: bool = True
    read_concern: str = "majority"
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES
    verify: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.collection_prefix, str) or not _PREFIX.fullmatch(self.collection_prefix):
            raise InvalidArgument(
                f"collection_prefix must be letters, digits, _ and -, at most 64, found {self.collection_prefix!r}"
            )
        concern = self.write_concern
        if type(concern) not in {str, int} or not concern or str(concern).startswith("-"):
            raise InvalidArgument(
                f"the write concern must be 'majority' or a number from 1, found {concern!r}: an append "
                "that no server acknowledges can promise nothing"
            )
        for name, value in (("journal", self.journal), ("verify", self.verify)):
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} must be true or false, found {value!r}")
        if self.read_concern not in _READ_LEVELS:
            raise InvalidArgument(f"the read concern must be {' or '.join(_READ_LEVELS)}, found {self.read_concern!r}")
        seconds = self.timeout_seconds
        if type(seconds) not in {int, float} or not 0 < seconds <= LONGEST_TIMEOUT_SECONDS:
            raise InvalidArgument(
                f"the timeout must be above 0 and at most {LONGEST_TIMEOUT_SECONDS:,} seconds, found {seconds!r}"
            )
        if type(self.max_event_bytes) is not int or not 0 < self.max_event_bytes <= MAX_DOCUMENT_BYTES:
            raise InvalidArgument(
                f"max_event_bytes must be from 1 to {MAX_DOCUMENT_BYTES:,}, found {self.max_event_bytes!r}"
            )

    def warn_of_what_is_given_up(self) -> None:
        """Warn with ``WeakerPromises`` where these settings ask for less than the promises need."""
        given_up = {
            "without a journal, an acknowledged append can be lost when servers lose power or are killed": (
                not self.journal
            ),
            f"with write concern {self.write_concern} instead of majority, an acknowledged append can be lost, and its "
            "seq given again, when a primary fails": isinstance(self.write_concern, int),
            f"with read concern {self.read_concern} instead of majority, a read or a follower can be shown events that "
            "a failover takes back, and miss acknowledged ones on a primary that was replaced": (
                self.read_concern in {"local", "available"}
            ),
        }
        for promise, is_given_up in given_up.items():
            if is_given_up:
                warnings.warn(promise, WeakerPromises, stacklevel=3)
