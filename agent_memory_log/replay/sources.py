"""Where a recording comes from: a file that ``amlog export`` wrote, or a run of a store."""

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
"""A scheme has two letters at least: one is a drive."""


def names_store(source: str | Path) -> TypeGuard[str]:
    """Whether ``source`` is the URL of a store, rather than the path of a file."""
    return isinstance(source, str) and _URL.match(source) is not None


def load_recording(source: str | Path, *, agent: str | None = None, run: str | None = None) -> Snapshot:
    """The recorded run in ``source``: the path of a JSONL file, or the URL of a store.

    ``agent`` and ``run`` name it; of a file, both may be left out where there is only one run in it. Raises ``OSError``
    for a file that cannot be read, ``InvalidArgument`` where there is no such run or it is not said which, and what
    ``import_jsonl`` and ``open_sync_store`` raise.
    """
    if names_store(source):
        if agent is None or run is None:
            raise InvalidArgument("a run of a store is named by agent and run: give both")
        with open_sync_store(source) as store:
            snapshot = store.load_run(agent, run)
    else:
        # In a thread of its own: there, no event loop is running yet.
        with ThreadPoolExecutor(max_workers=1) as executor:
            snapshot = executor.submit(asyncio.run, _read_file(Path(source), agent, run)).result()
    if not len(snapshot.log):
        raise InvalidArgument(f"{source} holds no events of {snapshot.agent}/{snapshot.run}")
    return snapshot


async def _read_file(path: Path, agent: str | None, run: str | None) -> Snapshot:
    with path.open("rb") as lines:
        async with open_store("memory:") as store:
            names = {(imported.agent, imported.run) for imported in await import_jsonl(store, lines)}
            matching = [name for name in names if agent in (None, name[0]) and run in (None, name[1])]
            if len(matching) != 1:
                held = ", ".join("/".join(name) for name in sorted(names)) or "none"
                raise InvalidArgument(f"{path}: name one run of it with agent and run; it holds {held}")
            return await store.load_run(*matching[0])
