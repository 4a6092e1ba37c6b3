"""Derives memories from the new events of a run with an extractor. Repeated or concurrent calls write nothing twice.

The position up to which a run was read is stored in the home scope, in the same append as the new memories. Every
other scope that receives memories stores it too. So after a crash between two appends, nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.fields import describe, in_quotes
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.learning.links import link
from agent_memory_log.memory.learning.writing import note_stop, write
from agent_memory_log.memory.operations import Derive, Rederive
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.protocols import Extraction, Extractor, RunSlice, Violation
from agent_memory_log.memory.records.reports.outcomes import DeriveReport, Outcome
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryDerived
from agent_memory_log.steps import Steps, load, work

EXTRACTOR_FAILED = "extractor_failed"
INVALID_CANDIDATE = "invalid_candidate"
MEMORY_OFF = "memory_off"
_PHASE = "capture"


def derive(context: Context, call: Derive) -> Steps[DeriveReport]:
    """Derive memories from the events of a run after the stored position."""
    agent, run = call.agent, call.run
    chosen = _chosen(context, agent, call.extractor)
    home = context.subject(context.principal.home)
    yield from home.refresh()
    run_id = (agent, run)
    after = home.ask(lambda state: max(state.positions.get(run_id, 0), state.until.get(run_id, 0)))
    return (yield from _derive(context, agent, run, chosen, after, again=False))


def rederive(context: Context, call: Rederive) -> Steps[tuple[DeriveReport, ...]]:
    """Derive again from the first event of the given runs, or of all runs with a stored position."""
    home = context.subject(context.principal.home)
    yield from home.refresh()
    derived = home.ask(lambda state: tuple(run_id for run_id, seq in state.positions.items() if seq))
    reports: list[DeriveReport] = []
    for agent, run in derived if call.runs is None else call.runs:
        chosen = _chosen(context, agent, call.extractor)
        reports.append((yield from _derive(context, agent, run, chosen, 0, again=(agent, run) in derived)))
    return tuple(reports)


def _chosen(context: Context, agent: str, extractor: Extractor | None) -> Extractor:
    if is_reserved(agent):
        raise InvalidArgument(f"memory cannot be derived from runs of the reserved agent {in_quotes(agent)}")
    return require_extractor(context, extractor)


def require_extractor(context: Context, extractor: Extractor | None) -> Extractor:
    """Return an extractor, or by default that of the client.

    Raises ``InvalidArgument`` if the client has no extractor, or another object instead of one.
    """
    chosen = extractor or context.hooks.extractor
    if chosen is None:
        raise InvalidArgument("there is no extractor: pass one to derive or to the MemoryClient")
    if isinstance(chosen, type) or not callable(getattr(chosen, "extract", None)):
        raise InvalidArgument(
            f"expected an extractor with name and extract(new), such as RuleExtractor(), got {describe(chosen)}"
        )
    return chosen


def _derive(
    context: Context, agent: str, run: str, extractor: Extractor, after: int, *, again: bool
) -> Steps[DeriveReport]:
    report = yield from _learn(context, agent, run, extractor, after, again=again)
    if report.status == "stopped":  # the run is linked all the same, so that forgetting reaches it
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
    run_slice = RunSlice(agent, run, new.meta, after, tuple(new.log), *_allowed(context))
    extraction = yield from _extracted(extractor, run_slice)
    report = replace(report, error=extraction.error, model_calls=extraction.model_calls, usage=extraction.usage)
    if extraction.stop_reason:
        yield from note_stop(context, Violation(extraction.stop_reason), phase=_PHASE)
        return replace(report, status="stopped", stop_reason=extraction.stop_reason)
    position = new.last_seq if extraction.position is None else max(after, min(extraction.position, new.last_seq))
    candidates, errors = _storable(_learnable(extraction.candidates, run_slice, position))
    refused = (*extraction.refused, *(Outcome("blocked", "", "", "", reason=INVALID_CANDIDATE) for _ in errors))
    report = replace(report, error="; ".join(filter(None, (extraction.error, *errors))))
    try:
        written = yield from write(
            context,
            candidates,
            origin="derive",
            phase=_PHASE,
            position=None if again else MemoryDerived(agent, run, position, extractor.name),
            fresh=not again and not extraction.model_calls,  # a model call is slow, so read home again
        )
    except InvalidArgument as error:
        yield from note_stop(context, Violation(EXTRACTOR_FAILED), phase=_PHASE)
        return replace(report, status="stopped", stop_reason=EXTRACTOR_FAILED, error=str(error))
    if written.status == "stopped":
        return replace(report, status="stopped", stop_reason=written.stop_reason)
    return replace(report, position=position, waiting=new.last_seq - position, outcomes=(*written.outcomes, *refused))


def _allowed(context: Context) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the scopes and the keys that the policy allows. None: any key."""
    policy = context.hooks.policy
    scopes = context.all_scopes()
    if policy.allowed_scopes is not None:
        scopes = tuple(scope for scope in scopes if scope in policy.allowed_scopes)
    return scopes, None if policy.allowed_keys is None else tuple(sorted(policy.allowed_keys))


def _extracted(extractor: Extractor, run_slice: RunSlice) -> Steps[Extraction]:
    """Return what the extractor finds. An error stops it."""
    try:
        extraction: object = yield from work(lambda: extractor.extract(run_slice))
    except Exception as error:  # noqa: BLE001  # an extractor is user code and may raise any error
        return Extraction(stop_reason=EXTRACTOR_FAILED, error=f"{type(error).__name__}: {error}")
    if isinstance(extraction, Extraction):
        return extraction
    problem = f"expected an Extraction from the extractor {extractor.name!r}, got {describe(extraction)}"
    return Extraction(stop_reason=EXTRACTOR_FAILED, error=problem)


def _storable(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates that can be stored, and the errors of the others."""
    valid: list[Candidate] = []
    errors: list[str] = []
    for candidate in candidates:
        try:
            valid.append(checked(candidate))
        except InvalidArgument as error:
            errors.append(str(error))
    return valid, errors


def _learnable(candidates: Sequence[Candidate], run_slice: RunSlice, position: int) -> list[Candidate]:
    """Return the candidates whose evidence in this run is at or before ``position`` and not injected context.

    Injected context comes from memory. Memories derived from it would confirm themselves.
    """
    if not candidates:
        return []
    run_id = (run_slice.agent, run_slice.run)
    injected = {event.seq for event in run_slice.events if isinstance(event.data, InjectedContext)}
    return [
        candidate
        for candidate in candidates
        if all(
            item.seq <= position and item.seq not in injected for item in candidate.evidence if item.run_id == run_id
        )
    ]
