"""Clients of a server, as processes: ``python -m tests.torture.load_clients NAME ARGUMENTS``. See ``test_server_load``.

Each client keeps a journal. After a kill, it is started with the same journal, and repeats the call that has no answer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from agent_memory_log import open_sync_store
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.memory import Preference, SyncMemoryClient
from tests.programs import numbered
from tests.waiting import PATIENCE

Result = TypeVar("Result")

AGENT = "load"
SHARED_RUNS = ("shared-0", "shared-1")
"""The runs of all writers, which followers read."""

KEYS = 100
"""The number of keys of a memory client. It gives each of them new values in turn."""


class Sent(msgspec.Struct, frozen=True, tag=True):
    """The client will send a write: the batch ``number`` to the run ``name``, or a value for the key ``name``."""

    number: int
    name: str
    expected_version: int | None = None


class Acknowledged(msgspec.Struct, frozen=True, tag=True):
    """The server acknowledged the write that was sent last. An append has seqs."""

    seqs: tuple[int, ...] = ()


class Seen(msgspec.Struct, frozen=True, tag=True):
    """A follower received an event."""

    seq: int
    event_id: str


Entry = Sent | Acknowledged | Seen


def entries_of(path: Path) -> list[Entry]:
    """Return the complete lines of a journal."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [msgspec.json.decode(line, type=Entry) for line in lines]


def acknowledged_writes(entries: Sequence[Entry]) -> Iterator[tuple[Sent, Acknowledged]]:
    """Yield each acknowledged write of a journal."""
    for first, second in pairwise(entries):
        if isinstance(first, Sent) and isinstance(second, Acknowledged):
            yield first, second


def batch_size(number: int) -> int:
    """Return the number of events of a batch."""
    return number % 3 + 1


def memory_value(client: str, number: int) -> str:
    """Return the value that a memory client remembers."""
    return f"value{client}x{number}"


class Journal:
    """The journal of this process. An entry is on the disk when ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        # A kill can leave an incomplete line.
        os.ftruncate(self._file, path.read_bytes().rfind(b"\n") + 1)
        self.entries = entries_of(path)

    def write(self, entry: Entry) -> None:
        """Append an entry."""
        os.write(self._file, msgspec.json.encode(entry) + b"\n")
        os.fsync(self._file)
        self.entries.append(entry)

    def unanswered(self) -> Sent | None:
        """Return the write that was sent last, if it is not acknowledged."""
        last = self.entries[-1] if self.entries else None
        return last if isinstance(last, Sent) else None

    def next_number(self) -> int:
        """Return the number of the next write."""
        return sum(isinstance(entry, Sent) for entry in self.entries)


def until_answered(call: Callable[[], Result]) -> Result:
    """Make the first call to a server, which may be restarting: an address that refuses it fails at once."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def write(client: str, url: str, path: Path) -> None:
    """Append batches to runs that others write too, to an own run, and to runs of one batch."""
    journal = Journal(path)
    own_run, own_version = f"own-{client}", 0
    for earlier, acknowledged in acknowledged_writes(journal.entries):
        if earlier.name == own_run:
            own_version = acknowledged.seqs[-1]
    number = journal.next_number()
    with until_answered(lambda: open_sync_store(url)) as store:
        while True:
            sent = journal.unanswered()
            if sent is None:
                if path.with_name("stop").exists():
                    return
                if number % 4 == 0:
                    sent = Sent(number, f"single-{client}-{number}")
                elif number % 4 < 3:
                    sent = Sent(number, own_run, own_version)
                else:
                    sent = Sent(number, SHARED_RUNS[number // 4 % len(SHARED_RUNS)])
                journal.write(sent)
                number += 1
            batch = numbered(client, sent.number, batch_size(sent.number))
            result = store.append_events(AGENT, sent.name, *batch, expected_version=sent.expected_version)
            journal.write(Acknowledged(tuple(event.seq for event in result.events)))
            if sent.name == own_run:
                own_version = result.version


def follow(run: str, url: str, path: Path) -> None:
    """Follow a run until this process is killed."""
    journal = Journal(path)
    with until_answered(lambda: open_sync_store(url)) as store:
        for event in store.follow(AGENT, run, after=len(journal.entries)):  # an entry for each event
            journal.write(Seen(event.seq, event.event_id))


def remember(client: str, url: str, path: Path) -> None:
    """Remember values, and search for each of them after it was acknowledged."""
    journal = Journal(path)
    number = journal.next_number()
    with SyncMemoryClient(config={"mode": "remote", "base_url": url}) as me:  # the token names the tenant and the user
        until_answered(me.stats)
        while True:
            sent = journal.unanswered()
            if sent is None:
                if path.with_name("stop").exists():
                    return
                sent = Sent(number, f"key-{client}-{number % KEYS}")
                journal.write(sent)
                number += 1
            value = memory_value(client, sent.number)
            outcome = me.remember(key=sent.name, value=value)
            assert outcome.action != "blocked", outcome
            journal.write(Acknowledged())
            records = [hit.record for hit in me.search(value)]
            assert any(
                record is not None and isinstance(record.data, Preference) and record.data.value == value
                for record in records
            ), (value, records)


if __name__ == "__main__":
    *_arguments, _path = sys.argv[2:]
    globals()[sys.argv[1]](*_arguments, Path(_path))
