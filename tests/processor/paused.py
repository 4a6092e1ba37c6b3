"""A processor as a process that stops at a chosen step: ``python -m tests.processor.paused CONFIG STORE STEP``.

STEP is ``none``, or a name of ``STEPS`` with ``before`` or ``after`` and a number, such as ``publish:before:2``. The
process prints ``reached`` there, and continues after a line on its standard input. It prints ``running`` at its start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from agent_memory_log import open_store
from agent_memory_log.processor import LoopMemory
from agent_memory_log.processor.transport import Component, ProcessorSettings
from agent_memory_log.processor.transport.graph import Graph
from agent_memory_log.processor.transport.ledger import Ledgers
from agent_memory_log.processor.transport.wire import NatsWire
from tests.processor.extracting import WordExtractor

STEPS: dict[str, tuple[type[Any], str]] = {
    "hydrate": (LoopMemory, "hydrate_post_compaction"),
    "entities": (LoopMemory, "hydrate_for_entities"),
    "extract": (LoopMemory, "extract"),
    "checkpoint": (LoopMemory, "checkpoint"),
    "graph": (Graph, "publish_changes"),
    "append": (Ledgers, "append"),
    "bury": (Ledgers, "bury"),
    "put": (NatsWire, "put"),
    "publish": (NatsWire, "publish"),
    "ack": (Msg, "ack_sync"),
    "term": (Msg, "term"),
}


def pause_at(step: str) -> None:
    """Patch the method of a step, so that the process stops there."""
    name, when, number = step.split(":")
    owner, attribute = STEPS[name]
    original: Callable[..., Awaitable[object]] = getattr(owner, attribute)
    left = int(number)

    def pause() -> None:
        os.write(1, b"reached\n")
        sys.stdin.readline()

    async def stopping(*arguments: Any, **options: Any) -> object:
        nonlocal left
        left -= 1
        is_chosen = left == 0
        if is_chosen and when == "before":
            pause()
        result = await original(*arguments, **options)
        if is_chosen and when == "after":
            pause()
        return result

    setattr(owner, attribute, stopping)


async def run(config: str, url: str) -> None:
    """Run a processor until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ProcessorSettings.from_json(Path(config).read_bytes())
    async with open_store(url) as store:
        component = Component(settings, store, extractor=WordExtractor())
        await component.initialise()
        await component.start()
        os.write(1, b"running\n")
        await stop.wait()
        finished = await component.stop()
    os.write(1, b"finished\n" if finished else b"unfinished\n")


if __name__ == "__main__":
    _config, _url, _step = sys.argv[1:]
    if _step != "none":
        pause_at(_step)
    asyncio.run(run(_config, _url))
