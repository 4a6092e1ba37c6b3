"""Parts for the authors of backends: a store's public methods, handles, wake-ups of followers, URL options.

A backend is a package with a ``Store``, a ``SyncStore`` and an object that implements the ``Backend`` protocol. An
entry point in the group ``agent_memory_log.backends`` names this object. The name of the entry point is the URL scheme.
The in-memory backend is the simplest example.
"""

from agent_memory_log.backend_kit.appends import (
    DEFAULT_MAX_EVENT_BYTES,
    Append,
    append_result,
    check_markers,
    check_version,
    checked_append,
    new_in_batch,
    plan_redaction,
)
from agent_memory_log.backend_kit.checks import (
    MAX_ID_LENGTH,
    MAX_LABEL_KEY_LENGTH,
    MAX_LABELS,
    Prepared,
    check_after,
    check_append,
    check_erasures,
    check_event_ids,
    check_ids,
    check_journal_reached,
    check_limit,
    check_listing,
    check_load,
    check_meta,
    check_reached,
    check_runs,
    check_scope,
    check_seqs,
    check_types,
    prepare,
    prepare_batch,
)
from agent_memory_log.backend_kit.expiry import check_before, check_expiry, expiry_of, now_microseconds, seconds_left
from agent_memory_log.backend_kit.handles import AsyncHandle, Handle, SyncHandle
from agent_memory_log.backend_kit.paging import decode_cursor, encode_cursor
from agent_memory_log.backend_kit.signals import ChangeSignal
from agent_memory_log.backend_kit.surfaces import AsyncSurface, Reads, SyncSurface, Writes
from agent_memory_log.backend_kit.urls import Backend, KeepsFiles, ReadsGoOriginal, StoreUrl
from agent_memory_log.events.reserved import check_not_reserved, is_reserved

__all__ = [
    "DEFAULT_MAX_EVENT_BYTES",
    "MAX_ID_LENGTH",
    "MAX_LABELS",
    "MAX_LABEL_KEY_LENGTH",
    "Append",
    "AsyncHandle",
    "AsyncSurface",
    "Backend",
    "ChangeSignal",
    "Handle",
    "KeepsFiles",
    "Prepared",
    "Reads",
    "ReadsGoOriginal",
    "StoreUrl",
    "SyncHandle",
    "SyncSurface",
    "Writes",
    "append_result",
    "check_after",
    "check_append",
    "check_before",
    "check_erasures",
    "check_event_ids",
    "check_expiry",
    "check_ids",
    "check_journal_reached",
    "check_limit",
    "check_listing",
    "check_load",
    "check_markers",
    "check_meta",
    "check_not_reserved",
    "check_reached",
    "check_runs",
    "check_scope",
    "check_seqs",
    "check_types",
    "check_version",
    "checked_append",
    "decode_cursor",
    "encode_cursor",
    "expiry_of",
    "is_reserved",
    "new_in_batch",
    "now_microseconds",
    "plan_redaction",
    "prepare",
    "prepare_batch",
    "seconds_left",
]
