"""``amlog tail``: shows the events of a run while they are appended."""

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
    """Follow a run until Ctrl-C.

    Shows the stored events of the run, then each new event when it is appended. A run given as AGENT/RUN does not have
    to exist yet.

    With --json: a line for each event, as in amlog show.
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
    """Cancel ``following`` and set the returned event when the reader of standard output closes the pipe.

    Without this, the process would notice only at its next write, and there may never be one.
    """
    left = asyncio.Event()

    def on_closed() -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        left.set()
        following.cancel()

    try:
        descriptor = sys.stdout.fileno()
        # The writing end of a pipe becomes readable only when the reader closes it. Other files need no watch.
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            asyncio.get_running_loop().add_reader(descriptor, on_closed)
    except (OSError, UnsupportedOperation, NotImplementedError, ValueError):
        pass  # the next write raises BrokenPipeError instead
    return left
