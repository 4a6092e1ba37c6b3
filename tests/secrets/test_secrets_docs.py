"""Runs the programs of docs/secrets.md."""

from __future__ import annotations

import re

import pytest

from tests.processes import ROOT

PAGE = (ROOT / "docs" / "secrets.md").read_text()
PROGRAMS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_of_the_page_runs(program: str) -> None:
    exec(compile(program, "docs/secrets.md", "exec"), {})
