"""Shows what one session captures and another applies, in processes that share nothing but a store.

A user states language, style and update channel, and claims a tier, which is not believed. A later session plans what
to look up and applies it, and its answer is audited. A third declares what it was never given, and is stopped. The
model is scripted: no network is needed.
"""

# ruff: noqa: T201  # a program for a terminal

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence

import msgspec

from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.errors import AgentMemoryLogError
from examples.capture_and_apply.results import SessionResult
from examples.capture_and_apply.sessions import PlayedSession, play_all

_TITLES = {
    "capture": "A user says how they want things, and claims a tier",
    "respond": "Later, in another process, they ask for a text",
    "overreach": "And once more, with a model that declares what it was never given",
}
_DENIED = "declared_tier"
_STATED = {"language", "response_style", "update_channel"}
_OUT_OF_CONTEXT = "invalid_answer:memory_keys_out_of_context"


class _Outcome(msgspec.Struct, frozen=True):
    """What the trace says of one memory that was proposed."""

    key: str
    action: str
    reason: str


class Check(msgspec.Struct, frozen=True):
    """One thing that was verified: its name, whether it holds, and what shows it."""

    name: str
    ok: bool
    details: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the sessions and check what came of them; the exit status is 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="capture_and_apply", description=__doc__)
    parser.add_argument(
        "--store", metavar="URL", help="a store that outlives a process; by default a new file in a temporary folder"
    )
    url: str = parser.parse_args(arguments).store or f"sqlite:///{tempfile.mkdtemp(prefix='amlog-example-')}/demo.db"
    sessions: dict[str, PlayedSession] = {}
    try:
        for number, session in enumerate(play_all(url), 1):
            sessions[session.name] = session
            print(f"\n{number}  {_TITLES[session.name]}   process {session.process}")
            _tell(session)
    except (AgentMemoryLogError, RuntimeError) as error:
        print(f"capture_and_apply: {error}", file=sys.stderr)
        return 1
    checks = check(sessions)
    print("\nWhat was verified")
    for one in checks:
        print(f"   {'ok' if one.ok else '!!'}  {one.name}   {one.details}")
    print(f"\nTry next, with AMLOG_STORE={without_credentials(url)}")
    for command in ("list", "explain language", "history language", "stats"):
        print(f"   amlog memory {command} --tenant demo --user 42")
    return 0 if all(one.ok for one in checks) else 1


def check(sessions: dict[str, PlayedSession]) -> list[Check]:
    """Check what the three sessions promise."""
    captured, applied, overreached = (sessions[name] for name in _TITLES)
    remembered = {item.key: item.value for item in applied.result.memory_state}
    blocked = {one.key: one.reason for one in _outcomes(captured.result) if one.action == "blocked"}
    return [
        Check(
            "what the user stated was captured",
            remembered.keys() == _STATED,
            ", ".join(f"{key}: {value}" for key, value in remembered.items()),
        ),
        Check(
            "what they claimed was asked for and not believed",
            blocked == {_DENIED: "key_denied_execution"},
            ", ".join(f"{key}: {reason}" for key, reason in blocked.items()),
        ),
        Check(
            "another process retrieved it and applied it",
            applied.process != captured.process and applied.result.outcome == "memory_applied",
            ", ".join(applied.result.used_memory_keys),
        ),
        Check(
            "an answer that rests on what was not retrieved was stopped",
            overreached.result.stop_reason == _OUT_OF_CONTEXT and not overreached.result.answer,
            overreached.result.stop_reason,
        ),
    ]


def _tell(session: PlayedSession) -> None:
    result = session.result
    print(f"   user   {session.script.message}")
    remembered = {item.key: item for item in result.memory_state}
    for outcome in _outcomes(result):
        if outcome.action == "blocked":
            print(f"   !!     {outcome.key}   {outcome.reason}")
        else:
            item = remembered[outcome.key]
            print(f"   ok     {item.text}   {item.confidence:.0%} sure, {item.ttl_left_days} days")
    if result.raw_intent:
        print(f"   plan   {result.raw_intent}")
        print(f"   found  {', '.join(result.retrieved_keys)}")
    if result.answer:
        print(f"   agent  {result.answer}")
    if result.status == "stopped":
        print(f"   !!     stopped: {result.stop_reason}   {', '.join(result.invalid_used_memory_keys)}")


def _outcomes(result: SessionResult) -> list[_Outcome]:
    """What became of each memory that was proposed."""
    (outcomes,) = [step.detail["outcomes"] for step in result.trace if step.action == "write"] or [[]]
    return msgspec.convert(outcomes, list[_Outcome])


if __name__ == "__main__":
    sys.exit(main())
