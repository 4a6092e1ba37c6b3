"""``amlog compact``: unused space given back, what was redacted or deleted erased for good."""

from __future__ import annotations

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import AsJson, StoreUrl, open_existing, run_async, store_url
from agent_memory_log.cli.output import DIM, GOOD, Output
from agent_memory_log.cli.text import size
from agent_memory_log.store import CompactResult, Compacts


def compact(*, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Give unused space back.

    What was redacted or deleted is erased for good; nothing that can be read is lost. With --json: before and after, in
    bytes.
    """
    result = run_async(_compact(store))
    output = Output()
    if as_json:
        output.json({"before": result.before, "after": result.after})
        return
    saved = result.before - result.after
    output.line(
        (f"{output.tick} ", GOOD),
        f"{size(result.before)} before, {size(result.after)} after",
        (f"   {size(saved)} given back" if saved > 0 else "", DIM),
    )


async def _compact(url: str | None) -> CompactResult:
    async with open_existing(url) as store:
        if not isinstance(store, Compacts):
            raise CommandFailed(f"{store_url(url).split(':', 1)[0]}: stores cannot be compacted")
        return await store.compact()
