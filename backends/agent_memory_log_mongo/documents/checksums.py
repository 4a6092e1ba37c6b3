"""CRC-32 checksums of the stored documents, which detect changes made by hand, by a restore or by a faulty disk.

- A commit's ``sums`` has the checksum of each event in order, and then the commit's own checksum.
- An event's checksum covers its BSON. The CRC starts at the CRC-32 of the run's key plus the event's seq. So an event
  that was moved to another seq or another run no longer matches.
- A commit's own checksum covers its fields except ``sums``, ``events``, ``t`` and ``ts``, which a redaction changes. So
  two redactions at the same time need not agree on it.
- The ``sum`` of a run's document covers its fields in the order of their names, except ``ceiling``, which grows. The
  CRC starts at the CRC-32 of the run's key.

The checksums are next to the events and not inside them, because one more field in each event makes reads slower. A
redaction replaces the event's checksum with that of the mask, and a deletion removes all of them. So no checksum of
erased content remains.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import bson

from agent_memory_log.errors import StoreCorrupt

_Document = dict[str, Any]

REMEDY = "restore it from a backup; amlog verify lists all damage"

WITHOUT_EVENTS: dict[str, int] = {"events": 0, "t": 0, "ts": 0}
"""The projection of a commit to its ``sums`` and the fields that its own checksum covers."""

_NOT_SUMMED = frozenset({"sums", *WITHOUT_EVENTS})
_NOT_SUMMED_OF_RUN = frozenset({"_id", "sum", "ceiling", "heads"})
_SIGN = 2**31
_INT32 = struct.Struct("<i")
_FIRST_EVENT_AT = 4 + len(b"\x04events\0") + 4


def encode_with_sums(own_fields: _Document, other_fields: _Document) -> bytes:
    """Return a commit as BSON, with its checksums.

    The events are encoded only once; their checksums are computed from the slices of the result.

    Args:
        own_fields: the fields that the commit's own checksum covers.
        other_fields: the other fields, first ``events``.
    """
    own, listed = bson.encode(own_fields), bson.encode(other_fields)
    size_at, find_zero = _INT32.unpack_from, listed.index
    count = own_fields["n"]
    sums: list[int] = []
    at = _FIRST_EVENT_AT
    start = crc32(own_fields["k"]) + own_fields["v"] - count + 1
    for start_value in range(start, start + count):
        # Before each event are its BSON type (one byte) and its list index (text that ends with a zero byte).
        at = find_zero(0, at) + 1
        end = at + size_at(listed, at)[0]
        sums.append(crc32(listed[at:end], start_value))
        at = end
    sums.append(crc32(own))
    summed = bson.encode({"sums": [_signed(value) for value in sums]})
    return _INT32.pack(len(own) + len(summed) + len(listed) - 10) + own[4:-1] + summed[4:-1] + listed[4:]


def event_sum(key: bytes, seq: int, event: _Document) -> int:
    """Return the checksum of the event at ``seq`` of the run with this key."""
    return _signed(crc32(bson.encode(event), crc32(key) + seq))


def run_sum(key: bytes, fields: _Document) -> int:
    """Return the checksum of the document of the run with this key."""
    summed = {name: fields[name] for name in sorted(fields.keys() - _NOT_SUMMED_OF_RUN)}
    return _signed(crc32(bson.encode(summed), crc32(key)))


def differences(commit: _Document, *, required: bool) -> Iterator[tuple[int | None, str]]:
    """Yield each difference between a commit and its checksums, as a seq and a message.

    The seq is None if the difference concerns the whole commit. The commit's numbers must be integers. The commit may
    be a projection without events, or emptied by a deletion. A commit without checksums is a difference only if they
    are ``required``.
    """
    count, last = commit["n"], commit["v"]
    name = f"the commit of events {last - count + 1} to {last}"
    sums: list[object] | None = commit.get("sums")
    if sums is None:
        if required and count:
            yield None, f"{name} has lost its checksums"
        return
    if type(sums) is not list or len(sums) != count + 1:
        yield None, f"{name} has a wrong number of checksums"
    elif sums[-1] != _signed(crc32(bson.encode(_own_fields(commit)))):
        # The seqs of its events are unknown now, so the checksums of the events cannot be compared.
        yield None, f"{name} differs from its checksum: its numbers, ids, times or meta were changed"
    elif count:
        events: list[_Document] = commit.get("events", [])
        for seq, (event, expected) in enumerate(zip(events, sums, strict=False), last - count + 1):
            if type(event) is not dict or expected != event_sum(commit["k"], seq, event):
                yield seq, "differs from its checksum"


def compare(commits: Iterable[_Document], name: str, *, required: bool) -> None:
    """Raise ``StoreCorrupt`` if a commit of the run ``name`` differs from its checksums."""
    for commit in commits:
        for seq, problem in differences(commit, required=required):
            raise StoreCorrupt(f"{name}: {problem if seq is None else f'event {seq} {problem}'}: {REMEDY}")


def compare_run(document: _Document, name: str) -> None:
    """Raise ``StoreCorrupt`` if a run's document has a checksum and differs from it."""
    if "sum" in document and document["sum"] != run_sum(document["_id"], document):
        raise StoreCorrupt(f"{name}: the run's document differs from its checksum: {REMEDY}")


def _own_fields(commit: _Document) -> _Document:
    return {name: value for name, value in commit.items() if name not in _NOT_SUMMED}


def _signed(value: int) -> int:
    """Return an unsigned 32-bit number as the signed one that BSON stores."""
    return (value ^ _SIGN) - _SIGN
