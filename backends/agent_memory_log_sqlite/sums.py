"""Checksums: what a row's ``sum`` is made of.

A CRC-32 finds every damage of up to 32 bits in a row, and all but one of four billion others. It is no proof against
somebody who changes a row on purpose and its checksum with it.
"""

from __future__ import annotations

from zlib import crc32


def name_sum(agent: str, run: str) -> int:
    """What the checksum of every event of a run begins with."""
    return crc32(f"{agent}\0{run}\0".encode())


def event_sum(
    name: int,
    seq: int,
    event_id: str,
    event_type: str,
    microseconds: int,
    labels: str | None,
    data: bytes,
    verbatim: str | None,
) -> int:
    """The checksum of an event as it is stored; ``name`` is its run's ``name_sum``."""
    head = f"{seq}\0{event_id}\0{event_type}\0{microseconds}\0{labels}\0{verbatim}\0"
    return crc32(data, crc32(head.encode(), name))


def run_sum(
    agent: str,
    run: str,
    run_id: int,
    base: int,
    deletions: int,
    redactions: int,
    created: int | None,
    meta: str | None,
    expires_at: int | None,
    unsummed: int,
) -> int:
    """The checksum of a run's row."""
    row = f"{agent}\0{run}\0{run_id}\0{base}\0{deletions}\0{redactions}\0{created}\0{expires_at}\0{unsummed}\0{meta}"
    return crc32(row.encode())
