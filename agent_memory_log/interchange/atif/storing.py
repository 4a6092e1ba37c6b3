"""Appends the runs of an ATIF document to a store, including the runs of sub-agents."""

from __future__ import annotations

from collections.abc import Iterator

from agent_memory_log.errors import AgentMemoryLogError, InvalidEvent
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.reserved import check_not_reserved
from agent_memory_log.interchange.atif.reading import AtifRun
from agent_memory_log.store import Store
from agent_memory_log.transfer.endline import FORMAT, OPEN_FORMAT_NUMBER
from agent_memory_log.transfer.importing import ImportedRun
from agent_memory_log.transfer.jsonl import import_jsonl


async def import_atif(store: Store, trajectory: AtifRun, *, reserved: bool = False) -> list[ImportedRun]:
    """Append a run of ``from_atif`` and the runs of its sub-agents to a store.

    The import works like ``import_jsonl``. An empty target run keeps the seqs of the events. A second import of the
    same run adds nothing.

        for imported in await import_atif(store, from_atif(document)):
            print(imported.agent, imported.run, imported.inserted)

    Args:
        store: The store to append to.
        trajectory: The result of ``from_atif``.
        reserved: Whether to accept the library's own agents and event types. Only an operator should set it.

    Returns:
        One result for each run that has events.

    Raises:
        InvalidEvent: A run uses an agent or event type of the library and ``reserved`` is false. Nothing is stored.

    The function also raises the errors of ``import_jsonl``, with the name of the run as a note.
    """
    for run in trajectory:
        try:
            check_not_reserved(run.agent, run.events, reserved=reserved)
        except InvalidEvent as error:
            raise InvalidEvent(f"the run {run.agent}/{run.run}: {error}", field=error.field) from error
    results: list[ImportedRun] = []
    for run in trajectory:
        try:
            results += await import_jsonl(store, _lines(run), reserved=reserved)
        except AgentMemoryLogError as error:
            error.add_note(f"in the run {run.agent}/{run.run}, converted to JSONL")
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
    is_complete = last - first + 1 == len(run.events)
    for event in run.events:
        line = event.to_map()
        if not is_complete:
            del line["seq"]  # the store assigns new seqs if the run has gaps
        yield encode_json(line)
