"""``amlog diff``: where two runs part."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.entries import Look, describe
from agent_memory_log.cli.options import AsJson, StoreUrl, with_store
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, NAME, Output
from agent_memory_log.cli.run_names import load_existing, run_name
from agent_memory_log.cli.timeline import Row
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.replay.differences import Difference, told_all
from agent_memory_log.replay.parting import RunDiff
from agent_memory_log.replay.parting import diff as find_parting
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store
from agent_memory_log.wording import counted

_LEFT, _RIGHT = GOOD, BAD
_SHOWN = 300
"""How many characters of an event are shown: where it differs is shown by itself."""


def diff(
    left: Annotated[str, typer.Argument(metavar="RUN_A", help="A run, as AGENT/RUN or RUN.", show_default=False)],
    right: Annotated[str, typer.Argument(metavar="RUN_B", help="The run to compare it with.", show_default=False)],
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show where two runs part.

    Compares type and data of their events in append order, up to the first that differ; ids, times, durations and
    labels are left out, and JSON texts are compared as JSON. Exits with 0 if the runs hold the same, 1 if they part.

    With --json: same, common (how many events at the beginning are equal), a and b (the events that differ, null where
    a run has ended), and differences, each with path, and a and b where that side has something.
    """

    async def work(opened: Store) -> tuple[Snapshot, Snapshot]:
        return await load_existing(opened, left), await load_existing(opened, right)

    snapshots = with_store(store, work)
    found = find_parting(*snapshots)
    output = Output()
    if as_json:
        output.json(_as_map(found))
    else:
        _write(output, found, *(run_name(snapshot.agent, snapshot.run) for snapshot in snapshots))
    if not found.same:
        raise typer.Exit(1)


def _as_map(found: RunDiff) -> dict[str, JsonValue]:
    return {
        "same": found.same,
        "common": found.common,
        "a": None if found.left_event is None else found.left_event.to_map(),
        "b": None if found.right_event is None else found.right_event.to_map(),
        "differences": [_difference_map(difference) for difference in found.differences],
    }


def _difference_map(difference: Difference) -> dict[str, JsonValue]:
    sides: dict[str, JsonValue] = {"path": difference.path}
    if difference.only != "right":
        sides["a"] = difference.left
    if difference.only != "left":
        sides["b"] = difference.right
    return sides


def _write(output: Output, found: RunDiff, left: str, right: str) -> None:
    equal = counted(found.common, "event")
    if found.same:
        output.line((f"{output.tick} ", GOOD), f"{left} and {right} hold the same {equal}")
        return
    output.line((left, BOLD), " and ", (right, BOLD), f" part after {equal}")
    for sign, name, style, event in (("-", left, _LEFT, found.left_event), ("+", right, _RIGHT, found.right_event)):
        output.hanging([(f"{sign} ", style), (f"{name}  ", NAME)], _told(event))
    for line in told_all(found.differences, "-", "+"):
        output.hanging([("  ", DIM)], line)


def _told(event: Event | None) -> str:
    if event is None:
        return "ends here"
    entry = describe(Row(event), Look())
    lead = "".join(text for text, _ in entry.lead)
    told = "  ".join(part for part in (f"#{event.seq}", entry.kind, lead, entry.text) if part)
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}…"
