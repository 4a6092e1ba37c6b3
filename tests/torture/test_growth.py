"""Checks that the time of a call grows about linearly from 50,000 to 200,000 events."""

from __future__ import annotations

from functools import partial

import pytest

from agent_memory_log.transcript import build, provider_names, window
from tests.growth import CALLS, MOST, growth, run, slow_calls, slow_transcripts


@pytest.mark.parametrize("provider", provider_names())
def test_conversion_of_transcripts_grows_linearly(provider: str) -> None:
    # Even the shorter run has more ids than the cache of encoded names, which would hold all of 1,000.
    assert slow_transcripts(provider, 3_000, MOST) == {}


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_runs_grow_linearly(name: str) -> None:
    assert slow_calls(name, 1_500, MOST) == {}


@pytest.mark.parametrize("provider", provider_names())
def test_window_grows_linearly(provider: str) -> None:
    short, long = (build(run("turns", events), provider) for events in (50_000, 200_000))
    window_of_short = partial(window, short, provider, max_events=50_000)
    window_of_long = partial(window, long, provider, max_events=200_000)
    assert growth(window_of_short, window_of_long, MOST) <= MOST
