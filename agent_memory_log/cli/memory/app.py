"""The command group ``amlog memory``, with its commands in the order of the help."""

from __future__ import annotations

from collections.abc import Callable

import typer

from agent_memory_log.cli.memory.auditing import audit, evolution
from agent_memory_log.cli.memory.conflicts import conflicts, resolve, unresolve
from agent_memory_log.cli.memory.consent import consent
from agent_memory_log.cli.memory.context import context
from agent_memory_log.cli.memory.deleting import delete, restore, separate
from agent_memory_log.cli.memory.derive import derive
from agent_memory_log.cli.memory.explain import explain
from agent_memory_log.cli.memory.exporting import export
from agent_memory_log.cli.memory.forget import forget
from agent_memory_log.cli.memory.graph import graph
from agent_memory_log.cli.memory.health import health
from agent_memory_log.cli.memory.history import history
from agent_memory_log.cli.memory.importing import import_records
from agent_memory_log.cli.memory.ingest import ingest
from agent_memory_log.cli.memory.link import link
from agent_memory_log.cli.memory.listing import list_records
from agent_memory_log.cli.memory.maintain import maintain
from agent_memory_log.cli.memory.neighbours import neighbours
from agent_memory_log.cli.memory.paths import paths
from agent_memory_log.cli.memory.quotas import quotas
from agent_memory_log.cli.memory.rebuild import rebuild
from agent_memory_log.cli.memory.remembering import remember
from agent_memory_log.cli.memory.search import search
from agent_memory_log.cli.memory.show import show
from agent_memory_log.cli.memory.stats import stats
from agent_memory_log.cli.memory.subjects import subjects
from agent_memory_log.cli.memory.trace import trace
from agent_memory_log.cli.options import reflowed

_COMMANDS: dict[str, Callable[..., None]] = {
    "remember": remember,
    "ingest": ingest,
    "derive": derive,
    "link": link,
    "list": list_records,
    "show": show,
    "search": search,
    "context": context,
    "explain": explain,
    "history": history,
    "evolution": evolution,
    "audit": audit,
    "trace": trace,
    "neighbours": neighbours,
    "paths": paths,
    "graph": graph,
    "stats": stats,
    "health": health,
    "quotas": quotas,
    "subjects": subjects,
    "delete": delete,
    "restore": restore,
    "conflicts": conflicts,
    "resolve": resolve,
    "unresolve": unresolve,
    "forget": forget,
    "consent": consent,
    "maintain": maintain,
    "separate": separate,
    "rebuild": rebuild,
    "export": export,
    "import": import_records,
}

_HELP = (
    "Learn memories of users from runs, show them and erase them.\n\n"
    "Select the user with --tenant and --user. Use --scope NAME=ID for other scopes."
)

memory_app = typer.Typer(no_args_is_help=True, help=_HELP)
for _name, _command in _COMMANDS.items():
    memory_app.command(_name, help=reflowed(_command))(_command)
