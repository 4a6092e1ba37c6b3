"""``python -m benchmarks.instructions.workloads NAME TIMES`` does an operation ``TIMES`` times.

The preparation does not depend on ``TIMES``. So the difference of two runs is the cost of the operations alone. The
operations of the longer run take about 500 million instructions, so that small differences at the start do not count.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from agent_memory_log import Snapshot, SyncStore, open_sync_store
from agent_memory_log.transcript import build
from agent_memory_log_sqlite import open_file
from benchmarks import transcript, workload
from benchmarks.recall.corpus import conversations
from benchmarks.recall.rankers import recall_index

_PROVIDER = "anthropic"
_LONG = 1_000
_BATCH = 100
_TURN = 10
_APPENDS = 4_000
_BATCHES = 100
_TURNS = 1_200


@contextmanager
def _store() -> Generator[SyncStore]:
    with (
        tempfile.TemporaryDirectory(prefix="instructions-") as folder,
        open_sync_store(f"sqlite:///{Path(folder) / 'log.db'}") as store,
    ):
        yield store


def _append_of(size: int, most: int, times: int) -> None:
    batches = list(workload.chunks(workload.events(most * size), size))
    with _store() as store:
        for number, batch in enumerate(batches[:times]):
            store.append_events("agent", str(number % 10), *batch)


def append(times: int) -> None:
    """Append one event."""
    _append_of(1, _APPENDS, times)


def batch(times: int) -> None:
    """Append 100 events at once."""
    _append_of(_BATCH, _BATCHES, times)


def load(times: int) -> None:
    """Load a run of 1,000 events."""
    with _store() as store:
        store.append_events("agent", "run", *workload.events(_LONG))
        for _ in range(times):
            store.load_run("agent", "run")


def build_transcript(times: int) -> None:
    """Build the transcript of 1,000 events."""
    snapshot = Snapshot("agent", "run", transcript.numbered_events(_PROVIDER, _LONG), version=_LONG)
    for _ in range(times):
        build(snapshot, _PROVIDER)


def extend(times: int) -> None:
    """Add a turn to the transcript of 1,000 events."""
    events = transcript.numbered_events(_PROVIDER, _LONG + _TURN * _TURNS)
    snapshot = Snapshot("agent", "run", events[:_LONG], version=_LONG)
    current = build(snapshot, _PROVIDER)
    for end in range(_LONG, _LONG + _TURN * times, _TURN):
        turn = Snapshot("agent", "run", events[end : end + _TURN], version=end + _TURN, after=end)
        snapshot = snapshot.extend(turn)
        current.update(snapshot)


def search(times: int) -> None:
    """Search the messages of a conversation."""
    conversation = conversations("chats")[0]
    ranker = recall_index(conversation)
    for question in islice(cycle(conversation.questions), times):
        ranker(question.question)


WORKLOADS: dict[str, tuple[Callable[[int], None], int]] = {
    "append one event": (append, _APPENDS),
    "append 100 events": (batch, _BATCHES),
    "load 1,000 events": (load, 20),
    "build 1,000 events": (build_transcript, 40),
    "extend by a turn": (extend, _TURNS),
    "search": (search, 250),
}
"""The operations with how often the longer of two runs does them."""


if __name__ == "__main__":
    # SQLite's backend looks at its folder once in a millisecond, which under valgrind would be at each append. A test
    # that imports this module must not change that, for it shares its process with the tests of that look.
    open_file._SECONDS_A_LOOK = 3_600  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # it is no setting
    gc.disable()
    WORKLOADS[sys.argv[1]][0](int(sys.argv[2]))
