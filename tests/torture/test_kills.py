"""Kills about a thousand writers and checks that each acknowledged event is stored exactly once.

Also lets many processes create the same file at once.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sqlite.test_concurrency import create_together
from tests.sqlite.test_crash import kill_writers

KILLS = 40
FILES = 6
"""The number of files for each kind of writer. Each check reads a whole file, so many short files are faster."""


@pytest.mark.parametrize("file", range(FILES))
@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("program", ["append_until_killed", "append_until_killed_async"])
def test_killed_writers_lose_no_acknowledged_event(tmp_path: Path, program: str, durability: str, file: int) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}?durability={durability}"
    kill_writers(program, url, KILLS, random.Random(f"{program} {durability} {file}"))


def test_many_processes_can_create_the_same_file(tmp_path: Path) -> None:
    create_together(tmp_path, 40)
