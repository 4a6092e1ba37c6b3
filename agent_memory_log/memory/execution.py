"""Executes an operation: checks its arguments and calls the function that implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import operations as table
from agent_memory_log.memory.embedding import storing
from agent_memory_log.memory.embedding.sending import execute_on_server
from agent_memory_log.memory.governance import consent, consolidation, health, maintenance, resolving, stories
from agent_memory_log.memory.learning import deriving, ingesting, links, remembering, writing
from agent_memory_log.memory.records.arguments import Operation, Result, check_arguments
from agent_memory_log.memory.relations import calls as graph
from agent_memory_log.memory.search import injecting, reading, searching
from agent_memory_log.memory.stream.context import Context, Served
from agent_memory_log.memory.upkeep import archiving, exchange, forgetting, maintaining
from agent_memory_log.steps import Steps


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
        return execute_on_server(operation, context)
    return cast("Steps[Result]", _EXECUTIONS[type(operation)](context, operation))


_EXECUTIONS: Mapping[type[Operation[Any]], Callable[[Context, Any], Steps[Any]]] = {
    table.Remember: remembering.remember,
    table.Add: remembering.add,
    table.AddFromDraft: remembering.add_from_draft,
    table.Write: writing.write_candidates,
    table.NoteStop: writing.note_stopped,
    table.Get: reading.get,
    table.ListRecords: reading.list_records,
    table.Update: remembering.update,
    table.Delete: archiving.delete,
    table.Restore: archiving.restore,
    table.Forget: forgetting.forget,
    table.ForgetAll: forgetting.forget_all,
    table.Search: searching.search,
    table.BuildContext: injecting.memory_context,
    table.LinkRun: links.link_run,
    table.LinkRuns: links.link_runs,
    table.History: reading.history,
    table.AsOf: reading.as_of,
    table.Explain: reading.explain,
    table.Trace: graph.trace,
    table.TraceGraph: graph.trace_graph,
    table.Neighbours: graph.neighbours,
    table.Paths: graph.paths,
    table.ExportGraph: graph.export_graph,
    table.Ingest: ingesting.ingest,
    table.Derive: deriving.derive,
    table.Rederive: deriving.rederive,
    table.Rebuild: maintaining.rebuild,
    table.Maintain: maintenance.maintain,
    table.Separate: consolidation.separate,
    table.ListConflicts: resolving.list_conflicts,
    table.Resolve: resolving.resolve,
    table.Unresolve: resolving.unresolve,
    table.Purge: maintaining.purge,
    table.CountRecords: reading.stats,
    table.AskConsent: consent.ask_consent,
    table.GiveConsent: consent.give_consent,
    table.WithdrawConsent: consent.withdraw_consent,
    table.ReadQuotas: consent.read_quotas,
    table.ListTextsToEmbed: storing.texts_to_embed,
    table.StoreVectors: storing.store_vectors,
    table.DropVectors: storing.drop_vectors,
    table.CheckHealth: health.check_health,
    table.AuditEvents: stories.audit_events,
    table.EvolutionEvents: stories.evolution_events,
    table.ExportJsonl: exchange.export_jsonl,
    table.ImportJsonl: exchange.import_jsonl,
}
