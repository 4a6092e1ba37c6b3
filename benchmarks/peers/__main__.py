"""``python -m benchmarks.peers`` does the same work through other libraries and ours, and prints two tables.

The libraries take turns in each round, each with a new file or a new database. Libraries that are not installed are
named below the table with the missing module. ``--docs`` also writes the tables into ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from rich.console import Console

from benchmarks import mongo_floor, workload
from benchmarks.measure import timed
from benchmarks.mongo_server import described, lacking, new_server
from benchmarks.peers import on_mongo, on_sqlite
from benchmarks.peers.contract import Log, Peer, size_of
from benchmarks.peers.table import WIDTH, Cells, Comparison
from benchmarks.scratch import scratch

_SINGLE = 200
_BATCHES = 10
_BATCH = 100
_LOADED = 1_000
_TMPFS = Path("/dev/shm")  # noqa: S108  # in memory, where an fsync costs nothing

Place = Callable[[], AbstractContextManager[Any]]
"""Yields a new folder or the URI of a new database, which is removed afterwards."""

Size = Callable[[Any], int]
"""Returns the stored bytes of a folder or of a database."""


def measure(peers: list[Peer], place: Place, size: Size, rounds: int) -> dict[str, Cells]:
    """Return the medians of each library by its name."""
    numbers: dict[str, list[Cells]] = defaultdict(list)
    with ExitStack() as stack:
        loaded: dict[str, Log] = {}
        for peer in peers:
            log = loaded[peer.name] = stack.enter_context(peer.open(stack.enter_context(place())))
            _fill(log, _LOADED, peer.fill)
            log.load()
        for number in range(rounds + 1):
            for peer in peers[number % len(peers) :] + peers[: number % len(peers)]:
                single, bytes_each = _append(peer, place, size, 1, _SINGLE)
                hundred, _ = _append(peer, place, size, _BATCH, _BATCHES)
                cells = Cells(single, hundred, timed(loaded[peer.name].load, 1), bytes_each)
                if number:  # the first round warms up
                    numbers[peer.name].append(cells)
    return {name: Cells.median(cells) for name, cells in numbers.items()}


def _fill(log: Log, count: int, size: int) -> None:
    log.append_each([log.messages(chunk) for chunk in workload.chunks(workload.events(count), size)])


def _append(peer: Peer, place: Place, size: Size, batch: int, count: int) -> tuple[float, float]:
    """Return the seconds for each of ``count`` appends of ``batch`` messages, and the bytes of each message."""
    with place() as where:
        with peer.open(where) as log:
            first, *rest = [
                log.messages(chunk) for chunk in workload.chunks(workload.events(batch * (count + 1)), batch)
            ]
            log.append_each([first])
            seconds = timed(lambda: log.append_each(rest), count)
        return seconds, size(where) / (batch * (count + 1))


def _bytes_of(uri: str) -> int:
    """Return the bytes of all documents of a database as BSON, without indexes."""
    with MongoClient[Any](uri) as client:
        database = client.get_default_database()
        return sum(
            len(document.raw)
            for name in database.list_collection_names()
            for document in database.get_collection(name, mongo_floor.RAW).find()
        )


def _comparisons(fast: Path, rounds: int) -> Generator[Comparison]:
    def on(peers: tuple[Peer, ...], place: Place, size: Size, title: str, note: str) -> Comparison:
        installed = [peer for peer in peers if not peer.lacking]
        missing = [f"{peer.name}: not measured, {peer.lacking} is not installed" for peer in peers if peer.lacking]
        return Comparison(title, peers, measure(installed, place, size, rounds), [note, *missing])

    yield on(
        on_sqlite.PEERS, lambda: scratch(fast), size_of, "SQLite", "Bytes are those on disk after 201 single appends."
    )
    if lacking():
        return
    note = f"MongoDB is {described()}. Bytes are those of the documents as BSON, without indexes."
    yield on(on_mongo.PEERS, lambda: _new_database(fast), _bytes_of, "MongoDB", note)


@contextmanager
def _new_database(parent: Path) -> Generator[str]:
    """Yield the URI of a database on a new server, because a server slows down with the writes that it remembers."""
    with new_server(parent) as server, mongo_floor.database(server) as uri:
        yield uri


def main() -> None:
    """Measure, print the tables, and write them into a document if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="counted rounds (default 9)")
    parser.add_argument("--docs", type=Path, help="the folder whose benchmarks.md and pictures to write")
    options = parser.parse_args()
    fast = _TMPFS if _TMPFS.is_dir() else Path(tempfile.gettempdir())
    for comparison in _comparisons(fast, options.rounds):
        comparison.print(Console(width=WIDTH))
        if options.docs is not None:
            comparison.write(options.docs)


if __name__ == "__main__":
    main()
