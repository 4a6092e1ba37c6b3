"""The settings of a store on MongoDB, and the warnings for settings that weaken its promises."""

from __future__ import annotations

import re
import warnings

import msgspec

from agent_memory_log.errors import InvalidArgument

DEFAULT_PREFIX = "amlog_"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_MAX_EVENT_BYTES = 12 * 1024 * 1024
LONGEST_TIMEOUT_SECONDS = 2_147_483
"""About 25 days, the largest ``maxTimeMS`` that MongoDB accepts."""

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""The size limit of a MongoDB document (``maxBsonObjectSize``)."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,64}")
_READ_LEVELS = ("majority", "linearizable", "local", "available")


class WeakerPromises(UserWarning):
    """The warning for settings that give up one of the store's promises; the message names the promise."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a store on MongoDB.

    Attributes:
        collection_prefix: the beginning of every collection name (default ``amlog_``). It has at most 64 letters,
            digits, ``_`` and ``-``.
        write_concern: ``"majority"`` (the default), a number of servers, or the name of a custom write concern. With
            fewer servers than a majority, a failover can lose acknowledged appends.
        journal: whether a server acknowledges a write only when it is in the journal on disk (default true).
        read_concern: ``"majority"`` (the default), ``"linearizable"``, ``"local"`` or ``"available"``. The last two
            can return events that a failover then rolls back.
        timeout_seconds: the time limit of one call in seconds, including waits and retries (default 30, at most
            2,147,483, about 25 days).
        max_event_bytes: the size limit of one encoded event in bytes (default 12 MiB). All events of one append share
            MongoDB's limit of 16 MiB for a document.
        verify: whether every read compares the documents with their checksums (default false). ``check`` always
            compares them.

    Raises:
        InvalidArgument: a value has the wrong type or is out of range.
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
                f"collection_prefix must have at most 64 letters, digits, _ and -, got {self.collection_prefix!r}"
            )
        concern = self.write_concern
        if type(concern) not in {str, int} or not concern or str(concern).startswith("-"):
            raise InvalidArgument(
                f"the write concern must be 'majority', the name of a custom one, or a number from 1, got {concern!r}; "
                "an append must be acknowledged by at least one server"
            )
        for name, value in (("journal", self.journal), ("verify", self.verify)):
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} must be true or false, got {value!r}")
        if self.read_concern not in _READ_LEVELS:
            raise InvalidArgument(f"the read concern must be {' or '.join(_READ_LEVELS)}, got {self.read_concern!r}")
        seconds = self.timeout_seconds
        if type(seconds) not in {int, float} or not 0 < seconds <= LONGEST_TIMEOUT_SECONDS:
            raise InvalidArgument(
                f"the timeout must be above 0 and at most {LONGEST_TIMEOUT_SECONDS:,} seconds, got {seconds!r}"
            )
        if type(self.max_event_bytes) is not int or not 0 < self.max_event_bytes <= MAX_DOCUMENT_BYTES:
            raise InvalidArgument(
                f"max_event_bytes must be from 1 to {MAX_DOCUMENT_BYTES:,}, got {self.max_event_bytes!r}"
            )

    def warn_of_weaker_promises(self) -> None:
        """Issue a ``WeakerPromises`` warning for each setting that gives up a promise."""
        weaker = {
            "without the journal, an acknowledged append can be lost when a server loses power or is killed": (
                not self.journal
            ),
            f"with write concern {self.write_concern} instead of majority, a failover can lose an acknowledged append "
            "and assign its seq again": isinstance(self.write_concern, int),
            f"with read concern {self.read_concern} instead of majority, a read or a follower can return events that "
            "a failover rolls back, and can miss acknowledged events on a replaced primary": (
                self.read_concern in {"local", "available"}
            ),
        }
        for promise, is_weaker in weaker.items():
            if is_weaker:
                warnings.warn(promise, WeakerPromises, stacklevel=3)
