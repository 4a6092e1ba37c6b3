"""A trajectory into a store: the run it stands for, and those of its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator

from agent_memory_log.errors import AgentMemoryLogError, InvalidEvent
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.reserved import check_not_reserved
from agent_memory_log.interchange.atif.reading import AtifRun
from agent_memory_log.store import Store
from agent_memory_log.transfer.endline import FORMAT, OPEN_FORMAT_NUMBER
from agent_memory_log.transfer.jsonl import import_jsonl
from agent_memory_log.transfer.run_lines import ImportedRun


async def import_atif(store: Store, found: AtifRun, *, reserved: bool = False) -> list[ImportedRun]:
    """Append what ``from_atif`` found to its runs, those of its sub-agents too; one result for each that has events.

    Goes the way of ``import_jsonl``: a run that holds no events keeps the seqs, and importing again stores nothing.
    Raises what that raises, with a note of the run it happened in; an agent or an event type that is the library's own
    is ``InvalidEvent`` before anything is stored, unless ``reserved``, an operator's right.

        for done in await import_atif(store, from_atif(document)):
            print(done.agent, done.run, done.inserted)
    """
    for run in found:
        try:
            check_not_reserved(run.agent, run.events, reserved=reserved)
        except InvalidEvent as error:
            raise InvalidEvent(f"the run {run.agent}/{run.run}: {error}", field=error.field) from error
    results: list[ImportedRun] = []
    for run in found:
        try:
            results += await import_jsonl(store, _lines(run), reserved=reserved)
        except AgentMemoryLogError as error:
            error.add_note(f"{run.agent}/{run.run} as JSONL")
            raise
    return results


def _lines(run: AtifRun) -> Iterator[bytes]:
    if not run.events:
        return
    first, last = run.events[0].seq, run.events[-1].seq
    yield encode_json(
        {
            "format": f"{FORMAT}/{OPEN_FORMAT_NUMBER}",
            "agent": run.agent,
            "run": run.run,
            "version": last,
            "meta": run.meta,
        }
    )
    is_whole = last - first + 1 == len(run.events)
    for event in run.events:
        line = event.to_map()
        if not is_whole:
            del line["seq"]  # a part of a run has no place of its own in a store
        yield encode_json(line)
