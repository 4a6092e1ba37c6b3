"""``amlog memory consent``: asks for, gives and withdraws the consent of a user."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, owner_text, principal_of
from agent_memory_log.cli.memory.table import option
from agent_memory_log.cli.memory.views import memories, outcome_map, write_outcomes
from agent_memory_log.cli.options import AsJson, StoreUrl, Yes, confirmed, run_async
from agent_memory_log.cli.output import Output
from agent_memory_log.memory import ForgetReport, Outcome, Principal
from agent_memory_log.memory.operations import WithdrawConsent


class Action(Enum):
    """The changes of a consent."""

    ask = "ask"
    give = "give"
    withdraw = "withdraw"


def consent(
    action: Annotated[Action, typer.Argument(metavar="ask|give|withdraw", help="The change.", show_default=False)],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of memory, such as fact.", show_default=False)],
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key. Default: all records of the kind.", show_default=False)
    ] = "",
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    evidence: Annotated[bool, option(WithdrawConsent, "evidence", "--evidence")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Note that a user was asked for consent, gave it or withdrew it.

    From ask on, no such memory is stored until give. The consent for a key comes before the one for its kind. withdraw
    also forgets such memories, after a confirmation, and stores no more. List the consents with amlog memory list
    --kind consent.

    With --json: for ask and give, an object with action, scope, kind, key, reason, superseded, evidence and record.
    For withdraw, an object with records and evidence: how many memories were forgotten, and how many events of runs
    were redacted.
    """
    principal = principal_of(tenant, user, scopes)
    if action is Action.withdraw:
        about = f"the {kind} {key!r}" if key else f"every {kind}"
        confirmed(f"Forget {about} of {owner_text(principal)} permanently, and store no more?", yes=yes)
        report = run_async(_withdraw(store, principal, kind, key, evidence=evidence))
        counts = {"records": report.records, "evidence": report.evidence}
        Output().report(counts, f"forgot {memories(report.records)}, and stores no more", as_json=as_json)
        return
    outcome = run_async(_change(store, principal, action, kind, key))
    output = Output()
    if as_json:
        output.json(outcome_map(outcome))
    else:
        write_outcomes(output, [outcome])


async def _withdraw(url: str | None, principal: Principal, kind: str, key: str, *, evidence: bool) -> ForgetReport:
    async with open_memory(url, principal, create=True) as memory:
        return await memory.withdraw_consent(kind, key, evidence=evidence)


async def _change(url: str | None, principal: Principal, action: Action, kind: str, key: str) -> Outcome:
    async with open_memory(url, principal, create=True) as memory:
        return await (memory.ask_consent if action is Action.ask else memory.give_consent)(kind, key)
