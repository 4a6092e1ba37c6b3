"""A thousand damages to an SQLite file: ``verify=on`` reads none as truth, and ``verify`` finds each that matters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.corruption import campaign

_COUNT = 1_000 if os.environ.get("AMLOG_TORTURE") else 20


@pytest.mark.parametrize("half", [0, 1])
def test_no_damage_is_read_as_truth(tmp_path: Path, half: int) -> None:
    outcomes = campaign(tmp_path, 2026 + half, _COUNT // 2)
    assert not [one for one in outcomes if one.read == "wrong"]
    # The one limit: a run whose newest events are gone without a trace is what it was before.
    assert not [one for one in outcomes if one.matters and not one.found and one.read != "earlier"]
    assert sum(one.read == "earlier" for one in outcomes) <= _COUNT // 100
    assert sum(one.matters for one in outcomes) > len(outcomes) // 3, "most damages are ones that matter"
