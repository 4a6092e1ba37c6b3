"""Checksums: what a row's ``sum`` is made of.

A CRC-32 finds every damage of up to 32 bits in a row, and all but one of four billion others. It is no proof against
somebody who changes a row on purpose and its checksum with it.
"""

from __future__ import annotations

from zlib import crc32

_PRIME = 4_294_967_291
"""The largest below 2^32: any bit of a number that is taken modulo it counts."""


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
    # Adding text costs half of formatting it all, on every append. Labels are JSON: neither of the two characters is in
    # them.
    head = f"{event_id}\0{event_type}"
    if labels is not None:
        head += "\0" + labels
    if verbatim is not None:
        head += "\1" + verbatim
    return crc32(head.encode() + data, (name + seq + microseconds) % _PRIME)


def run_sum(agent: str, run: str, numbers: tuple[int | None, ...], meta: str | None) -> int:
    """The checksum of a run's row, whose columns up to ``unsummed`` are ``numbers``."""
    return crc32(f"{agent}\0{run}\0{numbers}\0{meta}".encode())
