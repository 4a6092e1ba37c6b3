"""Writes a run grouped by turn, with a heading before the events of each turn."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from agent_memory_log.cli.output import BOLD, DIM, Output
from agent_memory_log.cli.timeline import Row, arrange
from agent_memory_log.cli.timeline_view import TimelineWriter
from agent_memory_log.events.payloads import ToolCall
from agent_memory_log.reader import Reader, Turn
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.wording import counted


def write_turns(output: Output, writer: TimelineWriter, snapshot: Snapshot) -> None:
    """Write a whole run as a timeline, with a heading where each turn begins."""
    reader = Reader(snapshot)
    turns, waiting = reader.turns(), _open_seqs(reader)
    chunks: list[list[Row]] = [[] for _ in turns]
    number = 0
    # A result is shown below its call, even if a later turn holds it. User messages keep their order, so a row with
    # the user message of the next turn begins that turn.
    for row in arrange(snapshot.log):
        while number + 1 < len(turns) and row.event is turns[number + 1].user_message:
            number += 1
        chunks[number].append(row)
    for at, (turn, rows) in enumerate(zip(turns, chunks, strict=True)):
        if at:
            output.line("")
        output.line((f"turn {at + 1}", BOLD), (f"   {_turn_text(turn, waiting)}", DIM))
        writer.write(rows)


def write_json_turns(output: Output, snapshot: Snapshot) -> None:
    """Write a line of JSON for each turn."""
    reader = Reader(snapshot)
    waiting = _open_seqs(reader)
    for number, turn in enumerate(reader.turns(), 1):
        calls, unanswered = _calls(turn, waiting)
        output.json_line(
            {
                "turn": number,
                "first_seq": turn.events[0].seq,
                "last_seq": turn.events[-1].seq,
                "tool_calls": calls,
                "open_tool_calls": unanswered,
                "events": [event.to_map() for event in turn.events],
            }
        )


def _turn_text(turn: Turn, waiting: AbstractSet[int]) -> str:
    first, last = turn.events[0].seq, turn.events[-1].seq
    calls, unanswered = _calls(turn, waiting)
    parts = [f"event {first}" if first == last else f"events {first}-{last}"]
    parts += [counted(calls, "tool call")] if calls else []
    parts += [f"{unanswered} open"] if unanswered else []
    return ", ".join(parts)


def _open_seqs(reader: Reader) -> AbstractSet[int]:
    return {event.seq for event in reader.open_tool_calls()}


def _calls(turn: Turn, waiting: AbstractSet[int]) -> tuple[int, int]:
    """Return the number of tool calls in a turn, and how many of them are in ``waiting``."""
    calls = {event.seq for event in turn.events if isinstance(event.data, ToolCall)}
    return len(calls), len(calls & waiting)
