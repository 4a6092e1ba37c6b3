"""``amlog memory demo``: what one session captures, another in another process applies; what is refused, and why."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.cli.demo_checks import Proof
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.options import AsJson
from agent_memory_log.cli.outfile import check_streams
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, NAME, WARN, Column, Output
from agent_memory_log.cli.stopping import Graceful
from agent_memory_log.events.jsonvalue import JsonValue

if TYPE_CHECKING:
    from agent_memory_log.memory.pattern.demo import Scene
    from agent_memory_log.memory.pattern.results import PatternResult

_TITLES = {
    "capture": "A user says how they want things, and claims a tier",
    "respond": "Later, in another process, they ask for a text",
    "overreach": "And once more, with a model that claims to know what it was never given",
}
_DENIED = "declared_tier"
_WANTED = {"language", "response_style", "update_channel"}
_OUT_OF_CONTEXT = "invalid_answer:memory_keys_out_of_context"


class _Outcome(msgspec.Struct, frozen=True):
    """What the trace says of one memory that was proposed."""

    key: str
    action: str
    reason: str


def demo(
    *,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="A store to use, such as sqlite:///demo.db; by default a new file in a temporary folder.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a preference find its way from one session to another.

    A user states language, style and update channel, and claims a tier, which is not believed; a later session, another
    process, plans what to look up, applies it and proves it. The model is scripted: needs no network.

    With --json: ok, store, checks (each with check, ok and found) and sessions, each with name, said, process and
    result.
    """
    url = store or f"sqlite:///{tempfile.mkdtemp(prefix='amlog-demo-')}/demo.db"
    if url.startswith("memory:"):
        raise UsageProblem("the demo needs a store that outlives a process, such as sqlite:///demo.db")
    check_streams(url)
    output = Output()
    scenes: dict[str, Scene] = {}
    if output.terminal and not as_json:
        output.line(("amlog memory demo", BOLD), (f"   {without_credentials(url)}", DIM))
    with Graceful():  # a session is a process of its own, and ends with this one
        for scene in _play(url):
            scenes[scene.name] = scene
            if output.terminal and not as_json:
                _tell(output, scene, len(scenes))
    proofs = _proofs(scenes)
    ok = all(proof.ok for proof in proofs)
    if as_json:
        sessions = [_scene_map(scene) for scene in scenes.values()]
        output.json({"ok": ok, "store": without_credentials(url), "checks": proofs, "sessions": sessions})
    else:
        _write_proofs(output, proofs)
        if output.terminal:
            _next_commands(output, url)
    output.flush()
    if not ok:
        raise typer.Exit(1)


def _play(url: str) -> Iterator[Scene]:
    try:
        from agent_memory_log.memory.pattern.demo import demo as play  # noqa: PLC0415  # needs the extra memory
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        raise CommandFailed("the demo needs pydantic: pip install 'agent-memory-log[memory]'") from error
    try:
        yield from play(url)
    except RuntimeError as error:
        raise CommandFailed(str(error)) from error


def _outcomes(result: PatternResult) -> list[_Outcome]:
    """What became of each memory that was proposed."""
    found = (step.detail.get("outcomes") for step in result.trace)
    return msgspec.convert([one for some in found if isinstance(some, list) for one in some], list[_Outcome])


def _proofs(scenes: dict[str, Scene]) -> list[Proof]:
    captured, applied, refused = (scenes[name] for name in _TITLES)
    held = {item.key: item.value for item in applied.result.memory_state}
    blocked = {one.key: one.reason for one in _outcomes(captured.result) if one.action == "blocked"}
    return [
        Proof(
            "what the user stated was captured",
            held.keys() == _WANTED,
            ", ".join(f"{key}: {value}" for key, value in held.items()),
        ),
        Proof(
            "what they claimed was asked for and not believed",
            blocked == {_DENIED: "key_denied_execution"},
            ", ".join(f"{key}: {reason}" for key, reason in blocked.items()),
        ),
        Proof(
            "another process retrieved it and applied it",
            applied.process != captured.process and applied.result.outcome == "memory_applied",
            ", ".join(applied.result.used_memory_keys),
        ),
        Proof(
            "an answer that rests on what was not retrieved was stopped",
            refused.result.stop_reason == _OUT_OF_CONTEXT and not refused.result.answer,
            refused.result.stop_reason,
        ),
    ]


def _scene_map(scene: Scene) -> dict[str, JsonValue]:
    result: JsonValue = msgspec.to_builtins(scene.result)
    return {"name": scene.name, "said": scene.script.said, "process": scene.process, "result": result}


def _tell(output: Output, scene: Scene, act: int) -> None:
    result = scene.result
    output.line("")
    output.line((f"{act}  ", NAME), (_TITLES[scene.name], BOLD), (f"   process {scene.process}", DIM))
    _say(output, "user", scene.script.said)
    values = {item.key: item for item in result.memory_state}
    for one in _outcomes(result):
        if one.action == "blocked":
            output.line("   ", (f"{output.cross} ", BAD), one.key, (f"   {one.reason}", WARN))
        else:
            item = values[one.key]
            left = "" if item.ttl_left_days is None else f", {item.ttl_left_days:,} days"
            details = f"   {item.confidence:.0%} sure{left}"
            output.line("   ", (f"{output.tick} ", GOOD), f"{one.key}: {item.value}", (details, DIM))
    if result.raw_intent:
        _say(output, "plan", result.raw_intent)
        _say(output, "found", ", ".join(result.retrieved_keys))
    if result.answer:
        _say(output, "agent", result.answer)
    if result.status == "stopped":
        named = ", ".join(result.invalid_used_memory_keys)
        output.line("   ", (f"{output.cross} ", BAD), f"stopped: {result.stop_reason}", (f"   {named}", WARN))
    output.flush()


def _say(output: Output, who: str, text: str) -> None:
    output.hanging(["   ", (f"{who:<6}", NAME), " "], text)


def _write_proofs(output: Output, proofs: list[Proof]) -> None:
    signs = [(output.tick, GOOD) if proof.ok else (output.cross, BAD) for proof in proofs]
    if not output.terminal:
        for sign, proof in zip(signs, proofs, strict=True):
            output.line(sign, f" {proof.check}   {proof.found}")
        return
    output.line("")
    output.line(("What was verified", BOLD))
    columns = (Column(""), Column("check"), Column("found", DIM))
    output.table(columns, [(sign, proof.check, proof.found) for sign, proof in zip(signs, proofs, strict=True)])


def _next_commands(output: Output, url: str) -> None:
    output.line(("Try next", BOLD), (f", after  export AMLOG_STORE={without_credentials(url)}", DIM))
    for command in ("list", "explain language", "history language", "stats"):
        output.line("   ", (f"amlog memory {command} --tenant demo --user 42", NAME))
