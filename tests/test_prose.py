"""Tests of the check for plain English: it finds the dialect, accepts plain sentences, and covers the repository."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.processes import ROOT
from tools.prose import Rules, check, defined_names, in_markdown, in_python

RULES = Rules(tomllib.loads((ROOT / "tools" / "prose.toml").read_text()))
DIALECT = "Wh" + "oever looks again"  # in two parts, so that the check accepts this file


def hits(source: str, *, is_test: bool = False) -> list[str]:
    """Return the hits in Python code."""
    return [hit for prose in in_python(source, is_test=is_test) for _, hit in RULES.hits(prose)]


@pytest.mark.parametrize(
    "source",
    [
        f'"""{DIALECT}."""',
        f"x = 1  # {DIALECT}",
        f'def f():\n    """{DIALECT}."""',
        f'x: int\n"""{DIALECT}."""',
        f'raise ValueError("{DIALECT} and reads the run")',
        f'raise ValueError(f"{{run}}: {DIALECT.lower()} and reads the run")',
        f"def test_{DIALECT.lower().replace(' ', '_')}(): pass",
    ],
)
def test_dialect_is_found_in_every_kind_of_prose(source: str) -> None:
    assert len(hits(source)) == 1


def test_long_sentences_and_chains_of_semicolons_are_found() -> None:
    assert hits(f'"""{"A word " * 17}."""') == ["a sentence of 35 words -> at most 32"]
    assert hits('"""The run has ended; the store is closed; the file remains."""') == [
        "2 semicolons in a sentence -> at most 1"
    ]


def test_plain_prose_code_and_test_data_are_accepted() -> None:
    assert not hits('"""Return None if the store is closed.\n\n    whoever = 1\n"""')
    assert not hits(f'raise ValueError(f"``{DIALECT.lower()}`` is not a plain sentence")')
    assert not hits(f'append("{DIALECT} and reads the run")', is_test=True)
    markdown = f"# {DIALECT}\n\n```python\n# {DIALECT}\n```\n\n| {DIALECT} |\n"
    assert not [hit for prose in in_markdown(markdown) for hit in RULES.hits(prose)]


def test_markdown_hits_have_their_line() -> None:
    (prose,) = in_markdown(f"# Title\n\nA plain line.\n{DIALECT}.\n")
    assert [line for line, _ in RULES.hits(prose)] == [4]


def test_names_of_variables_arguments_and_functions_are_read() -> None:
    names = [name for _, name in defined_names("def f(a, *, b=1):\n    c = a\n    for d in c: pass\nclass E: pass\n")]
    assert sorted(names) == ["E", "a", "b", "c", "d", "f"]


def test_a_file_with_a_bad_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.prose.ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text("to" + "ld = 1\n")
    assert [line for line, _ in check(path, RULES)] == [1]
