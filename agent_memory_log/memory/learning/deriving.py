"""Deriving: what is new in a run, through an extractor, into memory; once, however often and by however many.

How far a run was read is noted at home, in the same append as what was found there. A scope other than home that was
written to notes it too, so that a crash between the two writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.context import Context
from agent_memory_log.memory.learning.links import link
from agent_memory_log.memory.learning.writing import note_stop, write
from agent_memory_log.memory.operations import Derive, Rederive
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.protocols import Extraction, Extractor, RunSlice, Violation
from agent_memory_log.memory.records.reports import DeriveReport
from agent_memory_log.memory.stream.payloads import MemoryDerived
from agent_memory_log.steps import Steps, load, work

EXTRACTOR_FAILED = "extractor_failed"
MEMORY_OFF = "memory_off"
_PHASE = "capture"
RECALLED_TYPE = "injected_context"
"""The events that say what a model was told from memory."""


def derive(context: Context, call: Derive) -> Steps[DeriveReport]:
    """Read what is new in a run since the position that was noted."""
    agent, run = call.agent, call.run
    chosen = _chosen(context, agent, call.extractor)
    home = context.subject(context.principal.home)
    yield from home.refresh()
    place = (agent, run)
    after = home.ask(lambda state: max(state.positions.get(place, 0), state.until.get(place, 0)))
    report = yield from _derive(context, agent, run, chosen, after, again=False)
    return report


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
    if new.meta.get("memory") is False:
        return DeriveReport(agent, run, "skipped", MEMORY_OFF, after, after)
    if not new.log:
        return DeriveReport(agent, run, after=after, position=after)
    events = tuple(new.log)
    slice_ = RunSlice(agent, run, new.meta, after, events, context.all_scopes())
    try:
        found = yield from work(lambda: extractor.extract(slice_))
        _check(found, extractor)
    except Exception as error:  # noqa: BLE001  # an extractor may be anybody's, and a model's answer anything
        reason, said = EXTRACTOR_FAILED, f"{type(error).__name__}: {error}"
        found = Extraction(stop_reason=reason)
    else:
        said = ""
    if found.stop_reason:
        yield from note_stop(context, Violation(found.stop_reason), phase=_PHASE)
        return DeriveReport(
            agent, run, "stopped", found.stop_reason, after, after, (), said, found.model_calls, found.usage
        )
    position = new.last_seq if found.position is None else max(after, min(found.position, new.last_seq))
    candidates = [one for one in found.candidates if _lies_within(one, agent, run, position)]
    if candidates:
        recalled = _recalled(events)
        candidates = [one for one in candidates if not _rests_on(one, agent, run, recalled)]
    try:
        report = yield from write(
            context,
            candidates,
            origin="derive",
            phase=_PHASE,
            position=None if again else MemoryDerived(agent, run, position, extractor.name),
            fresh=not again and not found.model_calls,  # a model takes its time
        )
    except InvalidArgument as error:
        yield from note_stop(context, Violation(EXTRACTOR_FAILED), phase=_PHASE)
        return DeriveReport(agent, run, "stopped", EXTRACTOR_FAILED, after, after, (), str(error))
    stopped = report.status == "stopped"
    return DeriveReport(
        agent,
        run,
        report.status,
        report.stop_reason,
        after,
        after if stopped else position,
        report.outcomes,
        "",
        found.model_calls,
        found.usage,
    )


def _check(found: object, extractor: Extractor) -> None:
    if not isinstance(found, Extraction):
        raise InvalidArgument(f"the extractor {extractor.name!r} must return an Extraction, found {describe(found)}")


def _lies_within(candidate: Candidate, agent: str, run: str, position: int) -> bool:
    return all(one.seq <= position for one in candidate.evidence if (one.agent, one.run) == (agent, run))


def _recalled(events: Sequence[Event]) -> frozenset[int]:
    """Where what was recalled from memory stands: it is no evidence for itself."""
    return frozenset(event.seq for event in events if event.type == RECALLED_TYPE)


def _rests_on(candidate: Candidate, agent: str, run: str, seqs: frozenset[int]) -> bool:
    return any(one.seq in seqs for one in candidate.evidence if (one.agent, one.run) == (agent, run))
