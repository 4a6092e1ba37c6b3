"""About a thousand killed writers: everything they acknowledged is stored, whole and once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sqlite.test_crash import kill_writers

KILLS = 40
FILES = 6
"""Files for each kind of writer. The check after each kill reads the whole file, so more files beat longer ones."""


@pytest.mark.parametrize("file", range(FILES))
@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("program", ["append_until_killed", "append_until_killed_async"])
def test_killed_writers_lose_nothing(tmp_path: Path, program: str, durability: str, file: int) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}?durability={durability}"
    kill_writers(program, url, KILLS, random.Random(f"{program} {durability} {file}"))
