"""The process that the demo kills: ``python -m agent_memory_log.cli.demo_writer PAUSE``, not for people.

The URL of the store comes in ``AMLOG_STORE``: arguments can be read by every user of the machine.

Appends every event of the samples by itself and prints a line once the store has acknowledged it: where it is, and
whether it was new. It neither knows nor asks what an earlier writer did.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from agent_memory_log.cli.demo_sample import sample_runs
from agent_memory_log.opening import open_sync_store


class Acknowledged(msgspec.Struct, frozen=True):
    """A line of the writer's output."""

    agent: str
    run: str
    seq: int
    event_id: str
    type: str
    inserted: bool


def main(url: str, pause: float) -> None:
    """Write the samples to the store at ``url``, waiting ``pause`` seconds after each event for people to watch."""
    with open_sync_store(url) as store:
        for sample in sample_runs():
            for event in sample.events:
                result = store.append_events(sample.agent, sample.run, event, meta=sample.meta)
                stored = result.events[0]
                line = Acknowledged(
                    sample.agent, sample.run, stored.seq, stored.event_id, stored.type, bool(result.inserted)
                )
                os.write(1, msgspec.json.encode(line) + b"\n")
                time.sleep(pause)


if __name__ == "__main__":
    try:
        main(os.environ["AMLOG_STORE"], float(sys.argv[1]))
    except BrokenPipeError:
        sys.exit(1)  # whoever started this has gone, and nobody is to hear of it
