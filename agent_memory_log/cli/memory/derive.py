"""``amlog memory derive``: learns memories from runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, principal_of
from agent_memory_log.cli.memory.views import outcome_map, outcomes_text, write_outcomes
from agent_memory_log.cli.options import AsJson, StoreUrl, is_of_server, open_existing, run_async, store_url
from agent_memory_log.cli.output import BAD, DIM, GOOD, Output, Segment, note
from agent_memory_log.cli.run_names import existing_run, run_name
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import DeriveReport, Extraction, Extractor, MemoryClient, Principal, RunSlice, ServesMemory
from agent_memory_log.wording import counted


def derive(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="AGENT/RUN or RUN, as amlog runs prints them. Optional with --again.",
            show_default=False,
        ),
    ] = None,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    model: Annotated[
        bool, typer.Option("--model", help="Use the model in OPENAI_MODEL. Needs OPENAI_API_KEY.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="Start at the first event of each RUN, or of all runs that were read before."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Learn memories from the new events of runs.

    Without --model, rules find the user's explicit statements and the lessons of errors and tool results. Deriving
    again writes nothing twice, and forgotten values are not learned again. A run is read from four messages on, and a
    turn when it is finished. On the store of a server, the server derives with the rules, or with the model of
    amlog serve --model.

    The exit status is 1 if a run could not be read to its end. Nothing is lost then, because the next derive reads the
    same events again.

    With --json: a list of objects with agent, run, status (ok, stopped or skipped), stop_reason, after, position,
    error, model_calls, usage, waiting and outcomes. The events after the seq in after, up to position, were read.
    waiting is the number of later events, which the next derive reads. Each outcome has action, scope, kind, key,
    reason, superseded, evidence and record.
    """
    if not runs and not again:
        raise UsageProblem("give one or more RUNs, or --again for all runs that were read before")
    if model and is_of_server(store_url(store)):
        raise UsageProblem("--model has no effect on a server: start the server with amlog serve --model")
    with extractor_of(with_model=model) as extractor:
        reports = run_async(_derive(store, principal_of(tenant, user, scopes), runs, extractor, again=again))
    output = Output()
    if as_json:
        output.json([report_map(report) for report in reports])
    elif not reports:
        note("no run was read before: give the RUNs to learn from")
    else:
        for report in reports:
            write_report(output, report)
    output.flush()
    if any(report.status == "stopped" for report in reports):
        raise typer.Exit(1)


class Rules:
    """The extractor of the rules. It compiles their patterns, which takes a second, when it is first used."""

    name = "rules"

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return the candidates of new events."""
        from agent_memory_log.memory.extraction import RuleExtractor  # noqa: PLC0415  # see above

        return RuleExtractor().extract(new)


@contextmanager
def extractor_of(*, with_model: bool) -> Generator[Extractor]:
    """Open the extractor of the rules, or that of the model in the environment."""
    if not with_model:
        yield Rules()
        return
    try:
        from agent_memory_log.memory.extraction.model import ModelExtractor  # noqa: PLC0415  # needs the extra memory
        from agent_memory_log.memory.policy.settings import MemorySettings  # noqa: PLC0415  # as above
        from agent_memory_log.models.openai_chat import OpenAIModel  # noqa: PLC0415  # as above
    except ModuleNotFoundError as error:
        if error.name not in ("openai", "pydantic"):
            raise
        raise CommandFailed("--model needs the openai client: pip install 'agent-memory-log[memory]'") from error
    settings = MemorySettings.from_environment()
    with OpenAIModel(settings.model) as model:
        yield ModelExtractor(model, settings)


async def _derive(
    url: str | None, principal: Principal, names: Sequence[str] | None, extractor: Extractor, *, again: bool
) -> list[DeriveReport]:
    async with open_existing(url) as store:
        memory = MemoryClient(store, extractor=None if isinstance(store, ServesMemory) else extractor).of(principal)
        infos = [await existing_run(store, name) for name in names or ()]
        selected = [(info.agent, info.run) for info in infos]
        if again:
            return list(await memory.rederive(runs=selected or None))
        return [await memory.derive(agent, run) for agent, run in selected]


def report_map(report: DeriveReport) -> dict[str, JsonValue]:
    """Return the report on one run as JSON."""
    return {
        "agent": report.agent,
        "run": report.run,
        "status": report.status,
        "stop_reason": report.stop_reason,
        "after": report.after,
        "position": report.position,
        "error": report.error,
        "model_calls": report.model_calls,
        "usage": dict(report.usage),
        "waiting": report.waiting,
        "outcomes": [outcome_map(outcome) for outcome in report.outcomes],
    }


def write_report(output: Output, report: DeriveReport) -> None:
    """Write the result for one run, with a line for each outcome."""
    name = run_name(report.agent, report.run)
    if report.status == "stopped":
        sign: Segment = (f"{output.cross} ", BAD)
        result = f"stopped: {report.stop_reason}" + (f"   {report.error}" if report.error else "")
    elif report.status == "skipped":
        sign, result = ("- ", DIM), f"skipped: {report.stop_reason}"
    elif report.position == report.after and not report.outcomes:
        waiting = f"nothing to read until more messages arrive ({counted(report.waiting, 'event')})"
        sign, result = (f"{output.tick} ", GOOD), waiting if report.waiting else "no new events to read"
    else:
        sign, result = (f"{output.tick} ", GOOD), outcomes_text(report.outcomes)
    read = f"   #{report.after + 1} to #{report.position}" if report.position > report.after else ""
    output.line(sign, f"{name}: {result}", (read, DIM))
    write_outcomes(output, report.outcomes)
