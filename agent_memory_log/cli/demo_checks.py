"""What the demo proves about the store it wrote: each check is a name, whether it holds, and the numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from agent_memory_log.cli.demo_sample import PROVIDER, SampleRun
from agent_memory_log.cli.demo_writer import Acknowledged
from agent_memory_log.cli.text import counted, size
from agent_memory_log.events.event import Event, same_body
from agent_memory_log.opening import open_store
from agent_memory_log.reader import Reader
from agent_memory_log.store import Store
from agent_memory_log.transcript import build
from agent_memory_log.transfer.jsonl import export_store, import_jsonl
from agent_memory_log.transfer.verifying import verify


class Proof(msgspec.Struct, frozen=True):
    """One thing that was verified; the names are the keys of its JSON."""

    check: str
    ok: bool
    found: str


class Reopened(msgspec.Struct, frozen=True):
    """What was found after the kill: events ``stored``, of those ``acknowledged`` how many are ``kept``, and how many
    stored events differ from what was sent.
    """

    stored: int
    acknowledged: int
    kept: int
    partial: int

    @property
    def proofs(self) -> list[Proof]:
        """The promises that a crash puts to the test. One event may be stored that nobody heard of."""
        unheard = self.stored - self.kept
        return [
            Proof(
                "acknowledged events survived",
                self.kept == self.acknowledged and unheard in (0, 1),
                f"{self.kept} of {self.acknowledged}" + (", 1 more had not been acknowledged yet" if unheard else ""),
            ),
            Proof("no event is partial", not self.partial, f"{self.stored} compared with what was sent"),
        ]


async def look_after_kill(store: Store, runs: Sequence[SampleRun], acknowledged: Sequence[Acknowledged]) -> Reopened:
    """Compare what the store holds with what was acknowledged, and with what was sent."""
    sent = {(one.agent, one.run, event.event_id): event for one in runs for event in one.events}
    stored = await _stored(store, runs)
    kept = sum(
        (one.agent, one.run, one.event_id) in stored and stored[one.agent, one.run, one.event_id].seq == one.seq
        for one in acknowledged
    )
    partial = sum(name not in sent or not same_body(event, sent[name]) for name, event in stored.items())
    return Reopened(len(stored), len(acknowledged), kept, partial)


async def _stored(store: Store, runs: Sequence[SampleRun]) -> dict[tuple[str, str, str], Event]:
    return {
        (one.agent, one.run, event.event_id): event
        for one in runs
        for event in (await store.load_run(one.agent, one.run)).log
    }


async def prove_whole(store: Store, runs: Sequence[SampleRun]) -> list[Proof]:
    """Check the finished store: complete, in order, readable, matched, and the same after each way out and back."""
    in_order = total = results = matched = 0
    for one in runs:
        snapshot = await store.load_run(one.agent, one.run)
        reader = Reader(snapshot)
        total += len(snapshot.log)
        in_order += [event.event_id for event in snapshot.log] == [event.event_id for event in one.events]
        calls = reader.tool_calls()
        results += len(calls)
        matched += sum(reader.result_for(call) is not None for call in calls)
    sent = sum(len(one.events) for one in runs)
    verdict = await verify(store)
    gaps = [one for one in verdict.findings if one.check in ("gap", "order", "event_id")]
    unreadable = [one for one in verdict.findings if one.check in ("undecodable", "type")]
    return [
        Proof(
            "every event is stored once, in order",
            in_order == len(runs) and total == sent,
            f"{total} of {sent} in {counted(in_order, 'run')}",
        ),
        Proof("seqs have no gaps", not gaps, f"{counted(verdict.runs, 'run')}, 1 to n each"),
        Proof("payloads decode", not unreadable and verdict.ok, f"{verdict.events - len(unreadable)} of {total}"),
        Proof("tool calls have their results", results == matched, f"{matched} of {results}"),
        await _prove_export(store),
        await _prove_chat(store, runs),
    ]


async def _prove_export(store: Store) -> Proof:
    exported = [line async for line in export_store(store)]
    async with open_store("memory:") as other:
        await import_jsonl(other, exported)
        again = [line async for line in export_store(other)]
    digest = hashlib.sha256(b"".join(again)).hexdigest()[:12]
    written = size(sum(map(len, exported)))
    return Proof("export, import, export: same bytes", exported == again, f"{written}, sha256 {digest}…")


async def _prove_chat(store: Store, runs: Sequence[SampleRun]) -> Proof:
    same = total = 0
    for one in runs:
        if one.messages is None:
            continue
        rebuilt = build(await store.load_run(one.agent, one.run), PROVIDER)
        total += len(one.messages)
        same += sum(mine == theirs for mine, theirs in zip(one.messages, rebuilt, strict=False))
        total += abs(len(rebuilt) - len(one.messages))
    return Proof("chat messages come back the same", same == total, f"{same} of {total}")
