"""Executes an operation: checks its arguments and calls the function that implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import operations as table
from agent_memory_log.memory import tool_operations as tool_table
from agent_memory_log.memory.learning import deriving, ingesting, links, remembering, writing
from agent_memory_log.memory.records.arguments import Operation, Result, check_arguments
from agent_memory_log.memory.search import injecting, reading, searching
from agent_memory_log.memory.stream.context import Context, Served
from agent_memory_log.memory.upkeep import archiving, exchange, forgetting, maintaining
from agent_memory_log.steps import Steps, StoreCall


def execute(operation: Operation[Result], context: Context | Served) -> Steps[Result]:
    """Execute an operation on a principal's memory, or let the store execute it.

    Raises ``InvalidArgument`` with the name of an invalid field, before it reads anything. Also raises the errors of
    the operation itself.
    """
    if type(operation) not in _EXECUTIONS:
        raise InvalidArgument(
            f"expected an operation from agent_memory_log.memory.operations, got {describe(operation)}"
        )
    check_arguments(operation)
    if isinstance(context, Served):
        return _execute_on_server(operation, context)
    return cast("Steps[Result]", _EXECUTIONS[type(operation)](context, operation))


def _execute_on_server(operation: Operation[Result], context: Served) -> Steps[Result]:
    return cast("Result", (yield StoreCall("execute_memory", (operation, context.principal), {})))


_EXECUTIONS: Mapping[type[Operation[Any]], Callable[[Context, Any], Steps[Any]]] = {
    table.Remember: remembering.remember,
    table.Write: writing.write_candidates,
    table.NoteStop: writing.note_stopped,
    table.Get: reading.get,
    table.ListRecords: reading.list_records,
    table.Update: remembering.update,
    tool_table.Delete: archiving.delete,
    tool_table.Restore: archiving.restore,
    table.Forget: forgetting.forget,
    table.ForgetAll: forgetting.forget_all,
    table.Search: searching.search,
    table.BuildContext: injecting.memory_context,
    table.LinkRun: links.link_run,
    table.LinkRuns: links.link_runs,
    table.History: reading.history,
    table.AsOf: reading.as_of,
    table.Explain: reading.explain,
    tool_table.Ingest: ingesting.ingest,
    table.Derive: deriving.derive,
    table.Rederive: deriving.rederive,
    table.Rebuild: maintaining.rebuild,
    table.Cleanup: maintaining.cleanup,
    table.Purge: maintaining.purge,
    table.CountRecords: reading.stats,
    table.ExportJsonl: exchange.export_jsonl,
    table.ImportJsonl: exchange.import_jsonl,
}
