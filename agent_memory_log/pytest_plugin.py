"""The pytest fixture ``replay``: a recorded run as a regression test of an agent.

pytest imports this module wherever the library is installed, so it imports nothing of its own until it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agent_memory_log.replay import Match, Replayer

_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself failed: what it then did not use is no news."""
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Generator[Callable[..., Replayer]]:
    """Opens a recorded run for a strict replay; what the agent did not use of it fails the test.

    ``replay(source, provider=None, *, agent=None, run=None, match="strict")``: ``source`` is a file that
    ``amlog export`` wrote, relative to the test's own, or the URL of a store. The rest is as for ``Replayer`` and
    ``load_recording``. May be called more than once.

        def test_support_agent(replay):
            replayer = replay("recorded/run-42.jsonl")
            answer = run_agent(ask_model=replayer.model_turn, run_tool=replayer.tool_result)
    """
    opened: list[Replayer] = []

    def open_recording(
        source: str | Path,
        provider: str | None = None,
        *,
        agent: str | None = None,
        run: str | None = None,
        match: Match = "strict",
    ) -> Replayer:
        from agent_memory_log.replay import Replayer, load_recording  # noqa: PLC0415  # not needed by other tests
        from agent_memory_log.replay.sources import names_store  # noqa: PLC0415  # as above

        place = source if names_store(source) else request.path.parent / source
        replayer = Replayer(load_recording(place, agent=agent, run=run), provider, match=match)
        opened.append(replayer)
        return replayer

    yield open_recording
    if not request.node.stash.get(_failed, False):
        for replayer in opened:
            replayer.finish()
