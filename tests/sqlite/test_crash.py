"""A process killed at any moment: what it was told is stored is there, whole, and nothing is there in part."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, decode_event, open_sync_store
from tests import processes

KILLS = 15


@pytest.mark.parametrize("program", ["append_until_killed", "append_until_killed_async"])
@pytest.mark.parametrize("durability", ["full", "os"])
def test_acknowledged_batches_survive_whole(tmp_path: Path, program: str, durability: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}?durability={durability}"
    kill_writers(program, url, KILLS, random.Random(program + durability))


def kill_writers(program: str, url: str, kills: int, chance: random.Random) -> None:
    """Start a writer and kill it, again and again: after each kill, everything it acknowledged is stored whole."""
    acknowledged: set[int] = set()
    for _ in range(kills):
        process = processes.start(program, url, str(max(acknowledged, default=-1) + 1))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # Kill after a random number of acknowledgements, and so at a random moment of the append after them.
        for _ in range(chance.randrange(1, 60)):
            acknowledged.add(int(process.stdout.readline()))
        process.kill()
        rest, _ = process.communicate(timeout=processes.PATIENCE)
        acknowledged.update(int(line) for line in rest.splitlines() if rest.endswith("\n"))
        stored = _stored_batches(url)
        assert acknowledged <= stored
    assert len(acknowledged) > kills


def _stored_batches(url: str) -> set[int]:
    """The numbers of the batches in the run, each checked to be whole and in one piece."""
    with open_sync_store(url) as store:
        snapshot = store.load_run("agent", "run")
    assert [event.seq for event in snapshot.log] == list(range(1, snapshot.version + 1))
    batches: list[tuple[int, int, int]] = []
    for event in snapshot.log:
        _, number, part, size, *_ = decode_event(event, PlannerNote).note.split(" ")
        batches.append((int(number), int(part), int(size)))
    found: set[int] = set()
    place = 0
    while place < len(batches):
        batch, _, length = batches[place]
        assert batches[place : place + length] == [(batch, part, length) for part in range(length)]
        assert batch not in found
        found.add(batch)
        place += length
    return found
