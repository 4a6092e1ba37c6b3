"""Kills hundreds of searching processes and checks the index files after each kill."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.memory.test_index_kills import kill_searchers

KILLS = 30
FOLDERS = 4


@pytest.mark.parametrize("folder", range(FOLDERS))
@pytest.mark.parametrize("at_once", [1, 3])
def test_killed_searchers_leave_a_right_index(tmp_path: Path, at_once: int, folder: int) -> None:
    kill_searchers(tmp_path, KILLS, at_once, random.Random(f"{at_once} {folder}"))
