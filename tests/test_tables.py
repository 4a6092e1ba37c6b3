"""The tables in data files are well formed: each says what it holds, and nothing stands in a list twice."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory_log.tables import read_table
from tests.processes import ROOT

TABLES = sorted((ROOT / "agent_memory_log").rglob("data/*.toml"))


def lists_in(value: object, name: str) -> Iterator[tuple[str, list[Any]]]:
    """The lists in a table by the names that lead to them; a text of words and one of rows are lists too."""
    if isinstance(value, dict):
        for key, part in cast("dict[str, object]", value).items():
            yield from lists_in(part, f"{name}.{key}")
    elif isinstance(value, list):
        parts = cast("list[object]", value)
        yield name, [str(part) for part in parts]
        for part in parts:
            yield from lists_in(part, name)
    elif isinstance(value, str) and "\n" in value:
        yield name, value.split("," if "," in value else None)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_says_what_it_holds_and_nothing_twice(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# ")
    twice = {
        name: repeated
        for name, entries in lists_in(tomllib.loads(text), path.stem)
        if (repeated := [entry for entry, count in Counter(entries).items() if count > 1])
    }
    assert twice == {}


def test_there_are_tables_and_they_are_found_beside_their_module() -> None:
    assert len(TABLES) >= 11
    assert "ordinary" in read_table("agent_memory_log.secrets.parts", "words")
