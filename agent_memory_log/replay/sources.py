"""Loads a recording from a file that ``amlog export`` wrote, or from a store."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeGuard

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.opening import open_store, open_sync_store
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transfer.jsonl import import_jsonl

_URL = re.compile(r"[a-z][a-z0-9+.-]{1,63}:", re.IGNORECASE)
"""The scheme of a store's URL. It has at least two letters, because one letter is a Windows drive."""


def names_store(source: str | Path) -> TypeGuard[str]:
    """Return whether ``source`` is the URL of a store and not the path of a file."""
    return isinstance(source, str) and _URL.match(source) is not None


def load_recording(source: str | Path, *, agent: str | None = None, run: str | None = None) -> Snapshot:
    """Load a recorded run from a JSONL file or from a store.

    Args:
        source: The path of a JSONL file, or the URL of a store.
        agent: The agent's name. It is optional for a file if the other arguments select one run.
        run: The run's name. It is optional for a file if the other arguments select one run.

    Raises:
        OSError: The file cannot be read.
        InvalidArgument: The source has no such run, or the arguments do not select exactly one run.

    The function also raises the errors of ``import_jsonl`` and ``open_sync_store``.
    """
    if names_store(source):
        if agent is None or run is None:
            raise InvalidArgument("a store may have many runs; pass agent and run")
        with open_sync_store(source) as store:
            snapshot = store.load_run(agent, run)
    else:
        # asyncio.run needs a thread without a running event loop, and the caller's thread may have one.
        with ThreadPoolExecutor(max_workers=1) as executor:
            snapshot = executor.submit(asyncio.run, _read_file(Path(source), agent, run)).result()
    if not len(snapshot.log):
        raise InvalidArgument(f"{source} has no events of {snapshot.agent}/{snapshot.run}")
    return snapshot


async def _read_file(path: Path, agent: str | None, run: str | None) -> Snapshot:
    with path.open("rb") as lines:
        async with open_store("memory:") as store:
            names = {(imported.agent, imported.run) for imported in await import_jsonl(store, lines)}
            matching = [name for name in names if agent in (None, name[0]) and run in (None, name[1])]
            if len(matching) != 1:
                listed = ", ".join("/".join(name) for name in sorted(names)) or "none"
                raise InvalidArgument(f"{path}: pass agent and run to select one run; the runs are: {listed}")
            return await store.load_run(*matching[0])
