"""Writes the sample ``demo.jsonl``: the run of an agent that finds out why a shop's checkout is slow.

After you change this file, run ``python -m tools.make_demo``. A test compares its output with the sample.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    PlannerNote,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.transfer.endline import FORMAT, FORMAT_NUMBER, LineDigest, format_of

SAMPLE = Path(__file__).parents[1] / "agent_memory_log" / "samples" / "demo.jsonl"

AGENT = "ops-agent"
RUN = "2026-03-06-slow-checkout"
META: dict[str, JsonValue] = {"session_id": "s-4471", "service": "checkout", "on_call": "Ines"}

_START = datetime(2026, 3, 6, 8, 14, 3, 250_000, tzinfo=UTC)
_ROLES: dict[type[EventData], str] = {
    UserMessage: "user",
    AssistantMessage: "assistant",
    SystemMessage: "system",
    ToolResult: "tool",
}


class _Script:
    """The events of the demo run so far, with a clock for their timestamps."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._now = _START
        self._turn = 0

    def add(self, payload: EventData, *, after_ms: int = 40, **labels: str) -> None:
        self._now += timedelta(milliseconds=after_ms)
        role = _ROLES.get(type(payload))
        if isinstance(payload, UserMessage):
            self._turn += 1
        self.events.append(
            new_event(
                payload,
                timestamp=self._now,
                labels={
                    **({"role": role} if role else {}),
                    **({"turn": str(self._turn)} if self._turn else {}),
                    **labels,
                },
                event_id=f"demo-{len(self.events) + 1:03}",
            )
        )

    def think(self, text: str, *, after_ms: int = 1800) -> None:
        signature = base64.b64encode(hashlib.sha384(text.encode()).digest()).decode()
        self.add(Thinking(text=text, signature=signature, final=True), after_ms=after_ms)

    def call(self, call_id: str, tool: str, arguments: str, *, parent: str = "", children: int = 0) -> None:
        self.add(
            ToolCall(
                tool_call_id=call_id,
                tool_name=tool,
                parent_tool_call_id=parent,
                payload_json=arguments,
                queue="diagnosis" if parent else "",
                expected_children_total=children,
            )
        )

    def result(
        self,
        call_id: str,
        tool: str,
        text: str = "",
        *,
        ms: int,
        parent: str = "",
        preview: str = "",
        error: str = "",
        bounds: Bounds | None = None,
        telemetry: ToolTelemetry | None = None,
        hint: RetryHint | None = None,
        server_data: str = "",
    ) -> None:
        self.add(
            ToolResult(
                tool_call_id=call_id,
                tool_name=tool,
                parent_tool_call_id=parent,
                result_json=text,
                server_data=server_data,
                preview=preview,
                bounds=bounds,
                duration_ns=ms * 1_000_000,
                telemetry=telemetry,
                retry_hint=hint,
                error_message=error,
            ),
            after_ms=ms,
        )


def demo_events() -> list[Event]:
    """Return the events of the demo run, in order, with fixed times and ids."""
    run = _Script()
    _first_turn(run)
    _second_turn(run)
    _third_turn(run)
    return run.events


def _first_turn(run: _Script) -> None:
    run.add(
        SystemMessage(
            message="You are the operations agent of Kiln & Thread. Find causes before you propose changes, cite what "
            "you measured, and never deploy without a person's yes."
        ),
        after_ms=0,
    )
    run.add(UserMessage(message="Checkout feels slow since this morning. Can you find out why?"), after_ms=900)
    run.think("'Slow' needs a number first: latency by percentile, today against last week, then what changed.")
    run.add(PlannerNote(note="Plan: 1. confirm with metrics 2. list recent changes 3. diagnose in parallel 4. report"))
    run.add(AssistantMessage(message="I'll check the numbers and the latest deployments first."), after_ms=700)
    run.call(
        "tc-01", "metrics.query", '{"metric":"checkout.latency","percentiles":[50,95,99],"since":"2026-03-05T00:00Z"}'
    )
    run.call("tc-02", "deploys.list", '{"service":"checkout","limit":3}')
    run.result(
        "tc-02",
        "deploys.list",
        '[{"id":"d-981","at":"2026-03-06T06:02:11Z","title":"Gift wrap options"},'
        '{"id":"d-977","at":"2026-03-04T14:40:00Z","title":"VAT rounding"},'
        '{"id":"d-970","at":"2026-03-02T09:11:52Z","title":"Copy changes"}]',
        ms=210,
        preview="3 deploys, newest d-981 at 06:02",
        bounds=Bounds(returned=3, total=41, truncated=True, next_cursor="d-970", refinement_hint="Filter by date"),
    )
    run.result(
        "tc-01",
        "metrics.query",
        error="percentiles must be text like p95",
        ms=95,
        hint=RetryHint(
            reason="invalid_arguments",
            tool="metrics.query",
            restrict_to_tool=True,
            missing_fields=("step",),
            example_input={"metric": "checkout.latency", "percentiles": ["p50", "p95"], "step": "1h"},
            prior_input={"metric": "checkout.latency", "percentiles": [50, 95, 99]},
            message="Give percentiles as text, and a step.",
        ),
    )
    run.think("The schema wants text percentiles and a step; the range was right.", after_ms=650)
    run.call(
        "tc-03",
        "metrics.query",
        '{"metric":"checkout.latency","percentiles":["p50","p95","p99"],"since":"2026-03-05T00:00Z","step":"1h"}',
    )
    run.result(
        "tc-03",
        "metrics.query",
        '{"unit":"ms","yesterday":{"p50":182.4,"p95":410.0,"p99":788.25},"today":{"p50":190.1,"p95":2240.5,"p99":6104.75}}',
        ms=1320,
        preview="p95 410 ms -> 2,240 ms",
        telemetry=ToolTelemetry(duration_ms=1320, extra={"series": 6, "points": 198}),
        server_data='{"query_id":"q-55120","cost_cents":2}',
    )
    run.add(
        AssistantMessage(
            message="Confirmed: the median is unchanged (190 ms), but p95 went from 410 ms to 2,240 ms. Deploy d-981, "
            "'Gift wrap options', went out at 06:02 today. Shall I look into it more deeply?"
        ),
        after_ms=2100,
    )


def _second_turn(run: _Script) -> None:
    run.add(UserMessage(message="Yes please. And check the database while you are at it."), after_ms=31_000)
    run.think("Only the tail is slow: some requests do much more work. Traces, the query log and locks, side by side.")
    run.add(PlannerNote(note="Delegate to diagnosis.run with three children; stop early if one finding explains p95."))
    run.call(
        "tc-04",
        "diagnosis.run",
        '{"service":"checkout","deploy":"d-981","checks":["traces","sql","locks"]}',
        children=3,
    )
    run.call("tc-04.1", "traces.slowest", '{"service":"checkout","limit":5}', parent="tc-04")
    run.call("tc-04.2", "sql.top", '{"database":"orders","by":"total_time"}', parent="tc-04")
    run.call("tc-04.3", "sql.locks", '{"database":"orders"}', parent="tc-04")
    run.result(
        "tc-04.3", "sql.locks", "[]", ms=130, parent="tc-04", preview="no locks", bounds=Bounds(returned=0, total=0)
    )
    run.result(
        "tc-04.1",
        "traces.slowest",
        '{"traces":[{"id":"7f3a","ms":6320,"spans":412},{"id":"91bc","ms":5981,"spans":398}],"hot_span":"giftwrap.options"}',
        ms=880,
        parent="tc-04",
        preview="giftwrap.options, about 400 spans a request",
    )
    run.result(
        "tc-04.2",
        "sql.top",
        error="permission denied for view pg_stat_statements",
        ms=60,
        parent="tc-04",
        hint=RetryHint(
            reason="tool_unavailable",
            tool="sql.top",
            clarifying_question="May I use the read replica's statistics?",
            message="Use sql.top with replica=true.",
        ),
    )
    run.call("tc-04.4", "sql.top", '{"database":"orders","by":"total_time","replica":true}', parent="tc-04")
    run.result(
        "tc-04.4",
        "sql.top",
        '[{"query":"SELECT * FROM wrap_options WHERE sku = $1","calls":1840211,"mean_ms":2.1},'
        '{"query":"SELECT … FROM carts WHERE id = $1","calls":5120,"mean_ms":0.8}]',
        ms=340,
        parent="tc-04",
        preview="1.8 million calls of one query",
        bounds=Bounds(returned=2, total=200, truncated=True, refinement_hint="Raise limit to see more"),
    )
    run.result(
        "tc-04",
        "diagnosis.run",
        '{"finding":"N+1 query: giftwrap.options runs wrap_options once per line and variant","confidence":0.93,'
        '"evidence":["trace 7f3a","sql.top"]}',
        ms=1900,
        preview="N+1 query in giftwrap.options",
        telemetry=ToolTelemetry(duration_ms=1900, tokens_used=2315, model="small-diagnosis-2", extra=None),
    )
    run.add(Thinking(redacted=bytes(range(0, 240, 5)), content_index=0, final=True), after_ms=300)
    run.think(
        "1.8 million calls at 2.1 ms explain the tail: carts with many lines. An index would not help; a join would."
    )
    run.add(
        AssistantMessage(
            message="Found it: since d-981 the gift wrap options are fetched once for each cart line and variant "
            "(about 400 queries for large carts). Locks are not involved. Two ways out: switch the feature off now, or "
            "ship a joined query.",
            structured={
                "options": [{"id": "flag_off", "minutes": 1}, {"id": "fix", "minutes": 45}],
                "cause": "n_plus_1",
            },
        ),
        after_ms=2600,
    )
    run.add(Annotation(message="Ines: matches what I see in the traces."), after_ms=12_000, author="ines")


def _third_turn(run: _Script) -> None:
    run.add(
        UserMessage(
            message="Switch it off now, and open a ticket for the fix. 助かります!",
            structured={"approved": ["flag_off"]},
        ),
        after_ms=15_000,
    )
    run.think("A person said yes to the flag. Flag first, then the ticket; verify with metrics after five minutes.")
    run.call("tc-05", "flags.set", '{"flag":"gift-wrap-options","on":false,"reason":"p95 latency, d-981"}')
    run.call(
        "tc-06", "tickets.create", '{"title":"Gift wrap: join wrap_options","labels":["performance"],"refs":["d-981"]}'
    )
    run.result("tc-06", "tickets.create", '{"id":9007199254740993,"key":"SHOP-2291"}', ms=420, preview="SHOP-2291")
    run.result(
        "tc-05",
        "flags.set",
        error="429: too many changes in this minute",
        ms=35,
        hint=RetryHint(reason="rate_limited", tool="flags.set", message="Try again in 20 seconds."),
    )
    run.add(RetryHint(reason="rate_limited", tool="flags.set", message="Waiting 20 seconds before the next try."))
    run.call("tc-07", "flags.set", '{"flag":"gift-wrap-options","on":false,"reason":"p95 latency, d-981"}')
    run.result("tc-07", "flags.set", '{"flag":"gift-wrap-options","on":false,"version":18}', ms=150, preview="off")
    run.add(PlannerNote(note="Wait five minutes, then compare p95 with 410 ms."))
    run.call(
        "tc-08",
        "metrics.query",
        '{"metric":"checkout.latency","percentiles":["p95"],"since":"2026-03-06T08:16Z","step":"1m"}',
    )
    run.result(
        "tc-08",
        "metrics.query",
        '{"unit":"ms","p95":[2190.0,1320.5,455.25,402.0,398.75]}',
        ms=300_800,
        preview="p95 back to 399 ms",
        telemetry=ToolTelemetry(duration_ms=812, extra={"waited_ms": 300_000}),
    )
    run.add(
        AssistantMessage(
            message="Done. Gift wrap options are off (after one retry: the flag service limits changes), and p95 is "
            "back at 399 ms. The fix is SHOP-2291."
        ),
        after_ms=1500,
    )
    run.add(UserMessage(message="Brilliant, thanks."), after_ms=9000)
    run.add(AssistantMessage(message="You're welcome. I'll remind you of SHOP-2291 tomorrow morning."), after_ms=800)


def demo_lines() -> bytes:
    """Return the content of ``demo.jsonl``."""
    events = demo_events()
    header = {"format": f"{FORMAT}/{FORMAT_NUMBER}", "agent": AGENT, "run": RUN, "version": len(events), "meta": META}
    numbered = ({**event.to_map(), "seq": seq} for seq, event in enumerate(events, 1))
    lines = [encode_json(line) + b"\n" for line in (header, *numbered)]
    digest = LineDigest()
    for line in lines:
        digest.add(line, format_of(line))
    return b"".join((*lines, digest.end_line()))


if __name__ == "__main__":
    SAMPLE.write_bytes(demo_lines())
