"""Runs the processor for ``amlog processor run``: its configuration, its log and its stop."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import ExitStack
from pathlib import Path

from prometheus_client import start_http_server

from agent_memory_log.cli import stopping
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.options import open_or_create
from agent_memory_log.cli.output import Output
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Extractor
from agent_memory_log.processor.transport import Component, ProcessorSettings, extractor_of

__all__ = ["ProcessorSettings", "run"]


def run(config: Path, url: str | None, metrics_port: int | None) -> None:
    """Run the processor until a signal stops it."""
    settings = _settings(config)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    with ExitStack() as resources:
        extractor = resources.enter_context(extractor_of(settings))
        asyncio.run(_run(settings, url, extractor, metrics_port))
    stopping.forget_signal()


def _settings(config: Path) -> ProcessorSettings:
    try:
        return ProcessorSettings.from_json(config.read_bytes())
    except OSError as error:
        raise UsageProblem(f"--config {config}: {error.strerror}") from error
    except InvalidArgument as error:
        raise UsageProblem(f"--config {config}: {error}") from error


async def _run(settings: ProcessorSettings, url: str | None, extractor: Extractor, metrics_port: int | None) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    async with open_or_create(url) as store:
        component = Component(settings, store, extractor=extractor)
        await component.initialise()
        if metrics_port is not None:
            _show_metrics(component, metrics_port)
        with stopping.Graceful(lambda: loop.call_soon_threadsafe(stop.set)):
            await component.start()
            output = Output()
            output.line(f"takes messages of the stream {settings.stream_name}")
            output.flush()
            await stop.wait()
            await component.stop()


def _show_metrics(component: Component, port: int) -> None:
    try:
        start_http_server(port, "127.0.0.1", registry=component.metrics.registry)
    except OSError as error:
        raise CommandFailed(f"--metrics {port}: {error.strerror}; choose another port") from error
