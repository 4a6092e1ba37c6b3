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
    from agent_memory_log.replay.live import Recording, RunLive
    from agent_memory_log.snapshot import Snapshot

_outcome = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that allows tests to run their agents live."""
    parser.getgroup("agent-memory-log").addoption(
        "--amlog-record",
        choices=["missing", "all"],
        help="record the runs of tests that call replay(..., record=...): only missing recordings, or all",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember the outcome of the test: only a test that passed replaces its recording."""
    report = yield
    if report.when == "call":
        item.stash[_outcome] = report.outcome
    return report


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Generator[Callable[..., Replayer]]:
    """Return a function that opens a recorded run for replay. The test fails if the agent does not use the whole run.

    ``replay(source, provider=None, *, agent=None, run=None, match="strict", record=None)`` may be called more than once
    in a test.

        def test_support_agent(replay):
            replayer = replay("recorded/run-42.jsonl", record=run_live)
            answer = run_agent(client=replayer.openai_client())

    Args:
        source: The URL of a store, or a file that ``amlog export`` wrote. A relative path starts at the
            folder of the test file.
        provider: See ``Replayer``.
        agent: See ``load_recording``.
        run: See ``load_recording``.
        match: See ``Replayer``.
        record: Runs the agent with its real model and tools, and records it with the recorder that it gets: a
            ``SyncRunRecorder``, or a ``RunRecorder`` for an ``async def`` function. It is called only with
            ``pytest --amlog-record=missing`` if the file does not exist, or with ``--amlog-record=all``. The test then
            replays the new recording. If the test passes, the recording replaces the file, which holds only this run.
    """
    replayers: list[Replayer] = []
    recordings = _Recordings(request.path.parent, request.config.getoption("--amlog-record"))

    def open_recording(
        source: str | Path,
        provider: str | None = None,
        *,
        agent: str | None = None,
        run: str | None = None,
        match: Match = "strict",
        record: RunLive | None = None,
    ) -> Replayer:
        from agent_memory_log.replay import Replayer  # noqa: PLC0415  # other tests do not need it

        replayer = Replayer(recordings.load(source, agent, run, record), provider, match=match)
        replayers.append(replayer)
        return replayer

    yield open_recording
    outcome = request.node.stash.get(_outcome, "")
    if outcome != "failed":
        for replayer in replayers:
            replayer.finish()
    if outcome == "passed":
        recordings.write()


class _Recordings:
    """The recordings of one test. ``mode`` is the value of the option ``--amlog-record``, or None."""

    def __init__(self, folder: Path, mode: str | None) -> None:
        self._folder = folder
        self._mode = mode
        self._new: dict[Path, Recording] = {}

    def load(self, source: str | Path, agent: str | None, run: str | None, record: RunLive | None) -> Snapshot:
        """Return the recorded run. Record it first if it is missing, or if all runs are to be recorded."""
        from agent_memory_log.replay import load_recording  # noqa: PLC0415  # other tests do not need it
        from agent_memory_log.replay.live import record_live  # noqa: PLC0415  # as above
        from agent_memory_log.replay.sources import names_store  # noqa: PLC0415  # as above

        if names_store(source):
            return load_recording(source, agent=agent, run=run)
        path = self._folder / source
        is_wanted = self._mode == "all" or (self._mode == "missing" and not path.exists())
        if record is not None and is_wanted and path not in self._new:
            self._new[path] = record_live(path, record, agent=agent, run=run)
        if path in self._new:
            return self._new[path].snapshot
        if not path.exists():
            pytest.fail(_missing(path, source, has_record=record is not None), pytrace=False)
        return load_recording(path, agent=agent, run=run)

    def write(self) -> None:
        """Write the new recordings to their files."""
        for path, recording in self._new.items():
            recording.write(path)


def _missing(path: Path, source: str | Path, *, has_record: bool) -> str:
    todo = (
        "run pytest --amlog-record=missing to record it"
        if has_record
        else f"write it with `amlog export AGENT/RUN -o {source}`, or call replay(..., record=...), which can record it"
    )
    return f"there is no recording {path}: {todo}"
