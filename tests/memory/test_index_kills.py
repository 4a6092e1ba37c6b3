"""Tests processes that are killed while they write index files: no text is lost, and no erased text remains."""

from __future__ import annotations

import random
import re
from pathlib import Path

from agent_memory_log import open_sync_store
from agent_memory_log.events.payloads import UserMessage
from agent_memory_log.memory import SyncMemoryClient
from tests import processes
from tests.memory.stores import TOGETHER
from tests.memory.test_index_files import content, texts_and_scores, url_of, without_file
from tests.memory.test_search_vectors import Meaning

MOST_STEPS = 12


def kill_searchers(folder: Path, kills: int, at_once: int, chance: random.Random) -> None:
    """Start and kill searching processes repeatedly. Check after each kill that a search finds all texts."""
    number = 0
    for _ in range(kills):
        started = [processes.start("search_until_killed", url_of(folder), str(number)) for _ in range(at_once)]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        first = started[0].stdout
        assert first is not None
        for _ in range(chance.randrange(MOST_STEPS)):
            number = max(number, int(first.readline()) + 1)
        for process in started:
            process.kill()
            process.communicate(timeout=processes.PATIENCE)
        number += 1
        _check(folder)


def _check(folder: Path) -> None:
    with open_sync_store(url_of(folder)) as store:
        embedder = Meaning(tokens=True)
        me = SyncMemoryClient(store, embedder=embedder).of(TOGETHER)
        control = without_file(store, embedder=embedder).of(TOGETHER)
        for query in ("puppy storm", "hound"):
            assert texts_and_scores(me.search(query, top_k=30)) == texts_and_scores(control.search(query, top_k=30))
        texts = [
            event.data.message
            for run in range(3)
            for event in store.load_run("agent", f"run-{run}").log
            if isinstance(event.data, UserMessage)
        ]
    assert set(re.findall(rb"secret\d+x\d", content(folder))) <= {text.split()[1].encode() for text in texts}


def test_killed_searchers_leave_a_right_index(tmp_path: Path) -> None:
    kill_searchers(tmp_path, 3, 1, random.Random(1))


def test_killed_searchers_of_the_same_index_leave_a_right_index(tmp_path: Path) -> None:
    kill_searchers(tmp_path, 2, 2, random.Random(2))
