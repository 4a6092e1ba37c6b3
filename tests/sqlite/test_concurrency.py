"""Tests of many processes, threads and tasks that write to one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, decode_event, open_sync_store
from tests import processes

PROCESSES = 4
COUNT = 150


@pytest.mark.parametrize("runs", [1, 7])
def test_processes_threads_and_tasks_append_together(tmp_path: Path, runs: int) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    started = [
        processes.start("append_together", url, f"p{number}", str(runs), str(COUNT)) for number in range(PROCESSES)
    ]
    for process in started:
        processes.finish(process)
    written: dict[str, set[int]] = {}
    with open_sync_store(url) as store:
        for run in range(runs):
            snapshot = store.load_run("agent", f"run-{run}")
            assert [event.seq for event in snapshot.log] == list(range(1, snapshot.version + 1))
            latest: dict[str, int] = {}
            for event in snapshot.log:
                writer, number, *_ = decode_event(event, PlannerNote).note.split(" ")
                assert latest.get(writer, -1) < int(number), "a writer's own order is kept"
                latest[writer] = int(number)
                written.setdefault(writer, set()).add(int(number))
    assert len(written) == PROCESSES * 5
    assert all(numbers == set(range(COUNT)) for numbers in written.values())


def test_many_processes_can_create_the_same_file(tmp_path: Path) -> None:
    create_together(tmp_path, 2)


def create_together(folder: Path, attempts: int) -> None:
    """Let eight processes create the same file and append to it at once, ``attempts`` times."""
    for attempt in range(attempts):
        url = f"sqlite:///{folder / f'runs{attempt}.db'}"
        started = [processes.start("open_at_once", url, f"p{number}") for number in range(8)]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in started:
            processes.finish(process)
        with open_sync_store(url) as store:
            assert store.load_run("agent", "run").version == 8
