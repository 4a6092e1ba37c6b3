"""Tries each regular expression of the library on all generated texts. ``make test`` tries a tenth of them."""

from __future__ import annotations

from tests.test_patterns import slow_patterns


def test_patterns_take_linear_time_on_every_text() -> None:
    assert slow_patterns(1) == []
