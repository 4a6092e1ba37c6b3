"""``amlog tail``: a run as it happens."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from contextlib import aclosing
from io import UnsupportedOperation

from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import resolve
from agent_memory_log.cli.show import After
from agent_memory_log.cli.timeline import Timeline
from agent_memory_log.cli.timeline_view import TimelineWriter
from agent_memory_log.store import Store


def tail(run: RunName, *, store: StoreUrl = None, after: After = 0, as_json: AsJson = False) -> None:
    """Follow a run as it is written.

    Shows its events, and then each new one as it is appended, until Ctrl-C. A run named AGENT/RUN need not exist yet.
    With --json: a line for each event, as in show.
    """
    run_async(_tail(store, run, after, as_json=as_json))


async def _tail(url: str | None, name: str, after: int, *, as_json: bool) -> None:
    async with open_existing(url) as store:
        agent, run = await resolve(store, name)
        following = asyncio.create_task(_follow(store, agent, run, after, as_json=as_json))
        reader_left = _watch_reader(following)
        try:
            await following
        except asyncio.CancelledError:
            if not reader_left.is_set():
                raise
            raise BrokenPipeError from None
        finally:
            following.cancel()


async def _follow(store: Store, agent: str, run: str, after: int, *, as_json: bool) -> None:
    output = Output()
    timeline = Timeline()
    writer = TimelineWriter(output)
    async with aclosing(store.follow(agent, run, after=after)) as events:
        async for event in events:
            if as_json:
                output.json_line(event.to_map())
            else:
                writer.write([timeline.add(event)])
            output.flush()


def _watch_reader(following: asyncio.Task[None]) -> asyncio.Event:
    """Cancel ``following`` when whoever reads standard output goes away; a write to say so may never come."""
    left = asyncio.Event()

    def gone() -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        left.set()
        following.cancel()

    try:
        descriptor = sys.stdout.fileno()
        # A pipe's writing end becomes readable only by its reader closing; nothing else is worth watching.
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            asyncio.get_running_loop().add_reader(descriptor, gone)
    except (OSError, UnsupportedOperation, NotImplementedError, ValueError):
        pass  # then the next write finds out
    return left
