"""Checksums of what is stored, so that what was changed by hand, by a restore or by a disk is seen. Each is a CRC-32.

- A commit's ``sums`` are those of its events in their order, and last its own.
- An event's is over its BSON, begun at the CRC-32 of the run's key plus its seq: an event that stands at another seq,
  or in another run, has another one.
- A commit's own is over the BSON of its fields but ``sums``, ``events``, ``t`` and ``ts``, which a redaction changes.
- The ``sum`` of a run's document is over its fields in the order of their names but ``ceiling``, which rises, begun at
  the CRC-32 of the run's key.

They stand beside the events, as reading a map with one more field takes longer. A redaction puts its mask's sum in the
place of the event's, a deletion removes them: none is left of what was taken away.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import bson

from agent_memory_log.errors import StoreCorrupt

_Document = dict[str, Any]

REMEDY = "restore it from a backup; amlog verify lists all that is damaged"

WITHOUT_EVENTS: dict[str, int] = {"events": 0, "t": 0, "ts": 0}
"""The projection of a commit to what its own sum is over, and its sums."""

_NOT_SUMMED = frozenset({"sums", *WITHOUT_EVENTS})
_NOT_SUMMED_OF_RUN = frozenset({"_id", "sum", "ceiling", "heads"})
_INT32 = struct.Struct("<i")
_FIRST_EVENT_AT = 4 + len(b"\x04events\0") + 4


def encode_with_sums(commit: _Document) -> bytes:
    """A commit as BSON, with its sums. Its events are encoded once, and found again in the bytes."""
    own = bson.encode(_own_fields(commit))
    listed = bson.encode({name: commit[name] for name in WITHOUT_EVENTS if name in commit})
    size_at, zero_behind = _INT32.unpack_from, listed.index
    count = commit["n"]
    sums: list[int] = []
    at = _FIRST_EVENT_AT
    start = crc32(commit["k"]) + commit["v"] - count + 1
    for begun_at in range(start, start + count):
        # Before an event stand its kind, one byte, and its number as text, with a zero byte behind it.
        at = zero_behind(0, at) + 1
        end = at + size_at(listed, at)[0]
        sums.append(crc32(listed[at:end], begun_at))
        at = end
    sums.append(crc32(own))
    signed = struct.unpack(f"<{count + 1}i", struct.pack(f"<{count + 1}I", *sums))
    summed = bson.encode({"sums": signed})
    return _INT32.pack(len(own) + len(summed) + len(listed) - 10) + own[4:-1] + summed[4:-1] + listed[4:]


def event_sum(key: bytes, seq: int, event: _Document) -> int:
    """The sum of the event at ``seq`` of the run with this key."""
    return _signed(crc32(bson.encode(event), crc32(key) + seq))


def run_sum(key: bytes, fields: _Document) -> int:
    """The sum of the document of the run with this key."""
    summed = {name: fields[name] for name in sorted(fields.keys() - _NOT_SUMMED_OF_RUN)}
    return _signed(crc32(bson.encode(summed), crc32(key)))


def differences(commit: _Document, *, required: bool) -> Iterator[tuple[int | None, str]]:
    """What of a commit is not as it was written: the seq, None for all of it, and a sentence.

    Its numbers are integers; it may be one without its events, or emptied by a deletion. One without sums is as it was
    written unless they are ``required``.
    """
    count, last = commit["n"], commit["v"]
    name = f"the commit of events {last - count + 1} to {last}"
    sums: list[object] | None = commit.get("sums")
    if sums is None:
        if required and count:
            yield None, f"{name} has lost its checksums"
        return
    if type(sums) is not list or len(sums) != count + 1:
        yield None, f"{name} has not as many checksums as it had events"
    elif sums[-1] != _signed(crc32(bson.encode(_own_fields(commit)))):
        # Of its events nobody knows then at which seqs they belong.
        yield None, f"{name} differs from its checksum: in numbers, ids, times or meta"
    elif count:
        events: list[_Document] = commit.get("events", [])
        for seq, (event, expected) in enumerate(zip(events, sums, strict=False), last - count + 1):
            if type(event) is not dict or expected != event_sum(commit["k"], seq, event):
                yield seq, "differs from its checksum"


def compare(commits: Iterable[_Document], name: str, *, required: bool) -> None:
    """Compare commits of the run ``name`` with their sums. Raises ``StoreCorrupt`` for the first difference."""
    for commit in commits:
        for seq, problem in differences(commit, required=required):
            raise StoreCorrupt(f"{name}: {problem if seq is None else f'event {seq} {problem}'}: {REMEDY}")


def compare_run(document: _Document, name: str) -> None:
    """Compare a run's document, if it has a sum, with it. Raises ``StoreCorrupt``."""
    if "sum" in document and document["sum"] != run_sum(document["_id"], document):
        raise StoreCorrupt(f"{name}: the run's document differs from its checksum: {REMEDY}")


def _own_fields(commit: _Document) -> _Document:
    return {name: value for name, value in commit.items() if name not in _NOT_SUMMED}


def _signed(value: int) -> int:
    """The number as BSON's four bytes hold it."""
    return value - 2**32 if value >> 31 else value
