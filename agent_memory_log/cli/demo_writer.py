"""The process that the demo kills. ``amlog demo`` starts it with ``python -m agent_memory_log.cli.demo_writer PAUSE``.

It appends the events of the sample run one by one, and prints a line after the store has acknowledged each. It does not
know which events an earlier writer has stored. ``AMLOG_STORE`` holds the URL of the store, because every user of the
machine can read arguments.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, decode_json
from agent_memory_log.opening import open_sync_store
from agent_memory_log.samples import sample_lines


class Acknowledged(msgspec.Struct, frozen=True):
    """A line of the writer's output, about one stored event. ``inserted`` is false if it was stored before."""

    seq: int
    event_id: str
    inserted: bool


class SampleRun(msgspec.Struct, frozen=True):
    """The run that the demo writes to the store."""

    agent: str
    run: str
    meta: dict[str, JsonValue]
    events: list[Event]


def sample_run() -> SampleRun:
    """Read the run from the samples. Its event ids are the same in every process."""
    header, *lines, _end = (decode_json(line) for line in sample_lines("demo.jsonl"))
    return SampleRun(header["agent"], header["run"], header["meta"], [Event.from_map(line) for line in lines])


def main(url: str, pause: float) -> None:
    """Write the sample run to the store at ``url``, and wait ``pause`` seconds after each event."""
    sample = sample_run()
    with open_sync_store(url) as store:
        for event in sample.events:
            result = store.append_events(sample.agent, sample.run, event, meta=sample.meta)
            (stored,) = result.events
            line = Acknowledged(stored.seq, stored.event_id, bool(result.inserted))
            os.write(1, msgspec.json.encode(line) + b"\n")
            time.sleep(pause)


if __name__ == "__main__":
    try:
        main(os.environ["AMLOG_STORE"], float(sys.argv[1]))
    except BrokenPipeError:
        sys.exit(1)  # the demo has ended and no longer reads this output
    except AgentMemoryLogError as error:
        sys.exit(f"amlog: {error}")
