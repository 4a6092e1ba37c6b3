"""Tests of the gate that compares instruction counts with the stored ones."""

from __future__ import annotations

import pytest

from benchmarks.instructions.__main__ import more_than_stored
from benchmarks.instructions.workloads import WORKLOADS


def test_five_percent_more_than_stored_is_allowed_and_more_is_not() -> None:
    stored = {"append": 1000, "load": 1000, "search": 1000}
    assert more_than_stored({"append": 1050, "load": 1051, "search": 10, "new": 10**9}, stored) == ["load"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_operation_runs(name: str) -> None:
    WORKLOADS[name][0](2)
