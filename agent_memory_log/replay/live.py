"""Records a live run of an agent for a regression test, and writes the recording to a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from pathlib import Path
from typing import cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.opening import open_store, open_sync_store
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.replay.sources import load_recording
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transfer.jsonl import export_run, export_run_sync

_RunAsync = Callable[[RunRecorder], Coroutine[object, object, object]]

RunLive = Callable[[SyncRunRecorder], object] | _RunAsync
"""Runs an agent with its real model and tools. It records the run with the recorder that it gets."""


class Recording(msgspec.Struct, frozen=True):
    """A recorded run, as a snapshot and as the lines of its JSONL file."""

    snapshot: Snapshot
    lines: Sequence[bytes]

    def write(self, path: Path) -> None:
        """Write the lines to a file. The file is replaced at once, or stays as it is if this fails."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".amlog-{os.urandom(8).hex()}")
        try:
            temporary.write_bytes(b"".join(self.lines))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def record_live(path: Path, run_live: RunLive, *, agent: str | None = None, run: str | None = None) -> Recording:
    """Run an agent and return its recording for the file ``path``. The file stays as it is.

    An ``async def`` function runs in an event loop of its own, in another thread.

    Args:
        path: The file that the recording will replace.
        run_live: Runs the agent.
        agent: The agent's name. By default, it is the name in the file, or else ``agent``.
        run: The run's name. By default, it is the name in the file, or else the name of the file.

    Raises:
        InvalidArgument: The file holds another run, or the agent recorded nothing.

    The function also raises the errors of ``run_live`` and of ``load_recording``.
    """
    names = (agent or "agent", run or path.stem)
    if path.exists():
        earlier = load_recording(path)  # raises an error if the file has several runs: they would be lost
        names = (agent or earlier.agent, run or earlier.run)
        if names != (earlier.agent, earlier.run):
            raise InvalidArgument(
                f"{path} holds the run {earlier.agent}/{earlier.run}, which the recording of {'/'.join(names)} would "
                "replace; choose another file"
            )
    if iscoroutinefunction(run_live):
        with ThreadPoolExecutor(max_workers=1) as executor:
            recording = executor.submit(asyncio.run, _record(cast("_RunAsync", run_live), *names)).result()
    else:
        with open_sync_store("memory:") as store, SyncRunRecorder(store, *names) as recorder:
            cast("Callable[[SyncRunRecorder], object]", run_live)(recorder)
            recording = Recording(store.load_run(*names), tuple(export_run_sync(store, *names)))
    if not len(recording.snapshot.log):
        raise InvalidArgument(f"the function that records {path} recorded no events; use the recorder that it gets")
    return recording


async def _record(run_live: _RunAsync, agent: str, run: str) -> Recording:
    async with open_store("memory:") as store, RunRecorder(store, agent, run) as recorder:
        await run_live(recorder)
        lines = [line async for line in export_run(store, agent, run)]
        return Recording(await store.load_run(agent, run), tuple(lines))
