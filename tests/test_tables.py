"""Tests that each table in a data file has a description and no repeated entries."""

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
    """Yield the lists of a table with their paths. A text of several lines is a list of words or rows too."""
    if isinstance(value, dict):
        for key, part in cast("dict[str, object]", value).items():
            yield from lists_in(part, f"{name}.{key}")
    elif isinstance(value, list):
        parts = cast("list[object]", value)
        yield name, [str(part) for part in parts]
        for part in parts:
            yield from lists_in(part, name)
    elif isinstance(value, str) and "\n" in value:
        # A text with braces holds patterns, which white space separates. A comma may be part of a pattern.
        yield name, value.split("," if ", " in value and "{" not in value else None)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_table_has_a_description_and_no_repeated_entries(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# ")
    twice = {
        name: repeated
        for name, entries in lists_in(tomllib.loads(text), path.stem)
        if (repeated := [entry for entry, count in Counter(entries).items() if count > 1])
    }
    assert twice == {}


def test_tables_are_stored_beside_their_modules() -> None:
    assert len(TABLES) >= 11
    assert "ordinary" in read_table("agent_memory_log.secrets.parts", "words")
