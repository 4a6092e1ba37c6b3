"""``amlog replay``: a run as a provider's transcript."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import RunName, StoreUrl, with_store
from agent_memory_log.cli.output import Output, note
from agent_memory_log.cli.run_names import load_existing
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.transcript import Transcript, build, provider_names, repair, request, validate
from agent_memory_log.transcript.providers import find_provider


def replay(
    run: RunName,
    *,
    provider: Annotated[
        str, typer.Option("--to", metavar="PROVIDER", help="anthropic, bedrock, openai-chat or openai-responses.")
    ],
    store: StoreUrl = None,
    repaired: Annotated[
        bool, typer.Option("--repair", help="Change what the provider would refuse, and nothing else.")
    ] = False,
    whole_request: Annotated[
        bool, typer.Option("--request", help="All arguments of the call the log can supply, not the messages alone.")
    ] = False,
    max_result_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-result-bytes", min=1, metavar="N", help="Leave out larger tool results.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a run as a provider's transcript, as JSON.

    It is what the provider's call takes as messages (openai-responses: input). What of the run is not in it, what the
    provider would refuse, and with --repair what was changed, is said on standard error where that is a terminal.
    """
    if provider not in provider_names():
        raise UsageProblem(f"unknown provider {one_line(provider)!r}: --to takes {', '.join(provider_names())}")
    snapshot = with_store(store, lambda opened: load_existing(opened, run))
    arguments: dict[str, Any] | None = None
    key = find_provider(provider).messages_key
    if whole_request:
        arguments = request(snapshot, provider, max_result_bytes=max_result_bytes)
        transcript: Transcript = arguments.pop(key)
    else:
        transcript = build(snapshot, provider, max_result_bytes=max_result_bytes)
    remarks = [_remark("not in it", loss.reason, loss.seq, loss.message) for loss in transcript.losses]
    if repaired:
        outcome = repair(transcript, provider, request=arguments)
        transcript = outcome.transcript
        arguments = None if arguments is None else outcome.request
        remarks += [_remark("repaired", change.change, change.seq, change.message) for change in outcome.changes]
    else:
        findings = validate(transcript, provider, request=arguments)
        remarks += [_remark("invalid", finding.rule, finding.seq, finding.message) for finding in findings]
    Output().json(transcript if arguments is None else {key: transcript, **arguments})
    if sys.stderr.isatty():
        for remark in remarks:
            note(remark)


def _remark(what: str, name: str, seq: int | None, message: str) -> str:
    place = f"event {seq}: " if seq else ""
    return f"{what}: {name}: {place}{message}"
