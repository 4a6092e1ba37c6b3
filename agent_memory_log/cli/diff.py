"""``amlog diff``: shows the first difference between two runs."""

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
from agent_memory_log.replay.run_diff import diff as compare_runs
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store
from agent_memory_log.wording import counted

_LEFT, _RIGHT = GOOD, BAD
_SHOWN = 300
"""The most characters of an event that are shown. The differing fields have lines of their own."""


def diff(
    left: Annotated[
        str, typer.Argument(metavar="RUN_A", help="The first run, as AGENT/RUN or RUN.", show_default=False)
    ],
    right: Annotated[
        str, typer.Argument(metavar="RUN_B", help="The second run, as AGENT/RUN or RUN.", show_default=False)
    ],
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the first difference between two runs.

    Compares the type and data of the events in append order and stops at the first difference. Ids, times, durations
    and labels are ignored. Text that is JSON is compared as JSON. The exit status is 0 if the runs are equal, and 1 if
    they differ.

    With --json: an object with same, common, a, b and differences. common is the number of equal events at the
    beginning. a and b are the first events that differ, and null for a run that has ended. Each difference has path,
    and a or b or both: the value in that run, if the run has one.
    """

    async def work(opened: Store) -> tuple[Snapshot, Snapshot]:
        return await load_existing(opened, left), await load_existing(opened, right)

    snapshots = with_store(store, work)
    result = compare_runs(*snapshots)
    output = Output()
    if as_json:
        output.json(_as_map(result))
    else:
        _write(output, result, *(run_name(snapshot.agent, snapshot.run) for snapshot in snapshots))
    if not result.same:
        raise typer.Exit(1)


def _as_map(result: RunDiff) -> dict[str, JsonValue]:
    return {
        "same": result.same,
        "common": result.common,
        "a": None if result.left_event is None else result.left_event.to_map(),
        "b": None if result.right_event is None else result.right_event.to_map(),
        "differences": [_difference_map(difference) for difference in result.differences],
    }


def _difference_map(difference: Difference) -> dict[str, JsonValue]:
    sides: dict[str, JsonValue] = {"path": difference.path}
    if difference.only != "right":
        sides["a"] = difference.left
    if difference.only != "left":
        sides["b"] = difference.right
    return sides


def _write(output: Output, result: RunDiff, left: str, right: str) -> None:
    equal = counted(result.common, "event")
    if result.same:
        output.line((f"{output.tick} ", GOOD), f"{left} and {right} are equal: {equal}")
        return
    output.line((left, BOLD), " and ", (right, BOLD), f" differ after {equal}")
    for sign, name, style, event in (("-", left, _LEFT, result.left_event), ("+", right, _RIGHT, result.right_event)):
        output.hanging([(f"{sign} ", style), (f"{name}  ", NAME)], _event_text(event))
    for line in describe_all(result.differences, "-", "+"):
        output.hanging([("  ", DIM)], line)


def _event_text(event: Event | None) -> str:
    if event is None:
        return "ends here"
    entry = describe(Row(event), Look())
    lead = "".join(text for text, _ in entry.lead)
    text = "  ".join(part for part in (f"#{event.seq}", entry.kind, lead, entry.text) if part)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
