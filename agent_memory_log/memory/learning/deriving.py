"""Deriving: what is new in a run, through an extractor, into memory; once, however often and by however many.

How far a run was read is noted at home, in the same append as what was found there. A scope other than home that was
written to notes it too, so that a crash between the two writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.learning.links import link
from agent_memory_log.memory.learning.writing import note_stop, write
from agent_memory_log.memory.operations import Derive, Rederive
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.messages import INJECTED_CONTEXT
from agent_memory_log.memory.records.protocols import Extraction, Extractor, RunSlice, Violation
from agent_memory_log.memory.records.reports import DeriveReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryDerived
from agent_memory_log.steps import Steps, load, work

EXTRACTOR_FAILED = "extractor_failed"
MEMORY_OFF = "memory_off"
_PHASE = "capture"


def derive(context: Context, call: Derive) -> Steps[DeriveReport]:
    """Read what is new in a run since the position that was noted."""
    agent, run = call.agent, call.run
    chosen = _chosen(context, agent, call.extractor)
    home = context.subject(context.principal.home)
    yield from home.refresh()
    place = (agent, run)
    after = home.ask(lambda state: max(state.positions.get(place, 0), state.until.get(place, 0)))
    return (yield from _derive(context, agent, run, chosen, after, again=False))


def rederive(context: Context, call: Rederive) -> Steps[tuple[DeriveReport, ...]]:
    """Ask anew about every run that is known, or those named, from the first event."""
    home = context.subject(context.principal.home)
    yield from home.refresh()
    known = home.ask(lambda state: tuple(place for place, seq in state.positions.items() if seq))
    reports: list[DeriveReport] = []
    for agent, run in known if call.runs is None else call.runs:
        chosen = _chosen(context, agent, call.extractor)
        reports.append((yield from _derive(context, agent, run, chosen, 0, again=(agent, run) in known)))
    return tuple(reports)


def _chosen(context: Context, agent: str, extractor: Extractor | None) -> Extractor:
    if is_reserved(agent):
        raise InvalidArgument(f"memory is not derived from the library's own runs, as those of {describe(agent)}")
    chosen = extractor or context.hooks.extractor
    if chosen is None:
        raise InvalidArgument("no extractor: give one to derive, or to the MemoryClient")
    return chosen


def _derive(
    context: Context, agent: str, run: str, extractor: Extractor, after: int, *, again: bool
) -> Steps[DeriveReport]:
    report = yield from _learn(context, agent, run, extractor, after, again=again)
    if report.status == "stopped":  # nothing was written; the run is known all the same, so that forgetting reaches it
        yield from link(context, context.principal.home, [(agent, run)])
    return report


def _learn(
    context: Context, agent: str, run: str, extractor: Extractor, after: int, *, again: bool
) -> Steps[DeriveReport]:
    new = yield from load(agent, run, after)
    report = DeriveReport(agent, run, after=after, position=after)
    if new.meta.get("memory") is False:
        return replace(report, status="skipped", stop_reason=MEMORY_OFF)
    if not new.log:
        return report
    run_slice = RunSlice(agent, run, new.meta, after, tuple(new.log), context.all_scopes())
    try:
        extraction = yield from work(lambda: extractor.extract(run_slice))
        _check(extraction, extractor)
    except Exception as error:  # noqa: BLE001  # an extractor may be anybody's, and a model's answer anything
        extraction = Extraction(stop_reason=EXTRACTOR_FAILED)
        report = replace(report, error=f"{type(error).__name__}: {error}")
    report = replace(report, model_calls=extraction.model_calls, usage=extraction.usage)
    if extraction.stop_reason:
        yield from note_stop(context, Violation(extraction.stop_reason), phase=_PHASE)
        return replace(report, status="stopped", stop_reason=extraction.stop_reason)
    position = new.last_seq if extraction.position is None else max(after, min(extraction.position, new.last_seq))
    candidates = _learnable(extraction.candidates, run_slice, position)
    try:
        written = yield from write(
            context,
            candidates,
            origin="derive",
            phase=_PHASE,
            position=None if again else MemoryDerived(agent, run, position, extractor.name),
            fresh=not again and not extraction.model_calls,  # a model takes its time
        )
    except InvalidArgument as error:
        yield from note_stop(context, Violation(EXTRACTOR_FAILED), phase=_PHASE)
        return replace(report, status="stopped", stop_reason=EXTRACTOR_FAILED, error=str(error))
    if written.status == "stopped":
        return replace(report, status="stopped", stop_reason=written.stop_reason)
    return replace(report, position=position, outcomes=written.outcomes)


def _check(extraction: object, extractor: Extractor) -> None:
    if not isinstance(extraction, Extraction):
        raise InvalidArgument(
            f"the extractor {extractor.name!r} must return an Extraction, found {describe(extraction)}"
        )


def _learnable(candidates: Sequence[Candidate], run_slice: RunSlice, position: int) -> list[Candidate]:
    """The candidates that rest on nothing beyond ``position``, and on no injected context, which would cite itself."""
    if not candidates:
        return []
    run_id = (run_slice.agent, run_slice.run)
    injected = {event.seq for event in run_slice.events if event.type == INJECTED_CONTEXT}
    return [
        candidate
        for candidate in candidates
        if all(one.seq <= position and one.seq not in injected for one in candidate.evidence if one.run_id == run_id)
    ]
