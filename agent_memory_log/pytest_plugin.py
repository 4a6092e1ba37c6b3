"""The pytest fixture ``replay``, which makes a recorded run a regression test of an agent.

pytest imports this module in every project that has the library installed, so it imports the library only when it is
used.
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
    """Remember whether the test failed, because a failed test need not report the unused part of its recording."""
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Generator[Callable[..., Replayer]]:
    """Return a function that opens a recorded run for replay. The test fails if the agent does not use the whole run.

    ``replay(source, provider=None, *, agent=None, run=None, match="strict")`` may be called more than once in a test.

        def test_support_agent(replay):
            replayer = replay("recorded/run-42.jsonl")
            answer = run_agent(ask_model=replayer.model_turn, run_tool=replayer.tool_result)

    Args:
        source: The URL of a store, or a file that ``amlog export`` wrote. A relative path starts at the
            folder of the test file.
        provider: See ``Replayer``.
        agent: See ``load_recording``.
        run: See ``load_recording``.
        match: See ``Replayer``.
    """
    replayers: list[Replayer] = []

    def open_recording(
        source: str | Path,
        provider: str | None = None,
        *,
        agent: str | None = None,
        run: str | None = None,
        match: Match = "strict",
    ) -> Replayer:
        from agent_memory_log.replay import Replayer, load_recording  # noqa: PLC0415  # other tests do not need it
        from agent_memory_log.replay.sources import names_store  # noqa: PLC0415  # as above

        location = source if names_store(source) else request.path.parent / source
        replayer = Replayer(load_recording(location, agent=agent, run=run), provider, match=match)
        replayers.append(replayer)
        return replayer

    yield open_recording
    if not request.node.stash.get(_failed, False):
        for replayer in replayers:
            replayer.finish()
