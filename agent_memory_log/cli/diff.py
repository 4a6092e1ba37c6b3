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
from agent_memory_log.replay.differences import Difference, describe_all
from agent_memory_log.replay.run_diff import RunDiff
from agent_memory_log.replay.run_diff import diff as find_parting
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
    parting = find_parting(*snapshots)
    output = Output()
    if as_json:
        output.json(_as_map(parting))
    else:
        _write(output, parting, *(run_name(snapshot.agent, snapshot.run) for snapshot in snapshots))
    if not parting.same:
        raise typer.Exit(1)


def _as_map(parting: RunDiff) -> dict[str, JsonValue]:
    return {
        "same": parting.same,
        "common": parting.common,
        "a": None if parting.left_event is None else parting.left_event.to_map(),
        "b": None if parting.right_event is None else parting.right_event.to_map(),
        "differences": [_difference_map(difference) for difference in parting.differences],
    }


def _difference_map(difference: Difference) -> dict[str, JsonValue]:
    sides: dict[str, JsonValue] = {"path": difference.path}
    if difference.only != "right":
        sides["a"] = difference.left
    if difference.only != "left":
        sides["b"] = difference.right
    return sides


def _write(output: Output, parting: RunDiff, left: str, right: str) -> None:
    equal = counted(parting.common, "event")
    if parting.same:
        output.line((f"{output.tick} ", GOOD), f"{left} and {right} hold the same {equal}")
        return
    output.line((left, BOLD), " and ", (right, BOLD), f" part after {equal}")
    for sign, name, style, event in (("-", left, _LEFT, parting.left_event), ("+", right, _RIGHT, parting.right_event)):
        output.hanging([(f"{sign} ", style), (f"{name}  ", NAME)], _event_text(event))
    for line in describe_all(parting.differences, "-", "+"):
        output.hanging([("  ", DIM)], line)


def _event_text(event: Event | None) -> str:
    if event is None:
        return "ends here"
    entry = describe(Row(event), Look())
    lead = "".join(text for text, _ in entry.lead)
    text = "  ".join(part for part in (f"#{event.seq}", entry.kind, lead, entry.text) if part)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
