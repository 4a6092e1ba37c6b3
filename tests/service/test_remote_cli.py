"""Tests that ``amlog`` works with a store of a server as with a local one, and that its errors are clear."""

from __future__ import annotations

import re
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from agent_memory_log import UserMessage
from agent_memory_log.samples import sample_lines
from tests import amlog as processes
from tests.amlog import Amlog, append
from tests.mongo.ports import HOST, port_of, reserve_port
from tests.service.scripted import ScriptedServer, problem, reply
from tests.service.serving import ServerProcess
from tests.waiting import PATIENCE

MEMORY = ("--tenant", "acme", "--user", "42")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    with ServerProcess(f"sqlite:///{folder}/runs.db", folder / "log", *MEMORY) as process:
        yield process


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Amlog:
    return Amlog(tmp_path, capsys)


RUN = "ops-agent/2026-03-06-slow-checkout"


def test_commands_give_the_same_output_on_a_server(server: ServerProcess, amlog: Amlog) -> None:
    local, remote = ("--store", amlog.url), ("--store", server.url)
    for store in (local, remote):
        file = amlog.file("demo.jsonl", b"".join(sample_lines("demo.jsonl")))
        amlog.ok("import", "jsonl", file, *store)
    for command in (
        ("runs",),
        ("show", RUN),
        ("show", RUN, "--after", "3", "--json"),
        ("stats",),
        ("verify",),
        ("diff", RUN, RUN),
        ("export", RUN),
        ("fork", RUN, "ops-agent/copy", "--at", "5", "--json"),
        ("redact", "ops-agent/copy", "2", "--yes", "--json"),
        ("delete", "ops-agent/copy", "--yes"),
        ("expire", "--json"),
        ("memory", "link", RUN, *MEMORY),
        ("memory", "derive", RUN, *MEMORY),
        ("memory", "derive", "--again", *MEMORY),
        ("memory", "rebuild", *MEMORY),
        ("memory", "stats", *MEMORY),
        ("memory", "search", "checkout", *MEMORY),
        ("memory", "list", *MEMORY),
        ("memory", "export", *MEMORY),
    ):
        expected, actual = amlog(*command, *local), amlog(*command, *remote)
        assert (actual.status, expected.status) == (0, 0), (command, actual, expected)
        assert actual.err == expected.err, command
        assert _without_times(actual.out) == _without_times(expected.out), command


def test_runs_are_copied_from_and_to_a_server(server: ServerProcess, amlog: Amlog) -> None:
    append(amlog.url, "agent", "copied", *(UserMessage(message=f"message {number}") for number in range(80)))
    assert "copied 80 events" in amlog.ok("copy", amlog.url, server.url, "agent/copied").out
    assert "nothing new" in amlog.ok("copy", amlog.url, server.url, "agent/copied").out
    back = f"sqlite:///{amlog.folder}/back.db"
    assert "copied 80 events" in amlog.ok("copy", server.url, back, "agent/copied").out


def test_tail_shows_new_events_until_ctrl_c(server: ServerProcess) -> None:
    append(server.url, "agent", "tailed", UserMessage(message="first"))
    process = processes.start("tail", "agent/tailed", "--store", server.url, "--json")
    assert process.stdout is not None
    assert b"first" in process.stdout.readline()
    append(server.url, "agent", "tailed", UserMessage(message="second"))
    assert b"second" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert err == b""


def test_commands_for_local_files_are_refused(server: ServerProcess, amlog: Amlog) -> None:
    assert amlog.error("compact", "--store", server.url) == "http: stores cannot be compacted"
    assert "use amlog copy" in amlog.error("backup", "b.db", "--store", server.url)
    error = amlog.error("memory", "list", "--tenant", "other", "--user", "42", "--store", server.url)
    assert error.startswith("the caller does not reach the memory of this principal: compare it with the tenant")


def test_errors_say_what_to_do(amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve_port() as reservation:
        url = f"http://{HOST}:{port_of(reservation)}"
        assert amlog.error("runs", "--store", url) == (
            f"{url}: runs/peek_runs: no connection: Connection refused; check host and port, and that the server runs"
        )
    page = reply(b"<html>It works!</html>", "404 Not Found", "text/html")
    denied = problem("401 Unauthorized", "unauthenticated")
    with ScriptedServer([page, denied], opens=False) as server:
        url = f"{server.url}/wrong"
        assert amlog.error("runs", "--store", url) == (
            f"{url}: runs/peek_runs: the answer is 404 Not Found with text/html; this is not the address of a server "
            "of agent-memory-log: check host, port and path of the URL"
        )
        assert amlog.error("runs", "--store", url) == (
            f"{url}: runs/peek_runs: detail of unauthenticated; the client reads it from AMLOG_TOKEN, or from the "
            "variable that token_env names"
        )
    monkeypatch.setenv("AMLOG_TOKEN", "two words")
    assert amlog.error("runs", "--store", "https://host").startswith("the environment variable AMLOG_TOKEN")
    for url in ("https://host?token=s3cr3t", "https://me:s3cr3t@host"):
        error = amlog.error("runs", "--store", url)
        assert "?token_env=NAME" in error
        assert "s3cr3t" not in error


def test_an_encrypted_url_of_a_server_without_tls_is_refused(server: ServerProcess, amlog: Amlog) -> None:
    error = amlog.error("runs", "--store", server.url.replace("http:", "https:"))
    assert error.endswith("; the server has no TLS: use http:")


def test_the_server_and_not_the_command_chooses_the_model(server: ServerProcess, amlog: Amlog) -> None:
    error = amlog.error("memory", "derive", RUN, "--model", *MEMORY, "--store", server.url, status=2)
    assert "amlog serve --model" in error


def test_a_wrong_path_of_a_server_is_refused(server: ServerProcess, amlog: Amlog) -> None:
    assert "check host, port and path" in amlog.error("runs", "--store", f"{server.url}/base")


def test_tokens_decide_what_a_command_reaches(amlog: Amlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def token(may: str) -> str:
        create = ("tokens", "create", *MEMORY, "--agents", "support", "--may", may, "--store", amlog.url, "--json")
        return str(amlog.ok(*create).json["token"])

    both, write = token("read,write"), token("write")
    append(amlog.url, "other", "run", UserMessage(message="not for support"))
    with ServerProcess(amlog.url, tmp_path / "log") as server:
        remote = ("--store", server.url)
        monkeypatch.delenv("AMLOG_TOKEN", raising=False)
        assert "token" in amlog.error("runs", *remote)
        monkeypatch.setenv("AMLOG_TOKEN", "wrong")
        assert "token" in amlog.error("runs", *remote)
        monkeypatch.setenv("AMLOG_TOKEN", write)
        append(server.url, "support", "run", UserMessage(message="hello"), reserved=False)
        assert "needs the right read" in amlog.error("runs", *remote)
        monkeypatch.setenv("AMLOG_TOKEN", both)
        assert [run["name"] for run in amlog.ok("runs", *remote, "--json").json["runs"]] == ["support/run"]
        assert "may not use the runs of the agent" in amlog.error("show", "other/run", *remote)
        assert "needs the right erase" in amlog.error("delete", "support/run", "--yes", *remote)
        assert "no active memories of user 42" in amlog("memory", "list", *MEMORY, *remote).err


def test_the_list_of_backends_shows_how_to_use_a_server(amlog: Amlog) -> None:
    hints = {backend["scheme"]: backend["hint"] for backend in amlog.ok("backends", "--json").json}
    assert hints["https"] == "--store https://host"
    assert hints["http"] == "--store http://localhost:8300"


def _without_times(text: str) -> str:
    """Return an output without the times and ids that differ from one store to another."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}", "ID", text)
    return re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "TIME", text)
