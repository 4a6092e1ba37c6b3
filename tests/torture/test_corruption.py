"""Damages an SQLite file many times, and reads it with ``verify=on`` and ``verify`` after each damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corruption import campaign
from tests.effort import IS_CAMPAIGN

_COUNT = 1_000 if IS_CAMPAIGN else 20


@pytest.mark.parametrize("half", [0, 1])
def test_verify_on_never_reads_damage_as_correct(tmp_path: Path, half: int) -> None:
    outcomes = campaign(tmp_path, 2026 + half, _COUNT // 2)
    assert not [outcome for outcome in outcomes if outcome.read == "wrong"]
    # The only exception is a run that lost its newest events and their index entries. It reads as an earlier state.
    assert not [item for item in outcomes if item.matters and not item.detected and item.read != "earlier"]
    assert sum(outcome.read == "earlier" for outcome in outcomes) <= _COUNT // 100
    assert sum(outcome.matters for outcome in outcomes) > len(outcomes) // 3, "too few damages change a plain read"
