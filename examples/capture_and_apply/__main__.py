"""Shows that one session captures memories and another one applies them, in processes that share only a store.

In the first session, a user states a language, a style and an update channel, and claims a tier that policy rejects.
The second session plans a search, retrieves the memories and answers, and the answer passes an audit. In the third
session, the model cites a memory that was not retrieved, and the session is stopped. The model is scripted, so no
network is needed.
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
    "capture": "A user states preferences and claims a tier",
    "respond": "Later, in another process, the user asks for a text",
    "overreach": "The model cites a memory that was not retrieved",
}
_DENIED = "declared_tier"
_STATED = {"language", "response_style", "update_channel"}
_OUT_OF_CONTEXT = "invalid_answer:memory_keys_out_of_context"


class _Outcome(msgspec.Struct, frozen=True):
    """The outcome of one proposed memory, as in the trace."""

    key: str
    action: str
    reason: str


class Check(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    details: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the sessions and check their results. Returns 1 as the exit status if a check fails."""
    parser = argparse.ArgumentParser(prog="capture_and_apply", description=__doc__)
    parser.add_argument(
        "--store", metavar="URL", help="a store that outlives a process (default: a new file in a temporary folder)"
    )
    url: str = parser.parse_args(arguments).store or f"sqlite:///{tempfile.mkdtemp(prefix='amlog-example-')}/demo.db"
    sessions: dict[str, PlayedSession] = {}
    try:
        for number, session in enumerate(play_all(url), 1):
            sessions[session.name] = session
            print(f"\n{number}  {_TITLES[session.name]}   process {session.process}")
            _write_session(session)
    except (AgentMemoryLogError, RuntimeError) as error:
        print(f"capture_and_apply: {error}", file=sys.stderr)
        return 1
    checks = check(sessions)
    print("\nThe results")
    for result in checks:
        print(f"   {'ok' if result.ok else '!!'}  {result.name}   {result.details}")
    print(f"\nTry next, with AMLOG_STORE={without_credentials(url)}")
    for command in ("list", "explain language", "history language", "stats"):
        print(f"   amlog memory {command} --tenant demo --user 42")
    return 0 if all(result.ok for result in checks) else 1


def check(sessions: dict[str, PlayedSession]) -> list[Check]:
    """Check the results of the three sessions."""
    captured, applied, overreached = (sessions[name] for name in _TITLES)
    remembered = {item.key: item.value for item in applied.result.memory_state}
    blocked = {entry.key: entry.reason for entry in _outcomes(captured.result) if entry.action == "blocked"}
    return [
        Check(
            "the user's statements were captured",
            remembered.keys() == _STATED,
            ", ".join(f"{key}: {value}" for key, value in remembered.items()),
        ),
        Check(
            "the user's claim was proposed and blocked",
            blocked == {_DENIED: "key_denied_execution"},
            ", ".join(f"{key}: {reason}" for key, reason in blocked.items()),
        ),
        Check(
            "another process retrieved and applied the memories",
            applied.process != captured.process and applied.result.outcome == "memory_applied",
            ", ".join(applied.result.used_memory_keys),
        ),
        Check(
            "an answer that cites a memory without retrieving it was stopped",
            overreached.result.stop_reason == _OUT_OF_CONTEXT and not overreached.result.answer,
            overreached.result.stop_reason,
        ),
    ]


def _write_session(session: PlayedSession) -> None:
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
    """Return the outcome of each proposed memory."""
    (outcomes,) = [step.detail["outcomes"] for step in result.trace if step.action == "write"] or [[]]
    return msgspec.convert(outcomes, list[_Outcome])


if __name__ == "__main__":
    sys.exit(main())
