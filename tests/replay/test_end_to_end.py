"""Kills an agent's process repeatedly while it records a run, starts it again until it finishes, and replays the run.

The replay uses the code of the same agent. The run is also built for every provider, checked with the provider's own
package, and exported to ATIF and back. As a program (``python -m tests.replay.test_end_to_end URL``), this module is
that process: a scripted agent with parallel and nested tools, an error and a retry.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import pytest

from agent_memory_log import (
    Event,
    JsonValue,
    Reader,
    RetryHint,
    Snapshot,
    ToolCall,
    ToolResult,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import ReplayDivergence
from agent_memory_log.interchange.atif import from_atif, import_atif, to_atif
from agent_memory_log.recording import RecordedCall, RunRecorder
from agent_memory_log.replay import Replayer, diff, value_of
from agent_memory_log.transcript import build, decode_name, provider_names, repair, request, validate
from agent_memory_log.transcript.providers import find_provider
from tests import processes

AGENT = "support-agent"
RUN = "run-42"
SYSTEM = "Be kind."
TOOLS = [
    {"name": name, "description": "A tool.", "input_schema": {"type": "object"}}
    for name in ("orders--find", "orders--report", "orders--refund")
]
KILLED_AT = (
    "answered 1",
    "ran orders.find 1",
    "ran db.query 8",
    "answered 3",
    "done orders--refund 3",
    "ran orders.refund 4",
)
"""For each process in turn, the last line that it prints before it is killed."""

QUESTIONS = ("Where are my orders?", "Refund the second.", "Thank you.")
SCRIPT: Mapping[int, Sequence[tuple[str, dict[str, JsonValue]]]] = {
    1: [("orders--find", {"id": 7}), ("orders--find", {"id": 8}), ("orders--report", {"year": 2026})],
    3: [("orders--refund", {"id": 8})],
    4: [("orders--refund", {"id": 8, "reason": "lost"})],
}
"""The tool calls in the model's answers, by the number of the answer. All other answers are texts."""

ANSWERS_TO = {0: (1, 2), 1: (3, 4, 5), 2: (6,)}
"""The numbers of the model's answers to each question."""


def say(text: str) -> None:
    """Print a line, and wait until the test confirms it."""
    os.write(1, f"{text}\n".encode())
    sys.stdin.readline()


def model_answer(number: int) -> dict[str, Any]:
    """Return a model's answer. Its ids differ in each process, as with a real model."""
    process = os.getpid()
    content: list[dict[str, Any]] = [{"type": "thinking", "thinking": f"hm {number}", "signature": f"c2ln{number}"}]
    content += [
        {"type": "tool_use", "id": f"toolu_{number}_{index}_{process}", "name": name, "input": arguments}
        for index, (name, arguments) in enumerate(SCRIPT.get(number, ()))
    ]
    if number not in SCRIPT:
        content.append({"type": "text", "text": f"answer {number}"})
    return {
        "id": f"msg_{number}_{process}",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-8",
        "stop_reason": "tool_use" if number in SCRIPT else "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 12},
        "content": content,
    }


class World(Protocol):
    """The model and the tools that the agent uses, live or replayed."""

    async def user(self, message: str, number: int) -> None:
        """Receive a message of the user."""
        ...

    async def ask(self, number: int, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the content of the model's answer."""
        ...

    async def tool(self, block: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return the result block for a ``tool_use`` block."""
        ...


async def agent(world: World) -> list[dict[str, Any]]:
    """Run the agent, live or replayed, and return its messages."""
    messages: list[dict[str, Any]] = []
    for index, question in enumerate(QUESTIONS):
        await world.user(question, index)
        messages.append({"role": "user", "content": question})
        for number in ANSWERS_TO[index]:
            content = await world.ask(number, messages)
            messages.append({"role": "assistant", "content": content})
            uses = [block for block in content if block["type"] == "tool_use"]
            if uses:
                results = await asyncio.gather(*(world.tool(block, number) for block in uses))
                messages.append({"role": "user", "content": list(results)})
    return messages


def tool_result(call_id: str, text: str, *, failed: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {**block, "is_error": True} if failed else block


class Live(World):
    """A live model and live tools, with a recorder."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._call_events: dict[str, Event] = {}

    async def user(self, message: str, number: int) -> None:
        await self._recorder.user(message, key=f"question-{number}")

    async def ask(self, number: int, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        del messages
        recorder, key = self._recorder, f"answer-{number}"
        await recorder.request("anthropic", "claude-opus-4-8", system=SYSTEM, tools=TOOLS)
        answer = await recorder.recorded_response(key)
        if answer is None:
            answer = await recorder.record_response(model_answer(number), key=key)
        say(f"answered {number}")
        self._call_events = {
            call.data.tool_call_id: call for call in answer.tool_calls if isinstance(call.data, ToolCall)
        }
        calls = [call.data for call in answer.tool_calls if isinstance(call.data, ToolCall)]
        content: list[dict[str, Any]] = model_answer(number)["content"]
        for block, call in zip([block for block in content if block["type"] == "tool_use"], calls, strict=True):
            block["id"] = call.tool_call_id
        return content

    async def tool(self, block: Mapping[str, Any], number: int) -> dict[str, Any]:
        async with self._recorder.tool_call(self._call_events[block["id"]]) as call:
            await self._run(decode_name(block["name"]), block["input"], call, number)
        say(f"done {block['name']} {number}")
        events = (await self._load()).log
        result = Reader(Snapshot(AGENT, RUN, events, version=len(events))).result_for(block["id"])
        assert result is not None
        return _block_of(block["id"], result.data)

    async def _run(self, name: str, arguments: Mapping[str, Any], call: RecordedCall, number: int) -> None:
        if call.recorded is not None:
            return
        say(f"ran {name} {number}")
        if name == "orders.report":
            await asyncio.gather(*(self._inner(order, number) for order in (7, 8)))
            call.result({"lost": 1})
        elif name == "orders.find":
            await asyncio.sleep(0)
            call.result({"id": arguments["id"], "state": "lost" if arguments["id"] == 8 else "sent"})
        elif "reason" not in arguments:
            call.retry(RetryHint(reason="missing_fields", missing_fields=("reason",), message="say why"))
        else:
            call.result("refunded")

    async def _inner(self, order: int, number: int) -> None:
        async with self._recorder.tool_call("db.query", {"order": order}, key=f"inner-{order}-{number}") as call:
            if call.recorded is None:
                say(f"ran db.query {order}")
                if order == 7:
                    call.fail("the archive is closed")
                else:
                    call.result([order])

    async def _load(self) -> Snapshot:
        return await self._recorder._store.load_run(AGENT, RUN)


class Replayed(World):
    """A recording in place of the model and the tools. With ``runs_report``, the tool ``orders.report`` is run."""

    def __init__(self, replayer: Replayer, *, runs_report: bool) -> None:
        self._replayer = replayer
        self._runs_report = runs_report

    async def user(self, message: str, number: int) -> None:
        """Do nothing: a replay records no events."""

    async def ask(self, number: int, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._replayer.expect_messages(messages)
        turn = self._replayer.model_turn()
        assert turn.number == number
        content: list[dict[str, Any]] = turn.message["content"]
        return content

    async def tool(self, block: Mapping[str, Any], number: int) -> dict[str, Any]:
        del number
        replayer = self._replayer
        await asyncio.sleep(0)
        if block["name"] == "orders--report" and self._runs_report:
            async with replayer.tool_call(block["name"], block["input"], tool_call_id=block["id"]) as call:
                failed, successful = await asyncio.gather(*map(self._query, (7, 8)))
                assert (failed.error_message, value_of(successful)) == ("the archive is closed", [8])
            assert call.recorded is not None
            return _block_of(block["id"], call.recorded)
        result = replayer.tool_result(block["name"], block["input"], tool_call_id=block["id"])
        return _block_of(block["id"], result)

    async def _query(self, order: int) -> Any:
        await asyncio.sleep(0)
        return self._replayer.tool_result("db.query", {"order": order})


def _block_of(call_id: str, result: Any) -> dict[str, Any]:
    return tool_result(call_id, result.error_message or result.result_json, failed=bool(result.error_message))


async def record(url: str) -> None:
    async with open_store(url) as store, RunRecorder(store, AGENT, RUN) as recorder:
        say("ready")
        await agent(Live(recorder))
    say("finished")


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.replay.test_end_to_end", url],
        cwd=processes.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def judge(provider: str, messages: Sequence[dict[str, Any]]) -> None:
    """Fail if the provider's own package does not accept the messages."""
    # The packages are imported here because the agent's process does not need them.
    module, name = {
        "anthropic": ("tests.transcript.transcripts_anthropic", "judge"),
        "bedrock": ("tests.transcript.converse_judge", "judge_messages"),
        "gemini": ("tests.transcript.gemini_judge", "judge_messages"),
        "openai-chat": ("tests.transcript.transcripts_openai_chat", "judge"),
        "openai-responses": ("tests.transcript.responses_judge", "judge_input"),
    }[provider]
    getattr(import_module(module), name)(messages)


def load(url: str) -> Snapshot:
    with open_sync_store(url) as store:
        return store.load_run(AGENT, RUN)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    """Return the run after each kill, and the resumed run at the end."""
    url = f"sqlite:///{tmp_path_factory.mktemp('run') / 'runs.db'}"
    snapshots: list[Snapshot] = []
    for last_line in KILLED_AT:
        process = start(url)
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            if line.rstrip("\n") == last_line:
                break
            process.stdin.write("\n")
            process.stdin.flush()
        else:
            raise AssertionError(f"{last_line} was not reached")
        process.kill()
        process.communicate(timeout=processes.PATIENCE)
        snapshots.append(load(url))
    assert processes.finish(start(url)).endswith("finished\n")
    return [*snapshots, load(url)]


@pytest.fixture
def recorded(runs: list[Snapshot]) -> Snapshot:
    return runs[-1]


async def replay_agent(snapshot: Snapshot, *, runs_report: bool) -> list[dict[str, Any]]:
    async with Replayer(snapshot) as replayer:
        return await agent(Replayed(replayer, runs_report=runs_report))


def test_each_kill_leaves_the_expected_open_calls(runs: list[Snapshot]) -> None:
    *killed, resumed = runs
    for last_line, snapshot in zip(KILLED_AT, killed, strict=True):
        assert bool(Reader(snapshot).open_tool_calls()) == (not last_line.startswith("done")), last_line
    assert not Reader(resumed).open_tool_calls()
    results = {event.data.error_message for event in resumed.log if isinstance(event.data, ToolResult)}
    assert {"say why", "the archive is closed"} <= results


@pytest.mark.parametrize("runs_report", [False, True])
async def test_resumed_run_is_replayed_without_divergence(recorded: Snapshot, runs_report: bool) -> None:
    messages = await replay_agent(recorded, runs_report=runs_report)
    built = build(recorded, "anthropic")
    assert messages[-1]["content"] == built[-1]["content"]
    assert len(messages) == len(built)


async def test_changed_agent_diverges(recorded: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "QUESTIONS", ("Where are my orders?", "Refund it.", "Thank you."))
    with pytest.raises(ReplayDivergence, match=r'"Refund the second."') as raised:
        await replay_agent(recorded, runs_report=False)
    assert raised.value.reason == "other_messages"


async def test_killed_run_diverges_only_at_its_end(runs: list[Snapshot]) -> None:
    for snapshot in runs[:-1]:
        with pytest.raises(ReplayDivergence) as raised:
            await replay_agent(snapshot, runs_report=False)
        # The missing step is a tool's result, an answer of the model, or a message of the user.
        assert raised.value.reason in {"no_result", "unexpected_turn", "other_messages"}


@pytest.mark.parametrize("provider", provider_names())
def test_resumed_run_is_valid_for_every_provider(recorded: Snapshot, provider: str) -> None:
    built = build(recorded, provider)
    findings = validate(built, provider)
    assert not findings, findings
    judge(provider, built)
    arguments = request(recorded, provider)
    sent = arguments.pop(find_provider(provider).messages_key)
    assert not validate(sent, provider, request=arguments)
    judge(provider, sent)


@pytest.mark.parametrize("provider", provider_names())
def test_killed_run_is_valid_after_repair(runs: list[Snapshot], provider: str) -> None:
    for snapshot in runs:
        repaired = repair(build(snapshot, provider), provider).transcript
        assert not validate(repaired, provider)
        judge(provider, repaired)


def test_resumed_run_continues_each_killed_run(runs: list[Snapshot]) -> None:
    *killed, resumed = runs
    for snapshot in killed:
        run_diff = diff(snapshot, resumed)
        assert run_diff.common == len(snapshot.log)
        assert run_diff.left_event is None


async def test_run_survives_a_round_trip_through_atif(runs: list[Snapshot]) -> None:
    for snapshot in runs:
        text = json.dumps(to_atif(snapshot))
        import_module("atif").Trajectory.model_validate_json(text)  # the agent does not need this package
        imported = from_atif(json.loads(text))
        assert imported.snapshot() == snapshot
        async with open_store("memory:") as store:
            await import_atif(store, imported)
            assert await store.load_run(AGENT, RUN) == snapshot


async def test_resumed_run_is_replayed_from_atif(recorded: Snapshot) -> None:
    snapshot = from_atif(json.loads(json.dumps(to_atif(recorded)))).snapshot()
    messages = await replay_agent(snapshot, runs_report=True)
    assert messages[-1]["content"] == build(recorded, "anthropic")[-1]["content"]


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
