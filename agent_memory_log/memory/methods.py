"""Names the memory operations, as they are called in every interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory_log.memory.operations import (
    AsOf,
    BuildContext,
    Cleanup,
    CountRecords,
    Derive,
    Explain,
    ExportJsonl,
    Forget,
    ForgetAll,
    Get,
    History,
    ImportJsonl,
    LinkRun,
    LinkRuns,
    ListRecords,
    NoteStop,
    Purge,
    Rebuild,
    Rederive,
    Remember,
    Search,
    Update,
    Write,
)
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.tool_operations import Delete, Ingest, Restore

METHODS: Mapping[str, type[Operation[Any]]] = {
    "remember": Remember,
    "write": Write,
    "note_stop": NoteStop,
    "get": Get,
    "list": ListRecords,
    "update": Update,
    "delete": Delete,
    "restore": Restore,
    "forget": Forget,
    "forget_all": ForgetAll,
    "search": Search,
    "context": BuildContext,
    "link_run": LinkRun,
    "link_runs": LinkRuns,
    "history": History,
    "as_of": AsOf,
    "explain": Explain,
    "ingest": Ingest,
    "derive": Derive,
    "rederive": Rederive,
    "rebuild": Rebuild,
    "cleanup": Cleanup,
    "purge": Purge,
    "stats": CountRecords,
    "export_jsonl": ExportJsonl,
    "import_jsonl": ImportJsonl,
}
"""The operations by name. The names are the same in every interface."""
