"""Executes an operation: checks its arguments and calls the function that implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import operations as table
from agent_memory_log.memory.learning import deriving, links, remembering, writing
from agent_memory_log.memory.records.arguments import Operation, check_arguments
from agent_memory_log.memory.search import injecting, reading, searching
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.upkeep import exchange, forgetting, maintaining
from agent_memory_log.steps import Steps

_Result = TypeVar("_Result")


def execute(operation: Operation[_Result], context: Context) -> Steps[_Result]:
    """Execute an operation on a principal's memory.

    Raises ``InvalidArgument`` with the name of an invalid field, before it reads anything. Also raises the errors of
    the operation itself.
    """
    if type(operation) not in _EXECUTIONS:
        raise InvalidArgument(
            f"expected an operation from agent_memory_log.memory.operations, got {describe(operation)}"
        )
    check_arguments(operation)
    return cast("Steps[_Result]", _EXECUTIONS[type(operation)](context, operation))


_EXECUTIONS: Mapping[type[Operation[Any]], Callable[[Context, Any], Steps[Any]]] = {
    table.Remember: remembering.remember,
    table.Write: writing.write_candidates,
    table.NoteStop: writing.note_stopped,
    table.Get: reading.get,
    table.ListRecords: reading.list_records,
    table.Update: remembering.update,
    table.Forget: forgetting.forget,
    table.ForgetAll: forgetting.forget_all,
    table.Search: searching.search,
    table.BuildContext: injecting.memory_context,
    table.LinkRun: links.link_run,
    table.LinkRuns: links.link_runs,
    table.History: reading.history,
    table.AsOf: reading.as_of,
    table.Explain: reading.explain,
    table.Derive: deriving.derive,
    table.Rederive: deriving.rederive,
    table.Rebuild: maintaining.rebuild,
    table.Cleanup: maintaining.cleanup,
    table.Purge: maintaining.purge,
    table.CountRecords: reading.stats,
    table.ExportJsonl: exchange.export_jsonl,
    table.ImportJsonl: exchange.import_jsonl,
}
