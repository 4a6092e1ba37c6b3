"""``amlog replay``: writes a run as a provider's transcript."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import RunName, StoreUrl, with_store
from agent_memory_log.cli.output import Output, note
from agent_memory_log.cli.run_names import load_existing
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.transcript import Transcript, build, provider_names, repair, request, validate
from agent_memory_log.transcript.providers import find_provider


def replay(
    run: RunName,
    *,
    provider: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PROVIDER",
            help=f"The provider: {', '.join(provider_names())}, or a vendor's name or base URL.",
        ),
    ],
    store: StoreUrl = None,
    repaired: Annotated[
        bool, typer.Option("--repair", help="Change only the parts that the provider would refuse.")
    ] = False,
    whole_request: Annotated[
        bool,
        typer.Option("--request", help="Write every argument of the call that the log contains, not only messages."),
    ] = False,
    max_result_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-result-bytes",
            min=1,
            metavar="N",
            help="Leave out tool results larger than N bytes.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a run as a provider's transcript, in JSON.

    The JSON is the value of the messages argument of the provider's API call (of input for openai-responses, of
    contents for gemini).

    If standard error is a terminal, remarks are written to it. They list the parts of the run that the transcript
    lacks, and the parts that the provider would refuse. With --repair they list the changes instead of refused parts.
    """
    try:
        key = find_provider(provider).messages_key
    except InvalidArgument as error:
        raise UsageProblem(one_line(str(error))) from error
    snapshot = with_store(store, lambda opened: load_existing(opened, run))
    arguments: dict[str, Any] | None = None
    if whole_request:
        arguments = request(snapshot, provider, max_result_bytes=max_result_bytes)
        transcript: Transcript = arguments.pop(key)
    else:
        transcript = build(snapshot, provider, max_result_bytes=max_result_bytes)
    remarks = [_remark("left out", loss.reason, loss.seq, loss.message) for loss in transcript.losses]
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


def _remark(category: str, name: str, seq: int | None, message: str) -> str:
    event = f"event {seq}: " if seq else ""
    return f"{category}: {name}: {event}{message}"
