"""Tests of killed writers: acknowledged batches are stored completely, and no batch is stored in part."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, decode_event, open_sync_store
from tests import processes

KILLS = 3


@pytest.mark.parametrize("program", ["append_until_killed", "append_until_killed_async"])
@pytest.mark.parametrize("durability", ["full", "os"])
def test_acknowledged_batches_survive_a_killed_process(tmp_path: Path, program: str, durability: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}?durability={durability}"
    kill_writers(program, url, KILLS, random.Random(program + durability))


def kill_writers(program: str, url: str, kills: int, chance: random.Random) -> None:
    """Start and kill a writer repeatedly, and check after each kill that all acknowledged batches are complete."""
    acknowledged: set[int] = set()
    for _ in range(kills):
        process = processes.start(program, url, str(max(acknowledged, default=-1) + 1))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # A random number of acknowledgements gives a random moment in the next append.
        for _ in range(chance.randrange(1, 60)):
            acknowledged.add(int(process.stdout.readline()))
        process.kill()
        rest, _ = process.communicate(timeout=processes.PATIENCE)
        acknowledged.update(int(line) for line in rest.splitlines() if rest.endswith("\n"))
        stored = _stored_batches(url)
        assert acknowledged <= stored
    assert len(acknowledged) > kills


def _stored_batches(url: str) -> set[int]:
    """Return the numbers of the batches in the run, and check that each batch is complete and contiguous."""
    with open_sync_store(url) as store:
        snapshot = store.load_run("agent", "run")
    assert [event.seq for event in snapshot.log] == list(range(1, snapshot.version + 1))
    batches: list[tuple[int, int, int]] = []
    for event in snapshot.log:
        _, number, part, size, *_ = decode_event(event, PlannerNote).note.split(" ")
        batches.append((int(number), int(part), int(size)))
    numbers: set[int] = set()
    index = 0
    while index < len(batches):
        batch, _, length = batches[index]
        assert batches[index : index + length] == [(batch, part, length) for part in range(length)]
        assert batch not in numbers
        numbers.add(batch)
        index += length
    return numbers
