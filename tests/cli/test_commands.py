"""Tests that each command does what its help describes, in plain text and in JSON."""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, SystemMessage, ToolCall, ToolResult, UserMessage, new_event, open_sync_store
from agent_memory_log.samples import sample_lines
from tests.amlog import Amlog, first_words, run_on_terminal, without_codes


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


@pytest.fixture
def samples(amlog: Amlog) -> Amlog:
    amlog.load_samples()
    return amlog


CHAT = '{"messages":[{"role":"user","content":"hi"}],"score":0.5}\n'


class TestImport:
    def test_chats_get_their_name_from_a_field_or_the_line(self, amlog: Amlog) -> None:
        lines = [
            CHAT,
            *(CHAT.replace("{", f'{{"{field}":"r-{field}",', 1) for field in ("run", "run_id", "id")),
            "\n",
            CHAT,
        ]
        ran = amlog.ok("import", "openai-chat", amlog.file("chats.jsonl", "".join(lines)), "--agent", "a", "--json")
        assert [run["run"] for run in ran.json["runs"]] == ["chats-0001", "r-run", "r-run_id", "r-id", "chats-0006"]
        assert (ran.json["read"], ran.json["inserted"]) == (5, 5)

    def test_number_is_a_run_name_and_other_fields_are_meta(self, amlog: Amlog) -> None:
        chat = CHAT.replace("{", '{"id":7,"tags":["x"],', 1)
        amlog.ok("import", "openai-chat", amlog.file("c.jsonl", chat), "--agent", "a")
        (run,) = amlog.ok("runs", "--json").json["runs"]
        assert (run["name"], run["meta"]) == ("a/7", {"tags": ["x"], "score": 0.5})

    def test_importing_again_stores_nothing(self, samples: Amlog) -> None:
        ran = samples.ok("import", "jsonl", str(samples.folder / "demo.jsonl"))
        assert ran.out == "✔ nothing new: ops-agent/2026-03-06-slow-checkout with 45 events already stored\n"
        ran = samples.ok("import", "openai-chat", str(samples.folder / "support.jsonl"), "--agent", "support", "--json")
        assert (ran.json["read"], ran.json["inserted"]) == (81, 0)

    def test_import_counts_only_new_events(self, amlog: Amlog) -> None:
        first = amlog.file("c.jsonl", CHAT)
        assert amlog.ok("import", "openai-chat", first, "--agent", "a").out == "✔ imported 1 event into a/c-0001\n"
        amlog.file("c.jsonl", CHAT.replace("]", ',{"role":"user","content":"more"}]'))
        ran = amlog.ok("import", "openai-chat", first, "--agent", "a")
        assert ran.out == "✔ imported 1 event into a/c-0001   1 already stored\n"

    def test_error_names_the_invalid_line(self, amlog: Amlog) -> None:
        assert "line 2" in amlog.error("import", "openai-chat", amlog.file("c.jsonl", CHAT + "{"), "--agent", "a")
        assert "line 1" in amlog.error("import", "jsonl", amlog.file("c.jsonl", "[]\n"))

    def test_error_names_the_line_of_a_refused_append(self, amlog: Amlog) -> None:
        two = CHAT.replace("{", '{"id":"same",', 1) + CHAT.replace("{", '{"id":"same",', 1).replace("hi", "other")
        message = amlog.error("import", "openai-chat", amlog.file("c.jsonl", two), "--agent", "a")
        assert message.startswith("line 2: ")

    def test_import_refuses_an_empty_file(self, amlog: Amlog) -> None:
        assert "nothing to import" in amlog.error("import", "jsonl", amlog.file("c.jsonl", "\n"))

    def test_import_refuses_a_missing_file(self, amlog: Amlog) -> None:
        assert amlog.error("import", "jsonl", "missing.jsonl") == "missing.jsonl: No such file or directory"
        assert not (amlog.folder / "runs.db").exists()

    def test_import_of_chats_requires_an_agent(self, amlog: Amlog) -> None:
        assert "--agent" in amlog.error("import", "openai-chat", amlog.file("c.jsonl", CHAT), status=2)


class TestExport:
    def test_export_returns_the_imported_run(self, samples: Amlog) -> None:
        assert (
            samples.ok("export", "ops-agent/2026-03-06-slow-checkout").out
            == b"".join(sample_lines("demo.jsonl")).decode()
        )

    def test_exported_file_restores_the_whole_store(self, samples: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        target = samples.folder / "all.jsonl"
        assert samples.ok("export", "--all", "-o", str(target)).out == ""
        assert target.read_text() == samples.ok("export", "--all").out
        monkeypatch.setenv("AMLOG_STORE", f"sqlite:///{samples.folder / 'other.db'}")
        samples.ok("import", "jsonl", str(target))
        assert target.read_text() == samples.ok("export", "--all").out

    def test_export_writes_the_runs_of_one_agent(self, samples: Amlog) -> None:
        assert samples.ok("export", "--agent", "support").out == samples.ok("export", "--all", "--agent", "support").out
        assert samples.ok("export", "--agent", "support").out.count('"format"') == 5
        assert "no runs" in samples.error("export", "--agent", "nobody")

    def test_export_writes_reserved_agents_only_on_request(self, amlog: Amlog) -> None:
        amlog.append("a", "r", PlannerNote(note="n"))
        amlog.append("@memory", "r", PlannerNote(note="n"))
        assert amlog.ok("export", "--all").out.count('"format"') == 1
        assert amlog.ok("export", "--all", "--reserved").out.count('"format"') == 2

    def test_failed_export_keeps_the_old_file(self, samples: Amlog) -> None:
        target = samples.file("all.jsonl", "precious\n")
        samples.error("export", "missing", "-o", target)
        samples.error("export", "--agent", "nobody", "-o", target)
        assert Path(target).read_text() == "precious\n"
        assert [path for path in samples.folder.iterdir() if path.name.startswith(".")] == []

    def test_export_keeps_the_permissions_of_the_old_file(self, samples: Amlog) -> None:
        target = Path(samples.file("all.jsonl", "old\n"))
        target.chmod(0o640)
        samples.ok("export", "--all", "-o", str(target))
        assert stat.S_IMODE(target.stat().st_mode) == 0o640

    def test_export_requires_either_a_run_or_all(self, samples: Amlog) -> None:
        samples.error("export", status=2)
        samples.error("export", "some-run", "--all", status=2)


class TestRuns:
    def test_runs_lists_newest_first_with_meta(self, amlog: Amlog) -> None:
        amlog.append("a", "one", PlannerNote(note="n"), PlannerNote(note="m"), meta={"k": "v w", "n": 1})
        amlog.append("b", "two", PlannerNote(note="n"))
        title, two, run = amlog.ok("runs").out.splitlines()
        assert title.split() == ["run", "events", "created", "(UTC)", "updated", "(UTC)", "meta"]
        assert two.split()[:2] == ["b/two", "1"]
        assert run.split()[:2] == ["a/one", "2"]
        assert run.endswith("  k=v w n=1")

    def test_runs_shows_the_time_of_the_newest_event(self, amlog: Amlog) -> None:
        for minute in (5, 3):
            time = datetime(2026, 3, 4, 9, minute, 0, 7, tzinfo=UTC)
            amlog.append("a", "r", new_event(PlannerNote(note="n"), timestamp=time))
        assert amlog.ok("runs").out.splitlines()[1].split()[4:] == ["2026-03-04", "09:03"]
        (run,) = amlog.ok("runs", "--json").json["runs"]
        assert run["updated"] == "2026-03-04T09:03:00.000007Z"

    def test_runs_continues_at_a_cursor(self, amlog: Amlog) -> None:
        for number in range(5):
            amlog.append("a", f"r{number}", PlannerNote(note="n"))
        listed: list[str] = []
        cursor: list[str] = []
        for _ in range(3):
            page = amlog.ok("runs", "--json", "-n", "2", *cursor).json
            listed += [run["run"] for run in page["runs"]]
            cursor = ["--cursor", page["cursor"]]
        assert listed == ["r4", "r3", "r2", "r1", "r0"]
        assert cursor[1] is None
        ran = amlog("runs", "-n", "2")
        assert ran.err.startswith("more runs: continue with --cursor ")

    def test_runs_filters_by_agent_and_includes_reserved_agents(self, amlog: Amlog) -> None:
        for agent in ("a", "b", "@memory"):
            amlog.append(agent, "r", PlannerNote(note="n"))
        assert first_words(amlog.ok("runs").out) == ["run", "b/r", "a/r"]
        assert first_words(amlog.ok("runs", "--agent", "a").out) == ["run", "a/r"]
        assert first_words(amlog.ok("runs", "--all").out) == ["run", "@memory/r", "b/r", "a/r"]

    def test_runs_of_an_empty_store_lists_nothing(self, amlog: Amlog) -> None:
        with open_sync_store(amlog.url):
            pass
        assert amlog("runs") == (0, "", "no runs\n")
        assert amlog.ok("runs", "--json").json == {"runs": [], "cursor": None}


class TestShow:
    def test_show_writes_one_line_per_event_with_nested_calls(self, samples: Amlog) -> None:
        lines = samples.ok("show", "2026-03-06-slow-checkout").out.splitlines()
        assert lines[0].startswith(
            "ops-agent/2026-03-06-slow-checkout   45 events   2026-03-06 08:14:03 UTC   took 6m 31s"
        )
        events = [line for line in lines if line[:4].strip().isdigit()]
        assert len(events) == 45
        places = [int(line[:4]) for line in events]
        at = places.index(17)
        assert places[at : at + 10] == [17, 18, 22, 19, 23, 20, 21, 24, 25, 26]
        assert "  call        │ traces.slowest  " in events[at + 1]
        assert "  result      │ └ ✔ 880ms  giftwrap.options" in events[at + 2]
        assert "↻ retry: tool_unavailable" in events[at + 4]
        assert events[at + 9].endswith("  result      └ ✔ diagnosis.run 1.9s  N+1 query in giftwrap.options")
        assert lines[-1] == "12 tool calls, 3 failed"

    def test_show_refuses_a_type_that_no_event_has(self, samples: Amlog) -> None:
        name = "2026-03-06-slow-checkout"
        error = samples.error("show", name, "--type", "user_mesage")
        assert error.startswith("no event has the type 'user_mesage': the run has events of ")
        assert "user_message" in error
        assert samples.ok("show", name, "--type", "checkpoint", "--json").out == ""

    def test_show_filters_by_type_seq_and_limit(self, samples: Amlog) -> None:
        name = "2026-03-06-slow-checkout"
        only = samples.ok("show", name, "--type", "user_message", "-t", "annotation", "--json").json_lines
        assert [line["seq"] for line in only] == [2, 14, 30, 31, 44]
        assert [line["seq"] for line in samples.ok("show", name, "--after", "43", "--json").json_lines] == [44, 45]
        ran = samples("show", name, "--after", "3", "--limit", "2")
        assert [line[:4].strip() for line in ran.out.splitlines()[3:]] == ["4", "5"]
        assert ran.err == "more events: continue with --after 5\n"

    def test_show_json_has_the_wire_format(self, samples: Amlog) -> None:
        lines = samples.ok("show", "ops-agent/2026-03-06-slow-checkout", "--json").out.splitlines(keepends=True)
        assert "".join(lines) == b"".join(sample_lines("demo.jsonl")[1:-1]).decode()

    def test_result_without_its_visible_call_names_the_tool(self, samples: Amlog) -> None:
        out = samples.ok("show", "2026-03-06-slow-checkout", "--type", "tool_result").out
        assert "✔ deploys.list 210ms (3 of 41)  3 deploys" in out
        assert "answers no open call" not in out

    def test_show_marks_open_calls_and_orphan_results(self, amlog: Amlog) -> None:
        amlog.append("a", "r", ToolCall("1", "find", payload_json="{}"), ToolResult("2", "lost", result_json="1"))
        lines = amlog.ok("show", "r").out.splitlines()
        assert lines[2].endswith("find  {}  open: no result yet")
        assert lines[3].endswith("✔ lost  1  answers no open call")
        assert lines[-1] == "1 tool call, 1 open"

    def test_show_marks_redacted_events(self, amlog: Amlog) -> None:
        amlog.append("a", "r", UserMessage(message="secret"), UserMessage(message="also"), UserMessage(message="open"))
        with open_sync_store(amlog.url) as store:
            store.redact_events("a", "r", [1, 2], reason="asked to")
        out = amlog.ok("show", "r").out
        assert "[user_message redacted: asked to]" in out
        assert "redacted 1-2: asked to" in out
        assert "secret" not in out

    def test_show_full_adds_ids_and_labels(self, samples: Amlog) -> None:
        name = "2026-03-06-slow-checkout"
        assert "labels role=tool turn=1" in samples.ok("show", name, "--full").out
        assert "labels role=tool turn=1" not in samples.ok("show", name).out

    def test_show_refuses_unknown_and_deleted_runs(self, samples: Amlog) -> None:
        assert samples.error("show", "nobody/none") == "no run nobody/none: list the runs with amlog runs"
        assert samples.error("show", "none") == "no run 'none': list the runs with amlog runs"
        samples.ok("delete", "2026-03-06-slow-checkout", "--yes")
        assert "was deleted at version 45" in samples.error("show", "ops-agent/2026-03-06-slow-checkout")

    def test_show_refuses_a_seq_after_the_end(self, samples: Amlog) -> None:
        assert "46" in samples.error("show", "2026-03-06-slow-checkout", "--after", "46")


class TestNames:
    def test_error_lists_all_agents_that_have_the_run(self, amlog: Amlog) -> None:
        for agent in ("a", "b/c"):
            amlog.append(agent, "same", PlannerNote(note="n"))
        message = amlog.error("show", "same")
        assert message == "2 agents have a run 'same': give one of b%2Fc/same, a/same"
        amlog.ok("show", "b%2Fc/same")

    @pytest.mark.parametrize(
        ("agent", "run", "name"),
        [
            ("a/b", "c%d", "a%2Fb/c%25d"),
            ("100%", "%2F", "100%25/%252F"),
            ("ag ent", "line\nbreak", "ag%20ent/line%0Abreak"),
            ("\x1b[31m", "\u202eevil", "%1B[31m/%E2%80%AEevil"),
            ("日本", "ré", "日本/ré"),
        ],
    )
    def test_commands_accept_the_names_that_they_print(self, amlog: Amlog, agent: str, run: str, name: str) -> None:
        amlog.append(agent, run, PlannerNote(note="here"))
        assert [run["name"] for run in amlog.ok("runs", "--json").json["runs"]] == [name]
        assert first_words(amlog.ok("runs").out) == ["run", name]
        assert amlog.ok("show", name).out.splitlines()[0].startswith(f"{name}   1 event")
        assert amlog.ok("show", name.split("/")[1], "--json").json_lines[0]["data"] == {"note": "here"}

    @pytest.mark.parametrize("name", ["a/b/c", "/b", "a/", "", "%ff"])
    def test_invalid_run_name_is_wrong_usage(self, samples: Amlog, name: str) -> None:
        assert "is not the name of a run" in samples.error("show", name, status=2)


class TestStats:
    def test_stats_counts_events_and_calls(self, samples: Amlog) -> None:
        result = samples.ok("stats", "--json").json
        ops = result["agents"]["ops-agent"]
        assert (ops["runs"], ops["events"], ops["tool_calls"], ops["tool_errors"], ops["open_calls"]) == (
            1,
            45,
            12,
            3,
            0,
        )
        assert ops["bytes"] == sum(map(len, sample_lines("demo.jsonl")[1:-1]))
        assert ops["types"]["thinking"] == 6
        assert result["total"]["events"] == 45 + 81
        assert samples.ok("stats", "--agent", "support", "--json").json["total"]["events"] == 81
        assert "total" in first_words(samples.ok("stats").out)

    def test_stats_counts_open_calls_with_duplicate_ids(self, amlog: Amlog) -> None:
        call, answer = ToolCall("1", "t"), ToolResult("1", "t", error_message="no")
        amlog.append("a", "r", call, call, answer, answer, answer, call)
        total = amlog.ok("stats", "--json").json["total"]
        assert (total["tool_calls"], total["tool_errors"], total["open_calls"]) == (3, 3, 1)


class TestChanges:
    def test_delete_removes_the_run(self, samples: Amlog) -> None:
        name = "ops-agent/2026-03-06-slow-checkout"
        assert samples.ok("delete", name, "--yes").out == f"✔ deleted {name}, 45 events\n"
        assert samples.error("delete", name, "--yes") == f"no run {name}: list the runs with amlog runs"
        assert len(samples.ok("runs", "--json").json["runs"]) == 5

    def test_delete_and_redact_require_confirmation(self, samples: Amlog) -> None:
        before = samples.ok("export", "--all").out
        assert "--yes" in samples.error("delete", "2026-03-06-slow-checkout", status=2)
        assert "--yes" in samples.error("redact", "2026-03-06-slow-checkout", "1", status=2)
        assert samples.ok("export", "--all").out == before

    def test_redact_removes_the_content_of_events(self, samples: Amlog) -> None:
        name = "2026-03-06-slow-checkout"
        ran = samples.ok("redact", name, "2", "4-6", "2", "--reason", "asked", "--yes", "--json")
        assert ran.json["seqs"] == [2, 4, 5, 6]
        assert (ran.json["version"], ran.json["changed"]) == (46, True)
        assert samples.ok("redact", name, "2", "--yes").out.startswith("✔ these events were already redacted in ")
        assert [line["type"] for line in samples.ok("show", name, "--json").json_lines[:6]].count("redacted") == 4
        assert samples.ok("verify", "--json").json["errors"] == 0

    def test_redact_and_delete_list_the_forks(self, amlog: Amlog) -> None:
        amlog.append("a", "r", *(UserMessage(message=text) for text in "wxyz"))
        amlog.append("a", "circle", UserMessage("x"), meta={"forked_from": {"agent": "a", "run": "circle", "seq": 1}})
        amlog.ok("fork", "r", "early", "--at", "2")
        amlog.ok("fork", "r", "later", "--at", "3")
        amlog.ok("fork", "later", "latest", "--at", "3")
        assert amlog.ok("redact", "r", "3", "--yes", "--json").json["forks"] == ["a/later", "a/latest"]
        assert "forks may still hold them: a/later, a/latest" in amlog.ok("redact", "r", "3", "--yes").out
        assert sorted(amlog.ok("delete", "r", "--yes", "--json").json["forks"]) == ["a/early", "a/later", "a/latest"]
        assert amlog.ok("delete", "latest", "--yes", "--json").json["forks"] == []

    @pytest.mark.parametrize("seq", ["x", "5-3", "-1", "1-", "1-9999999", "1.5"])
    def test_redact_refuses_an_invalid_seq(self, samples: Amlog, seq: str) -> None:
        samples.error("redact", "2026-03-06-slow-checkout", "--yes", "--", seq, status=2)

    def test_redact_refuses_a_missing_seq(self, samples: Amlog) -> None:
        assert "99" in samples.error("redact", "2026-03-06-slow-checkout", "99", "--yes")

    def test_compact_frees_disk_space(self, amlog: Amlog) -> None:
        amlog.append("a", "r", *(SystemMessage(message=f"{number}" * 5000) for number in range(100)))
        amlog.ok("delete", "r", "--yes")
        result = amlog.ok("compact", "--json").json
        assert result["after"] < result["before"] / 4
        assert amlog.ok("compact").out.startswith("✔ ")

    def test_compact_refuses_an_unsupported_store(self, amlog: Amlog) -> None:
        assert amlog.error("compact", "--store", "memory:") == "memory: stores cannot be compacted"


class TestBackends:
    def test_backends_lists_installed_backends(self, amlog: Amlog) -> None:
        installed = {backend["scheme"]: backend for backend in amlog.ok("backends", "--json").json}
        assert installed["sqlite"]["usable"]
        assert installed["memory"]["usable"]
        assert installed["sqlite"]["hint"] == "--store sqlite:///runs.db"
        assert installed["mongodb"]["hint"] == "--store mongodb://host/agents"
        assert re.search(r"sqlite: +✔ ready", amlog.ok("backends").out)

    def test_backends_fit_a_terminal_of_80_columns(self) -> None:
        lines = without_codes(run_on_terminal("backends", columns=80).out).splitlines()
        assert max(map(len, lines)) <= 80
        assert "mongodb+srv://host/agents" in "".join(lines)

    def test_backends_shows_an_import_error_and_a_hint(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = EntryPoint("mongodb", "no_such_module:backend", "agent_memory_log.backends")
        monkeypatch.setattr("agent_memory_log.cli.backends.installed_backends", lambda: {"mongodb": broken})
        (broken_backend,) = amlog.ok("backends", "--json").json
        assert not broken_backend["usable"]
        assert "no_such_module" in broken_backend["error"]
        assert broken_backend["hint"] == "pip install 'agent-memory-log[mongo]'"


class TestStore:
    def test_command_requires_a_store(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AMLOG_STORE")
        message = amlog.error("runs", status=2)
        assert "--store URL" in message
        assert "AMLOG_STORE" in message

    def test_store_option_overrides_the_environment(self, samples: Amlog) -> None:
        assert samples("runs", "--store", "memory:").err == "no runs\n"

    def test_commands_do_not_create_a_missing_file(self, amlog: Amlog) -> None:
        missing = amlog.folder / "missing.db"
        for command in (
            ["runs"],
            ["show", "a/b"],
            ["tail", "a/b"],
            ["stats"],
            ["verify"],
            ["expire"],
            ["compact"],
            ["export", "--all"],
        ):
            assert "no such file" in amlog.error(*command, "--store", f"sqlite:///{missing}")
        assert not missing.exists()

    def test_error_explains_an_invalid_store_url(self, amlog: Amlog) -> None:
        assert "no installed backend serves postgres: URLs" in amlog.error("runs", "--store", "postgres://host/db")
        assert "not a store URL" in amlog.error("runs", "--store", "runs.db")

    def test_command_refuses_a_file_that_is_no_database(self, amlog: Amlog) -> None:
        amlog.error("runs", "--store", f"sqlite:///{amlog.file('x.db', 'not a database' * 100)}")
        amlog.error("runs", "--store", f"sqlite:///{amlog.folder}")


def test_store_option_works_before_the_command(samples: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMLOG_STORE", "sqlite:///nowhere.db")
    before = samples.ok("--store", samples.url, "stats", "--json")
    assert before.json == samples.ok("stats", "--store", samples.url, "--json").json
    assert os.environ["AMLOG_STORE"] == "sqlite:///nowhere.db"
