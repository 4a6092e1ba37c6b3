from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.capabilities import Compacts
from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.integrations.anthropic_memory import AsyncMemoryLogMemoryTool, MemoryLogMemoryTool, commands
from agent_memory_log.integrations.anthropic_memory.files import MemoryChange, MemoryFile
from tests.integrations.frameworks import needs
from tests.processes import PATIENCE, ROOT, last_number_of

NOTES = "/memories/notes.txt"
AGENT = "anthropic-memory"


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integrations.anthropic_memory_programs", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def create(path: str = NOTES, text: str = "one\ntwo\nthree\n") -> dict[str, Any]:
    return {"command": "create", "path": path, "file_text": text}


def view(path: str = NOTES) -> dict[str, Any]:
    return {"command": "view", "path": path}


def insert(line: int, text: str, path: str = NOTES) -> dict[str, Any]:
    return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}


def str_replace(old: str, new: str, path: str = NOTES) -> dict[str, Any]:
    return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def delete(path: str = NOTES) -> dict[str, Any]:
    return {"command": "delete", "path": path}


def rename(old: str, new: str) -> dict[str, Any]:
    return {"command": "rename", "old_path": old, "new_path": new}


def lines_of(tool: MemoryLogMemoryTool, path: str = NOTES) -> list[str]:
    """Return the lines of a file, or those of a directory, without their numbers or sizes."""
    return [line.split("\t", 1)[1] for line in tool.call(view(path)).split("\n")[1:]]


def versions(store: SyncStore, user: str = "42") -> list[MemoryFile]:
    return [event.data for event in store.load_run(AGENT, user).log if isinstance(event.data, MemoryFile)]


@pytest.fixture
def tool(url: str) -> Generator[MemoryLogMemoryTool]:
    with MemoryLogMemoryTool(url, user="42") as opened:
        yield opened


# The SDK's tool runner


def scripted(calls: list[dict[str, Any]], requests: list[Any]) -> httpx2.MockTransport:
    """Return Anthropic's API with a model that makes calls of the tool one by one, and then ends."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        number = len(requests) - 1
        content: list[Any] = [{"type": "text", "text": "Done."}]
        if number < len(calls):
            content = [{"type": "tool_use", "id": f"t{number}", "name": "memory", "input": calls[number]}]
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1}
        reason = "tool_use" if number < len(calls) else "end_turn"
        return httpx2.Response(200, json={**message, "usage": usage, "stop_reason": reason, "stop_sequence": None})

    return httpx2.MockTransport(respond)


CALLS = [create(), str_replace("two", "2"), insert(3, "four"), view(), delete("/memories/no.txt"), {"command": "fly"}]
EDITED = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
RESULTS = [
    "File created successfully at: /memories/notes.txt",
    f"{EDITED}\n     1\tone\n     2\t2\n     3\tthree\n     4\t",
    "The file /memories/notes.txt has been edited.",
    f"Here's the content of {NOTES} with line numbers:\n     1\tone\n     2\t2\n     3\tthree\n     4\tfour\n     5\t",
    "The path /memories/no.txt does not exist",
    "`command` must be one of view, create, str_replace, insert, delete, rename, got str 'fly'",
]
ASK: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


def results_in(requests: list[Any]) -> list[str]:
    """Return the result that each request but the first sends last."""
    return [request["messages"][-1]["content"][-1]["content"] for request in requests[1:]]


def test_tool_runner_runs_the_commands(tool: MemoryLogMemoryTool) -> None:
    requests: list[Any] = []
    http_client = httpx2.Client(transport=scripted(CALLS, requests))
    client: Any = Anthropic(api_key="none", base_url="http://localhost", http_client=http_client)
    message = client.beta.messages.tool_runner(**ASK, tools=[tool]).until_done()
    assert message.content[0].type == "text"
    assert requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert results_in(requests) == RESULTS


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=needs("trio"))])
def test_async_tool_runner_runs_the_commands(backend: str, url: str) -> None:
    requests: list[Any] = []

    async def main() -> None:
        http_client = httpx2.AsyncClient(transport=scripted(CALLS, requests))
        client: Any = AsyncAnthropic(api_key="none", base_url="http://localhost", http_client=http_client)
        async with AsyncMemoryLogMemoryTool(url, user="42") as tool:
            await client.beta.messages.tool_runner(**ASK, tools=[tool]).until_done()
            await tool.call(rename(NOTES, "/memories/old.txt"))
            assert await tool.forget("/memories/old.txt") > 0
            assert await tool.clear_all_memory() == "All memory cleared"

    anyio.run(main, backend=backend)
    assert results_in(requests) == RESULTS


def test_definition_has_the_cache_control() -> None:
    with MemoryLogMemoryTool("memory:", user="42", cache_control={"type": "ephemeral"}) as tool:
        assert tool.to_dict().get("cache_control") == {"type": "ephemeral"}


# The same texts as the SDK's tool for a folder

NAMES = st.sampled_from(["a", "b", "a.txt", ".hidden", "é", "x y"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SPELLINGS = st.sampled_from(["/memories/{}", "/memories//{}", "/memories/./{}/", "/memories/q/../{}"])
TEXTS = st.text(alphabet="ab\n\r\té", max_size=8)
ODD_PATHS = ["/memories", "/memories/", "/memories/.", "/memories/a/..", "/memories/..", "/etc/passwd", ""]


def with_sizes_of_ext4(text: str) -> str:
    """Return a text of a directory with the sizes of directories that ext4 has, on every file system."""
    first, *lines = text.split("\n")
    if not first.startswith("Here're the files"):
        return text
    return "\n".join(
        [first, *(re.sub(r"^\S+", "4K", line) if not n or line.endswith("/") else line for n, line in enumerate(lines))]
    )


class ToolMachine(RuleBasedStateMachine):
    """Compares the texts of tools, in memory and on SQLite, with those of the SDK's tool for a folder."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.memories = Path(self.folder.name, "memories")
        self.reference = BetaLocalFilesystemMemoryTool(self.folder.name)
        self.url = f"sqlite:///{self.folder.name}/runs.db?durability=os"
        self.tools = [MemoryLogMemoryTool("memory:", user="42"), MemoryLogMemoryTool(self.url, user="42")]
        self.previous: object = None

    def teardown(self) -> None:
        for tool in self.tools:
            tool.close()
        self.folder.cleanup()

    def all(self, command: dict[str, Any]) -> None:
        if command == self.previous:
            return  # a repetition has the result of the first time
        paths = set(self.memories.rglob("*"))
        failed, expected = False, None
        try:
            expected = with_sizes_of_ext4(str(self.reference.call(command)))
        except ToolError as error:
            failed, expected = True, str(error)
        except OSError:
            failed = True  # the reference has no text of its own for some errors of the file system
        if failed:
            for path in sorted(set(self.memories.rglob("*")) - paths, reverse=True):
                path.rmdir()  # the reference made it for a new path before it failed
        elif command["command"] != "view":
            self.previous = command
        for tool in self.tools:
            if failed:
                with pytest.raises(ToolError) as caught:
                    tool.call(command)
                assert expected in {None, str(caught.value)}
            else:
                assert tool.call(command) == expected

    @rule(path=PATHS, spelling=SPELLINGS, text=TEXTS)
    def create(self, path: str, spelling: str, text: str) -> None:
        self.all(create(spelling.format(path), text))

    @rule(path=PATHS, spelling=SPELLINGS, old=TEXTS, new=TEXTS)
    def str_replace(self, path: str, spelling: str, old: str, new: str) -> None:
        self.all(str_replace(old, new, spelling.format(path)))

    @rule(path=PATHS, line=st.integers(-1, 5), text=TEXTS)
    def insert(self, path: str, line: int, text: str) -> None:
        self.all(insert(line, text, f"/memories/{path}"))

    @rule(path=PATHS, spelling=SPELLINGS)
    def delete(self, path: str, spelling: str) -> None:
        self.all(delete(spelling.format(path)))

    @rule(old=PATHS, new=PATHS, spelling=SPELLINGS)
    def rename(self, old: str, new: str, spelling: str) -> None:
        self.all(rename(f"/memories/{old}", spelling.format(new)))

    @rule(path=PATHS, spelling=SPELLINGS, view_range=st.none() | st.lists(st.integers(-3, 5), max_size=3))
    def view(self, path: str, spelling: str, view_range: list[int] | None) -> None:
        self.all({**view(spelling.format(path)), "view_range": view_range})

    @rule(path=st.sampled_from(ODD_PATHS), other=PATHS)
    def use_an_odd_path(self, path: str, other: str) -> None:
        for command in (create(path), view(path), insert(0, "x", path), str_replace("a", "b", path), delete(path)):
            self.all(command)
        self.all(rename(path, f"/memories/{other}"))
        self.all(rename(f"/memories/{other}", path))

    @rule()
    def open_again(self) -> None:
        self.tools[1].close()
        self.tools[1] = MemoryLogMemoryTool(self.url, user="42")

    @invariant()
    def directories_are_equal(self) -> None:
        self.all(view("/memories"))


ToolMachine.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)
TestToolMachine = ToolMachine.TestCase


# History, repetitions and concurrent writers


def test_every_version_stays_in_the_log(tool: MemoryLogMemoryTool) -> None:
    for command in (create(text="a"), str_replace("a", "b"), rename(NOTES, "/memories/c.txt")):
        tool.call(command)
    tool.call(str_replace("b", "c", "/memories/c.txt"))
    tool.call(delete("/memories/c.txt"))
    assert versions(tool.store) == [
        MemoryFile(NOTES, "a"),
        MemoryFile(NOTES, "b", 1),
        MemoryFile("/memories/c.txt", "c", 1),
    ]
    assert tool.store.load_run(AGENT, "42").meta == {AGENT: {"user": "42"}}


@pytest.mark.parametrize(
    "command",
    [
        create("/memories/new/b.txt"),
        str_replace("two", "2"),
        delete("/memories/d"),
        rename("/memories/d", "/memories/e"),
    ],
    ids=lambda command: command["command"],
)
def test_repeated_command_has_the_first_result(tool: MemoryLogMemoryTool, command: dict[str, Any]) -> None:
    tool.call(create())
    tool.call(create("/memories/d/a.txt"))
    first = tool.call(command)
    version = tool.store.load_run(AGENT, "42").version
    assert tool.call(command) == first
    assert tool.store.load_run(AGENT, "42").version == version
    tool.call(insert(0, "zero"))  # after another change, it is no repetition
    with pytest.raises(ToolError):
        tool.call(command)


def test_two_processes_lose_no_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    with MemoryLogMemoryTool(url, user="42") as tool:
        tool.call(create(text=""))
        processes = [start("insert_lines", url, name, "50") for name in ("left", "right")]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
        lines = lines_of(tool)[::-1]
    for name in ("left", "right"):
        assert [line for line in lines if line.startswith(name)] == [f"{name} {n}" for n in range(50)]


def test_killed_process_leaves_a_directory_in_one_place(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with MemoryLogMemoryTool(url, user="42") as tool:
        for number in range(10):
            tool.call(create(f"/memories/left/{number}.txt"))
        last_number_of(start("rename_until_killed", url))
        listed = lines_of(tool, "/memories")
        (top,) = (line for line in listed if line in ("/memories/left/", "/memories/right/"))
        assert listed[1:] == [top, *(f"{top}{number}.txt" for number in range(10))]


class Between:
    """A store that calls a function before each append or redaction."""

    def __init__(self, store: SyncStore, call: Callable[[str], object]) -> None:
        self.store = store
        self.call = call
        self.events_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def load_run(self, *arguments: Any, **options: Any) -> Any:
        snapshot = self.store.load_run(*arguments, **options)
        self.events_read += len(snapshot.log)
        return snapshot

    def append_events(self, *arguments: Any, **options: Any) -> Any:
        self.call("append")
        return self.store.append_events(*arguments, **options)

    def redact_events(self, *arguments: Any, **options: Any) -> Any:
        self.call("redact")
        return self.store.redact_events(*arguments, **options)


def test_command_decides_again_after_a_change_of_another_writer(tool: MemoryLogMemoryTool) -> None:
    tool.call(create())
    changes = [delete(), create(text="new two")]

    def change(_: str) -> None:
        while changes:
            tool.call(changes.pop(0))

    slow = MemoryLogMemoryTool(cast("Any", Between(tool.store, change)), user="42")
    slow.call(str_replace("two", "2"))
    assert lines_of(tool) == ["new 2"]


def test_read_costs_a_few_events_and_not_the_history(tool: MemoryLogMemoryTool) -> None:
    tool.call(create())
    for number in range(100):
        tool.call(insert(0, f"line {number}"))
    counting = Between(tool.store, lambda _: None)
    other = MemoryLogMemoryTool(cast("Any", counting), user="42")
    assert len(lines_of(other)) == 104
    assert counting.events_read <= 17


async def test_cancelled_call_ends_after_its_write() -> None:
    entered, released = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        entered.set()
        assert released.wait(PATIENCE)

    with open_sync_store("memory:") as store:
        tool = AsyncMemoryLogMemoryTool(cast("Any", Between(store, wait)), user="42")
        task = asyncio.create_task(tool.call(create()))
        await asyncio.to_thread(entered.wait, PATIENCE)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(versions(store)) == 1


# Forgetting


def test_forgotten_file_is_gone_with_its_history(tool: MemoryLogMemoryTool, tmp_path: Path) -> None:
    tool.call(create("/memories/other.txt", "stays"))
    tool.call(create("/memories/diagnosis.txt", "secret one"))
    tool.call(str_replace("one", "two", "/memories/diagnosis.txt"))
    tool.call(rename("/memories/diagnosis.txt", "/memories/health.txt"))
    tool.call(insert(1, "secret three", "/memories/health.txt"))
    assert tool.forget("/memories/health.txt") == 7
    assert tool.forget("/memories/health.txt") == 0
    assert tool.forget("/memories/diagnosis.txt") == 0
    assert lines_of(tool, "/memories") == ["/memories", "/memories/other.txt"]
    assert lines_of(tool, "/memories/other.txt") == ["stays"]
    text = str(list(tool.store.load_run(AGENT, "42").log))
    assert not [word for word in ("secret", "diagnosis", "health") if word in text]
    if isinstance(tool.store, Compacts):
        tool.store.compact()
        for file in tmp_path.glob("runs.db*"):
            assert b"secret" not in file.read_bytes()
            assert b"diagnosis" not in file.read_bytes()


def test_forgetting_keeps_a_file_that_has_another_name_now(tool: MemoryLogMemoryTool) -> None:
    tool.call(create("/memories/old/a.txt", "moved"))
    tool.call(create("/memories/old/b.txt", "secret"))
    tool.call(rename("/memories/old/a.txt", "/memories/a.txt"))
    tool.call(delete("/memories/old"))
    tool.forget("/memories/old")
    assert [version.text for version in versions(tool.store)] == ["moved"]
    assert lines_of(tool, "/memories/a.txt") == ["moved"]


def test_forgetting_that_failed_halfway_is_repeated(tool: MemoryLogMemoryTool) -> None:
    tool.call(create(text="secret"))

    def fail(operation: str) -> None:
        if operation == "redact":
            raise StoreUnavailable("the connection is lost")

    failing = MemoryLogMemoryTool(cast("Any", Between(tool.store, fail)), user="42")
    with pytest.raises(StoreUnavailable):
        failing.forget(NOTES)
    assert lines_of(tool, "/memories") == ["/memories"]
    assert tool.forget(NOTES) > 0
    assert versions(tool.store) == []


def test_cleared_memory_is_gone_with_its_history(tool: MemoryLogMemoryTool) -> None:
    tool.call(create())
    assert tool.clear_all_memory() == "All memory cleared"
    assert len(tool.store.load_run(AGENT, "42").log) == 0
    tool.call(create(text="new"))
    assert lines_of(tool) == ["new"]


def test_redacted_version_cannot_be_read(tool: MemoryLogMemoryTool) -> None:
    tool.call(create())
    tool.store.redact_events(AGENT, "42", [1])
    with pytest.raises(ToolError, match="no longer exists"):
        tool.call(view())
    assert tool.call(delete()) == "Successfully deleted /memories/notes.txt"


def test_files_outlive_redacted_changes(tool: MemoryLogMemoryTool) -> None:
    tool.call(create("/memories/first.txt"))
    tool.call(create())
    for number in range(40):
        tool.call(insert(0, f"line {number}"))
    log = tool.store.load_run(AGENT, "42").log
    complete = [event.seq for event in log if isinstance(event.data, MemoryChange) and event.data.complete]
    tool.store.redact_events(AGENT, "42", complete[1:])
    assert len(complete) == 3
    assert lines_of(tool, "/memories")[1:] == ["/memories/first.txt", NOTES]


# Bad input


HOSTILE_USERS = ("a", "a/b", "a%2Fb", "@memory", "' or 1=1 --", "\x00", "x" * 513, "x" * 514, "..", "\u0410", "A")


def test_users_share_nothing() -> None:
    with open_sync_store("memory:") as store:
        tools = {user: MemoryLogMemoryTool(store, user=user) for user in HOSTILE_USERS}
        for user, tool in tools.items():
            assert lines_of(tool, "/memories") == ["/memories"]
            tool.call(create(text=ascii(user)))
        for user, tool in tools.items():
            assert lines_of(tool) == [ascii(user)]
            tool.clear_all_memory()


@pytest.mark.parametrize("user", ["", None, 42])
def test_tool_needs_a_user(user: Any) -> None:
    with pytest.raises(InvalidArgument, match="user must be text that is not empty"):
        MemoryLogMemoryTool("memory:", user=user)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/memoriesX/a", "must start with /memories"),
        ("/Memories/a", "must start with /memories"),
        ("memories/a", "must start with /memories"),
        ("/memories/../memories/a", "would escape /memories directory"),
        ("/memories/a/../../../etc/passwd", "would escape /memories directory"),
        ("/memories/a\x00b", "cannot be printed"),
        ("/memories/a\u202eb", "cannot be printed"),
        ("/memories/a\u200bb", "cannot be printed"),
        ("/memories/\ud800", "cannot be printed"),
        ("\ud800", "cannot be printed"),
        ("/memories/" + "x" * 256, "a name of more than 255 bytes"),
        ("/memories/" + "x/" * 300, "at most 512 characters"),
    ],
)
def test_path_is_refused(tool: MemoryLogMemoryTool, path: str, message: str) -> None:
    tool.call(create())
    for command in (create(path), view(path), delete(path), rename(path, "/memories/x"), rename(NOTES, path)):
        with pytest.raises(ToolError, match=message):
            tool.call(command)
    with pytest.raises(ToolError, match=message):
        tool.forget(path)
    assert tool.store.load_run(AGENT, "42").version == 2


def test_names_that_look_the_same_are_the_same_file(tool: MemoryLogMemoryTool) -> None:
    tool.call(create("/memories/caf\u00e9.txt", "here"))
    assert lines_of(tool, "/memories/cafe\u0301.txt") == ["here"]
    with pytest.raises(ToolError, match="already exists"):
        tool.call(create("/memories/cafe\u0301.txt"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (None, "`command` must be one of view, create, str_replace, insert, delete, rename, got null"),
        ({"command": ["view"]}, "`command` must be one of"),
        ({"command": "view"}, "Invalid input of view: `path`: Field required"),
        ({"command": "create", "path": NOTES, "file_text": 1}, "`file_text`: Input should be a valid string"),
        ({"command": "insert", "path": 1, "insert_line": "x", "insert_text": ""}, "`insert_line`: .*`path`: "),
        (create(text="\ud800"), "The text of /memories/notes.txt is not valid Unicode: surrogates not allowed"),
        (create(text="x" * (8 * 2**20 + 1)), "must have at most 8 MiB, got 8,388,609 bytes"),
        (create("/memories/file/a"), "The path /memories/file is not a directory"),
        (create("/memories/file/a/b"), "The path /memories/file is not a directory"),
        (rename("/memories/file", "/memories/file/a"), "is inside /memories/file"),
    ],
)
def test_input_is_refused(tool: MemoryLogMemoryTool, arguments: object, message: str) -> None:
    tool.call(create("/memories/file"))
    with pytest.raises(ToolError, match=message):
        tool.call(arguments)
    assert tool.store.load_run(AGENT, "42").version == 2


def test_number_of_files_is_limited(tool: MemoryLogMemoryTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_FILES", 3)
    tool.call(create("/memories/a/b/c.txt"))
    with pytest.raises(ToolError, match="at most 3 files and directories"):
        tool.call(create())
    tool.call(rename("/memories/a", "/memories/d"))
    tool.call(delete("/memories/d/b"))
    tool.call(create())


def test_list_of_matches_is_limited(tool: MemoryLogMemoryTool) -> None:
    tool.call(create(text="x\n" * 500_000))
    with pytest.raises(ToolError, match=r"in lines: 1, 2, 3, .*, 1000, …\. Please ensure it is unique"):
        tool.call(str_replace("x", "y"))


def test_other_events_in_the_run_do_no_harm(tool: MemoryLogMemoryTool) -> None:
    tool.call(create())
    tool.store.append_events(AGENT, "42", new_event(UserMessage("Hi")))
    tool.call(str_replace("one", "1"))
    assert lines_of(tool)[0] == "1"
