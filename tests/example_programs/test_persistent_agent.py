"""Runs the example agent as a process on a pseudo-terminal, with a local server as its model."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pty
import select
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from agent_memory_log import InjectedContext, JsonValue, ToolCall, ToolResult, UserMessage, open_sync_store
from agent_memory_log.memory import Principal, Record, SyncMemoryClient
from agent_memory_log.transcript import validate
from examples.persistent_agent import COMMAND_SECONDS, ToolFailed, run_command, run_tool
from tests.amlog import without_codes
from tests.example_programs.on_terminal import run_on_terminal
from tests.models.model_server import ModelServer, Reply, Request, says_json
from tests.processes import PATIENCE, ROOT
from tests.waiting import until_blocking

AGENT = "persistent-agent"
PROGRAM = ROOT / "examples" / "persistent_agent.py"

_STARTER = multiprocessing.get_context("forkserver")
_STARTER.set_forkserver_preload(["examples.persistent_agent", run_on_terminal.__module__])
"""Starts processes that have the imports of the program already, because these take most of the time of a start."""

CONTROL_C = "\x03"
CONTROL_D = "\x04"


class Agent:
    """The agent's process on a terminal, for a ``with`` block. ``output`` is its output so far."""

    def __init__(self, folder: Path, url: str, **environment: str) -> None:
        self.output = ""
        self._position = 0
        self._controller, terminal = pty.openpty()
        variables = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": url, "TERM": "xterm"}
        variables |= {"AMLOG_MEMORY_MODEL_BACKOFF_SECONDS": "0.01", **environment}
        self._process = _STARTER.Process(
            target=run_on_terminal,
            args=(str(PROGRAM), "--user", "kim", "--store", "sqlite:///agent.db"),
            kwargs={"terminal": os.ttyname(terminal), "folder": str(folder), "variables": variables},
        )
        self._process.start()
        select.select([self._controller], [], [], PATIENCE)  # a process that writes has opened the terminal
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.kill()
        os.close(self._controller)

    def expect(self, text: str) -> str:
        """Wait for ``text`` and return the output between the previous expected text and this one."""
        deadline = time.monotonic() + PATIENCE
        while (position := self.output.find(text, self._position)) < 0:
            assert select.select([self._controller], [], [], max(0, deadline - time.monotonic()))[0], self.output
            assert self._read_output(), f"{text!r} never came: {self.output}"
        before, self._position = self.output[self._position : position], position + len(text)
        return before

    def type(self, text: str) -> None:
        """Type a line when the agent asks for one."""
        self.expect("you> ")
        self.press(text + "\r")

    def press(self, keys: str) -> None:
        """Wait until the agent sleeps, and press keys. An earlier Ctrl-C has no effect until the next key."""
        state = Path(f"/proc/{self._process.pid}/stat")
        until_blocking(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "S")
        os.write(self._controller, keys.encode())

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join(PATIENCE)

    def end(self) -> int | None:
        """Wait until the process has ended and return its exit status."""
        while self._read_output():
            pass
        self._process.join(PATIENCE)
        return self._process.exitcode

    def _read_output(self) -> bool:
        with contextlib.suppress(OSError):  # Linux raises this error when no process has the terminal open
            block = os.read(self._controller, 65536)
            self.output += without_codes(block.decode(errors="replace"))
            return bool(block)
        return False


Messages = list[dict[str, Any]]
Chat = Callable[[Messages], dict[str, JsonValue]]


class Model:
    """A scripted model that answers chat requests and extraction requests.

    Attributes:
        chat: Returns the assistant's message for the messages of a chat request.
        preferences: The key and value of a preference, by a word of the user. If the user says the word, extraction
            returns the preference and an episode.
        conversations: The messages of each chat request.
        transcripts: The text of each extraction request.
    """

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.preferences = {"metric": ("units", "metric"), "Kyoto": ("city", "Kyoto")}
        self.conversations: list[Messages] = []
        self.transcripts: list[str] = []

    def __call__(self, request: Request) -> Reply:
        messages = request.body["messages"]
        if "tools" in request.body:
            self.conversations.append(messages)
            return _completion(self.chat(messages))
        conversation = messages[-1]["content"]
        self.transcripts.append(conversation)
        lines = [json.loads(line) for line in conversation.splitlines()]
        cited = [
            (line["n"], learned)
            for line in lines
            for word, learned in self.preferences.items()
            if line["role"] == "user" and word in line["text"]
        ]
        if any('"episodes"' in message["content"] for message in messages[:-1]):
            episode = {"category": "task_result", "text": "The files were counted.", "stars": 4}
            return says_json({"episodes": [{**episode, "messages": [cited[0][0]]}] if cited else []})
        preferences = [{"key": key, "value": value, "messages": [seq]} for seq, (key, value) in cited]
        return says_json({"facts": [], "preferences": preferences})


def _completion(message: dict[str, JsonValue]) -> Reply:
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                "message": {"role": "assistant", "content": None, **message},
            }
        ],
    }
    return Reply(body=json.dumps(answer).encode())


def calls(name: str, number: int = 1, **arguments: str) -> dict[str, JsonValue]:
    """Return an assistant's message that calls a tool."""
    function: dict[str, JsonValue] = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}]}


def answer_about_files(messages: Messages) -> dict[str, JsonValue]:
    """Return a tool call if the user asks for a count. Return the output of the tool as the answer."""
    last = messages[-1]
    if last["role"] == "user" and "count" in last["content"]:
        return calls("run_command", len(messages), command="echo seventeen")
    return {"content": f"The command said: {last['content']}" if last["role"] == "tool" else "Very well."}


@pytest.fixture
def model() -> Model:
    return Model(answer_about_files)


@pytest.fixture
def server(model: Model) -> Iterator[ModelServer]:
    with ModelServer(model) as server:
        yield server


@pytest.fixture
def start(server: ModelServer, tmp_path: Path) -> Callable[[], Agent]:
    return lambda: Agent(tmp_path, server.url)


def _records(folder: Path) -> Sequence[Record]:
    with open_sync_store(f"sqlite:///{folder / 'agent.db'}") as store:
        return SyncMemoryClient(store).of(Principal("local", {"user": "kim"})).list()


def _runs(folder: Path) -> list[str]:
    with open_sync_store(f"sqlite:///{folder / 'agent.db'}") as store:
        return [info.run for info in store.list_runs(AGENT).runs]


def _talk(agent: Agent) -> None:
    """Hold a conversation of more than four messages, in which the user states a preference."""
    agent.type("I always want metric units. Please count the files.")
    assert "* run_command" in agent.expect("agent> The command said: ")
    agent.type("Thank you.")
    agent.expect("agent> Very well.")


LEARNED = [("units", "metric"), ("", "")]


def _has_ended(process: int) -> bool:
    """Return whether a process has ended, even if its new parent has not collected it yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _values(folder: Path) -> list[tuple[str, str]]:
    return [(record.key, record.value) for record in _records(folder)]


class TestRemembering:
    def test_next_session_recalls_the_user(self, start: Callable[[], Agent], model: Model, tmp_path: Path) -> None:
        with start() as agent:
            agent.expect("Hello. I know nothing about you yet.")
            _talk(agent)
            agent.type("/exit")
            agent.expect("(I will remember 1 preference and 1 episode.)")
            assert agent.end() == 0
        assert [message["role"] for message in model.conversations[0]] == ["system", "user"]
        with start() as agent:
            agent.expect("Hello again. I remember 1 preference and 1 episode.")
            agent.type("/memory")
            listing = agent.expect("The files were counted.")
            assert "units: metric" in listing
            assert "****" in listing
            agent.type("How far is it? And what of the files?")
            agent.expect("agent> Very well.")
            agent.type("/exit")
            assert agent.end() == 0
        instructions, memory, user_message = model.conversations[-1]
        assert (instructions["role"], memory["role"], user_message["role"]) == ("system", "user", "user")
        assert "metric" not in instructions["content"]
        assert '- preference "units": "metric"' in memory["content"]
        assert "The files were counted." in memory["content"]
        assert "silently" in instructions["content"]
        assert "follow the message" in instructions["content"]
        # Recalled memory is logged as injected context, and the agent does not learn from it again.
        with open_sync_store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
            newest = store.load_run(AGENT, _runs(tmp_path)[0])
            assert [event.type for event in newest.log][:2] == ["injected_context", "user_message"]
            assert newest.meta == {"user": "kim"}
        assert all("metric" not in text or "always want metric" in text for text in model.transcripts)
        assert _values(tmp_path) == LEARNED

    def test_agent_recalls_messages_of_old_sessions(
        self, start: Callable[[], Agent], model: Model, tmp_path: Path
    ) -> None:
        refund = "The refund went to my sister's account in Oslo."

        def chat(_: Messages) -> dict[str, JsonValue]:
            return {"content": "Very well."}

        model.chat = chat
        sessions = (
            [refund],  # a session of too few messages, from which the agent does not learn
            ["The train to Bergen was late again.", "And the bicycle shop was closed.", "Which files are the largest?"],
            ["My brother's dog is called Pixel.", "He found a new flat.", "I painted the kitchen green."],
        )
        for turns in sessions:
            with start() as agent:
                for turn in turns:
                    agent.type(turn)
                    agent.expect("agent> Very well.")
                agent.type("/exit")
                agent.expect("(Nothing new to remember.)")
                assert agent.end() == 0
        assert _records(tmp_path) == ()
        first = _runs(tmp_path)[-1]
        with start() as agent:
            agent.type("Who got the money that was refunded?")
            agent.expect("agent> Very well.")
            agent.type("Into which town was it refunded?")
            agent.expect("agent> Very well.")
            agent.type("/exit")
            assert agent.end() == 0
        for messages_sent in model.conversations[-2:]:
            memory = next(message for message in messages_sent if "<memory>" in message["content"])
            assert memory["role"] == "user"
            assert f'"user" said "{refund}"' in memory["content"]
            assert memory["content"].count("</memory>") == 1
            # The latest messages only fill the tokens that are left.
            assert memory["content"].index(refund) < memory["content"].index("Pixel")
        with open_sync_store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
            # Recalled messages are logged with their source, and a search does not find the log of the recall.
            injected = store.load_run(AGENT, _runs(tmp_path)[0], types=["injected_context"]).log[0].data
            assert isinstance(injected, InjectedContext)
            assert injected.records == ()
            assert (AGENT, first, 1) in [(place.agent, place.run, place.seq) for place in injected.messages]
            me = SyncMemoryClient(store).of(Principal("local", {"user": "kim"}))
            hits = me.search("the refund to my sister's account in Oslo, as background in quotes", top_k=100)
            assert [hit.text for hit in hits if "sister" in hit.text] == [refund]
            assert not any("<memory>" in hit.text for hit in hits)

    def test_derived_memory_works_without_message_search(
        self, server: ModelServer, model: Model, tmp_path: Path
    ) -> None:
        (tmp_path / "without").mkdir()
        (tmp_path / "without" / "Stemmer.py").write_text("raise ModuleNotFoundError(name=__name__)\n")
        without = {"PYTHONPATH": str(tmp_path / "without")}
        with Agent(tmp_path, server.url, **without) as agent:
            _talk(agent)
            agent.type("/exit")
            agent.expect("(I will remember 1 preference and 1 episode.)")
            assert agent.end() == 0
        with Agent(tmp_path, server.url, **without) as agent:
            agent.type("What of the metric files?")
            agent.expect("agent> Very well.")
        memory = model.conversations[-1][1]["content"]
        assert '- preference "units": "metric"' in memory
        assert "The files were counted." in memory
        assert "What was said" not in memory

    def test_next_session_finds_messages_of_a_killed_session(
        self, start: Callable[[], Agent], model: Model, tmp_path: Path
    ) -> None:
        with start() as agent:
            agent.type("The spare key is under the blue pot.")
            agent.expect("agent> Very well.")
            agent.kill()
        with start() as agent:
            agent.type("Where are the spare keys?")
            agent.expect("agent> Very well.")
        assert "under the blue pot" in model.conversations[-1][1]["content"]
        assert _records(tmp_path) == ()

    @pytest.mark.parametrize(("keys", "status"), [(CONTROL_C, 130), (CONTROL_D, 0)])
    def test_agent_learns_on_ctrl_c_and_on_the_end_of_input(
        self, start: Callable[[], Agent], tmp_path: Path, keys: str, status: int
    ) -> None:
        with start() as agent:
            _talk(agent)
            agent.expect("you> ")
            agent.press(keys)
            agent.expect("(I will remember 1 preference and 1 episode.)")
            assert agent.end() == status
        assert _values(tmp_path) == LEARNED

    def test_ctrl_c_ends_a_command_and_is_recorded(
        self, start: Callable[[], Agent], model: Model, tmp_path: Path
    ) -> None:
        def chat(messages: Messages) -> dict[str, JsonValue]:
            if messages[-1]["content"] == "wait":
                return calls("run_command", command="echo $$ > pid; sleep 1000")
            return answer_about_files(messages)

        model.chat = chat
        with start() as agent:
            _talk(agent)
            agent.type("wait")
            agent.expect("* run_command")
            until_blocking(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
            agent.press(CONTROL_C)
            agent.expect("(I will remember 1 preference and 1 episode.)")
            assert agent.end() == 130
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
        with open_sync_store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
            last = store.load_run(AGENT, _runs(tmp_path)[0]).log[-1].data
        assert isinstance(last, ToolResult)
        assert last.error_message.startswith("interrupted")

    def test_next_start_learns_from_a_killed_session(self, start: Callable[[], Agent], tmp_path: Path) -> None:
        with start() as agent:
            _talk(agent)
            agent.expect("you> ")
            agent.kill()
        assert _values(tmp_path) == []
        with start() as agent:
            agent.expect("Hello again. I remember 1 preference and 1 episode")
        assert _values(tmp_path) == LEARNED

    def test_session_is_learned_later_if_the_model_fails(
        self, start: Callable[[], Agent], model: Model, tmp_path: Path
    ) -> None:
        def answer(request: Request) -> Reply:
            return model(request) if "tools" in request.body else Reply(status=500)

        with ModelServer(answer) as broken, Agent(tmp_path, broken.url) as agent:
            _talk(agent)
            agent.type("/exit")
            agent.expect("(I could not learn from this now: llm_unavailable; I will try again next time.)")
            assert agent.end() == 0
        assert _values(tmp_path) == []
        with start() as agent:
            agent.expect("Hello again. I remember 1 preference and 1 episode")

    def test_session_is_learned_later_after_ctrl_c(
        self, start: Callable[[], Agent], model: Model, tmp_path: Path
    ) -> None:
        def answer(request: Request) -> Reply:
            return model(request) if "tools" in request.body else Reply(hangs=True)

        with ModelServer(answer) as hanging, Agent(tmp_path, hanging.url) as agent:
            _talk(agent)
            agent.type("/exit")
            until_blocking(lambda: "tools" not in hanging.requests[-1].body)
            agent.press(CONTROL_C)
            agent.expect("(The conversation is in the log. I will learn from it next time.)")
            assert agent.end() == 130
        with start() as agent:
            agent.expect("Hello again. I remember 1 preference and 1 episode")


class TestForgetting:
    def test_forget_asks_first_and_forgotten_memory_is_not_learned_again(
        self, start: Callable[[], Agent], model: Model, tmp_path: Path
    ) -> None:
        with start() as agent:
            _talk(agent)
            agent.type("/exit")
            agent.end()
        with start() as agent:
            agent.expect("Hello again.")
            agent.type("As I said: metric, please. And count once more.")
            agent.expect("agent> ")
            agent.type("/forget")
            agent.expect("Forget 1 preference and 1 episode, and everything that was said, permanently? [y/N] ")
            agent.press("\r")
            agent.expect("I have forgotten nothing.")
            agent.type("/forget")
            agent.expect("[y/N] ")
            agent.press("y\r")
            agent.expect("Forgotten.")
            agent.type("/memory")
            agent.expect("I remember nothing about you.")
            for message in ("I am in Kyoto.", "Thank you."):
                agent.type(message)
                agent.expect("agent> ")
            model.transcripts.clear()
            agent.type("/exit")
            agent.expect("(I will remember 1 preference and 1 episode.)")
            agent.end()
        assert all("metric" not in text for text in model.transcripts)
        assert _values(tmp_path) == [("city", "Kyoto"), ("", "")]
        # Later requests contain nothing from before, and the file has no trace of it.
        assert [message["role"] for message in model.conversations[-2]] == ["system", "user"]
        assert len(_runs(tmp_path)) == 1
        files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
        assert files
        assert not any(b"metric" in content or b"units" in content for content in files)
        with start() as agent:
            agent.expect("Hello again. I remember 1 preference and 1 episode")

    def test_end_of_input_does_not_confirm_forget(self, start: Callable[[], Agent], tmp_path: Path) -> None:
        with start() as agent:
            _talk(agent)
            agent.type("/exit")
            agent.end()
        with start() as agent:
            agent.type("/forget")
            agent.expect("[y/N] ")
            agent.press(CONTROL_D)
            assert agent.end() == 0
        assert _values(tmp_path) == LEARNED


class TestLimits:
    def test_turn_stops_after_fifteen_steps(self, start: Callable[[], Agent], model: Model, tmp_path: Path) -> None:
        def chat(_: Messages) -> dict[str, JsonValue]:
            return calls("run_command", len(model.conversations), command="true")

        model.chat = chat
        with start() as agent:
            for turn in ("one", "two"):
                agent.type(turn)
                agent.expect("(stopped after 15 steps")
            agent.type("/exit")
            agent.end()
        assert len(model.conversations) == 30
        assert all(validate(messages, "openai-chat") == [] for messages in model.conversations)
        with open_sync_store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
            log = store.load_run(AGENT, _runs(tmp_path)[0]).log
        assert sum(isinstance(event.data, UserMessage) for event in log) == 2
        assert sum(isinstance(event.data, ToolCall) for event in log) == 30

    def test_agent_continues_after_the_step_limit(self, start: Callable[[], Agent], model: Model) -> None:
        """A turn that is larger than the window keeps its opening and its latest steps."""

        def chat(messages: Messages) -> dict[str, JsonValue]:
            if messages[-1]["content"] == "go on":
                return {"content": "Done."}
            return calls("run_command", len(messages), command="head -c 30000 /dev/zero | tr '\\0' x; echo y >&2")

        model.chat = chat
        with start() as agent:
            for turn in ("count everything", "count again", "count the rest"):
                agent.type(turn)
                agent.expect("(stopped after 15 steps")
            agent.type("go on")
            agent.expect("agent> Done.")
        sent = model.conversations[-1]
        assert sent[-1]["content"] == "go on"
        assert {"role": "user", "content": "count the rest"} in sent
        assert sum(message["role"] == "tool" for message in sent) >= 15
        assert validate(sent, "openai-chat") == []

    def test_conversation_is_cut_and_stays_valid(self, start: Callable[[], Agent], model: Model) -> None:
        def chat(messages: Messages) -> dict[str, JsonValue]:
            if messages[-1]["content"] == "two calls":
                call_lists = [calls("run_command", number, command="true")["tool_calls"] for number in (1, 2)]
                return {
                    "tool_calls": [
                        call for call_list in call_lists if isinstance(call_list, list) for call in call_list
                    ]
                }
            return {"content": "Very well."}

        model.chat = chat
        long = "more " * 700  # a terminal's line has at most 4,096 bytes
        with start() as agent:
            for turn in ("two calls", *(long,) * 80):
                agent.type(turn)
                agent.expect("agent> Very well.")
        sizes = [len(str(messages)) // 4 for messages in model.conversations]
        assert max(sizes) in range(55_000, 65_000)
        assert "two calls" not in str(model.conversations[-1])
        assert all(validate(messages, "openai-chat") == [] for messages in model.conversations)
        assert all(
            messages[0]["role"] == "system" and messages[1]["role"] == "user" for messages in model.conversations
        )

    def test_tool_error_is_sent_to_the_model(self, start: Callable[[], Agent], model: Model) -> None:
        def chat(messages: Messages) -> dict[str, JsonValue]:
            last = messages[-1]
            return calls("read_file", path="../secret") if last["role"] == "user" else {"content": last["content"]}

        model.chat = chat
        with start() as agent:
            agent.type("read it")
            agent.expect("agent> ../secret is outside the working folder")

    def test_missing_key_is_reported_at_once(self, tmp_path: Path, server: ModelServer) -> None:
        with Agent(tmp_path, server.url, OPENAI_API_KEY="") as agent:
            assert agent.end() == 1
            assert agent.output.startswith("persistent_agent: OPENAI_API_KEY is not set")
        assert server.requests == []

    def test_refused_model_request_does_not_end_the_session(self, tmp_path: Path) -> None:
        refusal = Reply(status=400, body=b'{"error": {"message": "no such model"}}')
        with ModelServer([refusal]) as refusing, Agent(tmp_path, refusing.url) as agent:
            agent.type("hello")
            agent.expect("(that failed: Error code: 400")
            agent.type("/exit")
            assert agent.end() == 0


class TestTools:
    """Tests of the tools without the agent."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_tool_result_is_cut_at_three_thousand_characters(self, tmp_path: Path) -> None:
        (tmp_path / "long.txt").write_text("x" * 5_000)
        result = run_tool(ToolCall("c", "read_file", payload_json='{"path": "long.txt"}'))
        assert len(result) == 3_000
        assert result.endswith("[cut at 3,000 characters]")
        (tmp_path / "exact.txt").write_text("y" * 3_000)
        assert run_tool(ToolCall("c", "read_file", payload_json='{"path": "exact.txt"}')) == "y" * 3_000

    def test_command_output_is_cut_at_2000_and_errors_at_500_characters(self) -> None:
        output = run_command("yes é | head -c 20000; yes no | head -c 20000 >&2; exit 3")
        status, _, rest = output.partition("\n")
        out, _, err = rest.partition("\nstderr:\n")
        assert status == "status 3"
        assert len(out.removeprefix("stdout:\n")) == 2_000
        assert len(err) == 500
        assert run_command("true") == "status 0"

    def test_slow_command_is_killed_with_its_child_processes(self, tmp_path: Path) -> None:
        assert COMMAND_SECONDS == 30
        output = run_command("sleep 1000 & echo $! > pid; echo begun; wait", seconds=2)
        assert output == "killed after 2 seconds\nstdout:\nbegun\n"
        child = int((tmp_path / "pid").read_text())
        until_blocking(lambda: _has_ended(child))

    def test_files_are_written_and_read_only_inside_the_folder(self, tmp_path: Path) -> None:
        written = ToolCall("c", "write_file", payload_json='{"path": "a/b.txt", "content": "hé"}')
        assert run_tool(written) == "wrote 2 characters to a/b.txt"
        assert run_tool(ToolCall("c", "read_file", payload_json='{"path": "a/b.txt"}')) == "hé"
        (tmp_path / "link").symlink_to("/etc")
        for path in ("/etc/passwd", "../x", "link/passwd", "missing", "a"):
            with pytest.raises(ToolFailed, match=path):
                run_tool(ToolCall("c", "read_file", payload_json=json.dumps({"path": path})))

    @pytest.mark.parametrize(
        "payload", ["", "[]", "{", "{}", '{"path": 1}', '{"path": "a", "more": "b"}', '{"path": "a\\u0000"}']
    )
    def test_invalid_arguments_are_refused(self, payload: str) -> None:
        with pytest.raises(ToolFailed, match=r"as text: path|not JSON"):
            run_tool(ToolCall("c", "read_file", payload_json=payload))
        with pytest.raises(ToolFailed, match="there is no tool remove"):
            run_tool(ToolCall("c", "remove", payload_json=payload))
