"""Writes the golden file of the current schema: ``python -m tests.golden.make``.

Run it only while this schema is unreleased. The golden file of a released schema must not change.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent_memory_log import (
    AssistantMessage,
    EventData,
    PlannerNote,
    RetryHint,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log_sqlite import SCHEMA_VERSION

PAYLOADS: tuple[EventData, ...] = (
    UserMessage(message="Where is my order?", structured={"parts": [1, 2.5, 2**70, None, "é\0😀"]}),
    Thinking(text="Look it up.", signature="c2ln", redacted=b"\xff\0", content_index=1, final=True),
    ToolCall("tc-1", "orders.find", payload_json='{"id": 7}'),
    ToolResult(
        "tc-1",
        "orders.find",
        result_json='{"status":"sent"}',
        duration_ns=1_500,
        bounds=Bounds(returned=1, total=0),
        telemetry=ToolTelemetry(duration_ms=2, extra={"cached": False}),
        retry_hint=RetryHint(reason="timeout", missing_fields=("id",), prior_input={"id": 6}),
    ),
    AssistantMessage(message="It is on its way."),
    UnknownPayload(type="from.the.future", data={"": {"$x": 1}}),
    PlannerNote(note="to be forgotten"),
)


def main() -> None:
    """Write the database file, and a JSON file with its runs and events."""
    folder = Path(__file__).parent
    path = folder / f"schema-{SCHEMA_VERSION}.db"
    path.unlink(missing_ok=True)
    start = datetime(2026, 1, 1, 9, tzinfo=UTC)
    contents: list[dict[str, object]] = []
    with open_sync_store(f"sqlite:///{path}") as store:
        for run in ("run-1", "run-2"):
            for index, payload in enumerate(PAYLOADS):
                event = new_event(
                    payload,
                    timestamp=start + timedelta(seconds=index, microseconds=index),
                    labels={"place": str(index)},
                    event_id=f"{run}-{index}",
                )
                store.append_events("support", run, event, meta={"session": "s-1", "n": 2**65})
        store.redact_events("support", "run-1", [7], reason="user request")
        store.delete_run("support", "run-2")
        store.append_events("support", "run-2", new_event(PLANNED, timestamp=start, event_id="again"))
        for event_id in ("to-end", "018f3e2a-7b1c-7d4e-9f60-a1b2c3d4e5f6", "018F3E2A-7B1C-7D4E-9F60-A1B2C3D4E5F7"):
            event = new_event(PLANNED, timestamp=start, event_id=event_id)
            store.append_events("support", "run-3", event, meta={"expires_at": "9999-12-31T23:59:59.5+01:00"})
        for run in ("run-1", "run-2", "run-3"):
            snapshot = store.load_run("support", run)
            contents.append(
                {
                    "agent": "support",
                    "run": run,
                    "version": snapshot.version,
                    "meta": snapshot.meta,
                    "events": [event.to_map() for event in snapshot.log],
                }
            )
    (folder / f"schema-{SCHEMA_VERSION}.json").write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n")


PLANNED = PlannerNote(note="begun again")

if __name__ == "__main__":
    main()
