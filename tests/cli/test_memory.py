"""Derived memory on the command line: each command does what its help says, in plain text and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_memory_log import AssistantMessage, ToolCall, ToolResult, UserMessage, open_sync_store
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Preference,
    Principal,
    Source,
    SyncMemory,
    SyncMemoryClient,
)
from tests.amlog import Amlog, run, run_on_terminal, without_codes
from tests.models.model_server import ModelServer, Reply, Request, says_json

WHOSE = ("--tenant", "acme", "--user", "42")
SAID = "Hello. Please answer in German. Call me Kim."


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


@pytest.fixture
def learnt(amlog: Amlog) -> Amlog:
    """A store with a run that was learnt from: two preferences."""
    _append_run(amlog)
    amlog.ok("memory", "derive", "support/run 1", *WHOSE)
    return amlog


def _append_run(amlog: Amlog, *more: UserMessage) -> None:
    amlog.append(
        "support",
        "run 1",
        UserMessage(SAID),
        AssistantMessage("Hello."),
        UserMessage("x"),
        AssistantMessage("y"),
        *more,
    )


class _Subject:
    """The memory behind the command line, to put in what no command would."""

    def __init__(self, amlog: Amlog) -> None:
        self._url = amlog.url

    def __enter__(self) -> SyncMemory:
        self._store = open_sync_store(self._url)
        return SyncMemoryClient(self._store).of(Principal("acme", {"user": "42", "workspace": "ops"}))

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _keys(amlog: Amlog, *options: str) -> list[str]:
    return [one["key"] for one in amlog.ok("memory", "list", *WHOSE, *options, "--json").json]


class TestWhose:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ((), "--tenant"),
            (("--user", "42"), "--tenant"),
            (("--tenant", "acme"), "no user or scope"),
            (("--tenant", "", "--user", "42"), "tenant"),
            (("--tenant", "acme", "--user", ""), "id"),
            (("--tenant", "acme", "--scope", "workspace"), "NAME=ID"),
            (("--tenant", "acme", "--scope", "=ops"), "NAME=ID"),
            (("--tenant", "acme", "--scope", "workspace="), "NAME=ID"),
            (("--tenant", "acme", "--user", "42", "--scope", "user=43"), "'user' is given twice"),
        ],
    )
    def test_it_must_be_said(self, learnt: Amlog, options: tuple[str, ...], said: str) -> None:
        assert said in learnt.error("memory", "list", *options, status=2)

    def test_one_tenant_or_user_never_sees_another(self, learnt: Amlog) -> None:
        assert _keys(learnt) == ["language", "preferred_name"]
        for whose in (("--tenant", "other", "--user", "42"), ("--tenant", "acme", "--user", "43")):
            assert learnt.ok("memory", "list", *whose, "--json").json == []
        ran = learnt("memory", "list", "--tenant", "acme", "--scope", "workspace=42")
        assert (ran.status, ran.out, ran.err) == (0, "", "no active memories of workspace 42 of acme\n")

    def test_several_scopes_are_a_column(self, learnt: Amlog) -> None:
        with _Subject(learnt) as me:
            me.remember(key="region", value="eu", scope="workspace")
        ran = learnt.ok("memory", "list", *WHOSE, "--scope", "workspace=ops")
        assert ran.out.splitlines()[0].startswith("scope")
        assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["user", "user", "workspace"]
        assert "region" not in learnt.ok("memory", "list", *WHOSE).out
        assert learnt.ok("memory", "show", "region", "--tenant", "acme", "--scope", "workspace=ops").out

    def test_subjects_lists_them(self, learnt: Amlog) -> None:
        assert learnt.ok("memory", "subjects", "--json").json == [{"tenant": "acme", "scope": "user", "id": "42"}]
        assert learnt.ok("memory", "subjects").out.splitlines()[1].split() == ["acme", "user", "42"]
        assert learnt("memory", "subjects", "--tenant", "other").err == "no subjects\n"

    def test_a_missing_file_is_no_empty_memory(self, amlog: Amlog) -> None:
        for command in ("list", "stats", "rebuild"):
            assert "no such file" in amlog.error("memory", command, *WHOSE)
        assert not (amlog.folder / "runs.db").exists()


class TestDerive:
    def test_what_is_new_is_learnt_once(self, amlog: Amlog) -> None:
        _append_run(amlog)
        ran = amlog.ok("memory", "derive", "support/run 1", *WHOSE)
        assert ran.out.splitlines()[0].startswith("✔ support/run%201: 2 written   #1 to #")
        assert "+ written preferred_name: Kim   support/run%201#1" in ran.out
        assert amlog.ok("memory", "derive", "run 1", *WHOSE).out == "✔ support/run%201: no new events to read\n"
        amlog.append("support", "run 1", UserMessage("Call me Robin."))
        (report,) = amlog.ok("memory", "derive", "run 1", *WHOSE, "--json").json
        assert (report["agent"], report["run"], report["status"]) == ("support", "run 1", "ok")
        assert (report["after"], report["position"], report["model_calls"]) == (3, 5, 0)
        (outcome,) = report["outcomes"]
        assert (outcome["action"], outcome["record"]["value"]) == ("written", "Robin")
        assert outcome["superseded"] in outcome["record"]["supersedes"]

    def test_again_asks_about_every_run(self, learnt: Amlog) -> None:
        ran = learnt.ok("memory", "derive", "--again", *WHOSE, "--json")
        assert [one["action"] for one in ran.json[0]["outcomes"]] == ["unchanged", "unchanged"]
        assert "2 unchanged" in learnt.ok("memory", "derive", "run 1", "--again", *WHOSE).out
        ran = learnt("memory", "derive", "--again", "--tenant", "acme", "--user", "43")
        assert (ran.status, ran.err) == (0, "no run was read before: give the RUNs to learn from\n")

    def test_a_run_must_be_named_and_be_there(self, learnt: Amlog) -> None:
        assert "give one or more RUNs" in learnt.error("memory", "derive", *WHOSE, status=2)
        assert "no run" in learnt.error("memory", "derive", "missing", *WHOSE)

    def test_a_run_that_switches_memory_off_is_skipped(self, amlog: Amlog) -> None:
        amlog.append("a", "off", *[UserMessage(SAID), AssistantMessage("x")] * 2, meta={"memory": False})
        assert amlog.ok("memory", "derive", "off", *WHOSE).out == "- a/off: skipped: memory_off\n"

    def test_a_secret_is_blocked_and_never_shown(self, amlog: Amlog) -> None:
        secret = "sk-proj-" + "A1b2C3d4" * 5
        amlog.append("a", "r", UserMessage(f"Call me {secret}."), *[AssistantMessage("x"), UserMessage("y")] * 2)
        ran = amlog.ok("memory", "derive", "r", *WHOSE)
        assert "blocked" in ran.out or "nothing to remember" in ran.out
        assert secret not in ran.out + amlog.ok("memory", "list", *WHOSE, "--json").out

    def test_a_model_can_be_asked(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        _append_run(amlog)

        def answer(request: Request) -> Reply:
            if any('"episodes"' in message["content"] for message in request.body["messages"][:-1]):
                return says_json({"episodes": []})
            return says_json({"facts": [{"key": "name", "value": "Kim", "messages": [1]}], "preferences": []})

        with ModelServer(answer) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            (report,) = amlog.ok("memory", "derive", "run 1", "--model", *WHOSE, "--json").json
        assert (report["model_calls"], report["usage"]["total_tokens"]) == (2, 30)
        assert [one["record"]["kind"] for one in report["outcomes"]] == ["fact"]

    def test_a_model_that_fails_is_a_status_and_loses_nothing(
        self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _append_run(amlog)
        with ModelServer([Reply(status=400)]) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            ran = amlog("memory", "derive", "run 1", "--model", *WHOSE)
        assert (ran.status, ran.out, ran.err) == (1, "✘ support/run%201: stopped: llm_unavailable\n", "")
        assert "2 written" in amlog.ok("memory", "derive", "run 1", *WHOSE).out

    def test_no_key_is_said(self, learnt: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        assert "OPENAI_API_KEY" in learnt.error("memory", "derive", "run 1", "--model", *WHOSE)


class TestLooking:
    def test_list_shows_what_there_is_to_know(self, learnt: Amlog) -> None:
        title, language, name = learnt.ok("memory", "list", *WHOSE).out.splitlines()
        assert title.split() == ["kind", "key", "memory", "sure", "stars", "days", "from"]
        assert language.split()[:3] == ["preference", "language", "german"]
        for line in (language, name):
            assert "★★★★☆" in line
            assert " 180 " in line
            assert line.endswith("support/run%201#1")

    def test_list_json_has_every_field(self, learnt: Amlog) -> None:
        record = learnt.ok("memory", "list", *WHOSE, "--json").json[1]
        assert record.keys() == {
            *("id", "kind", "scope", "key", "value", "text", "confidence", "importance", "stars", "source", "evidence"),
            *("entities", "tags", "links", "supersedes", "valid_from", "valid_until", "ttl_left_days", "created"),
            *("updated", "status", "data", "memory_type"),
        }
        assert record["source"] == {
            "kind": "run",
            "id": "support/run 1",
            "reliability": record["source"]["reliability"],
        }
        assert record["evidence"][0] == {
            "name": "support/run%201#1",
            "agent": "support",
            "run": "run 1",
            "seq": 1,
            "item": "rules/2",
        }
        assert (record["value"], record["data"]) == ("Kim", {"key": "preferred_name", "value": "Kim"})
        assert record["ttl_left_days"] == 180

    def test_list_by_kind_status_and_day(self, learnt: Amlog) -> None:
        before = learnt.ok("memory", "list", *WHOSE, "--json").json[0]["created"]
        with _Subject(learnt) as me:
            me.write([Candidate(Episode("discovery"), text="The build takes an hour.", source=Source("user"))])
        learnt.append("support", "run 1", UserMessage("Call me Robin."))
        learnt.ok("memory", "derive", "run 1", *WHOSE)
        (episode,) = learnt.ok("memory", "list", *WHOSE, "--kind", "episode", "--json").json
        assert (episode["text"], episode["key"], episode["ttl_left_days"]) == ("The build takes an hour.", "", None)
        assert "discovery" in learnt.ok("memory", "list", *WHOSE, "--kind", "episode").out
        (old,) = learnt.ok("memory", "list", *WHOSE, "--status", "superseded", "--json").json
        assert old["value"] == "Kim"
        then = learnt.ok("memory", "list", *WHOSE, "--as-of", before, "--json").json
        assert [(one["value"], one["status"]) for one in then][1] == ("Kim", "active")
        assert len(then) == 2
        assert "give one of" in learnt.error("memory", "list", *WHOSE, "--status", "gone", status=2)
        assert "--as-of" in learnt.error("memory", "list", *WHOSE, "--as-of", "yesterday", status=2)
        error = learnt.error("memory", "list", *WHOSE, "--as-of", before, "--status", "expired", status=2)
        assert "--status" in error

    def test_show_by_key_and_by_id(self, learnt: Amlog) -> None:
        shown = learnt.ok("memory", "show", " Preferred_Name ", *WHOSE)
        assert shown.out.startswith("preferred_name: Kim   preference, scope user\n")
        assert "★★★★☆" in shown.out
        assert "180 days left" in shown.out
        record = learnt.ok("memory", "show", "preferred_name", *WHOSE, "--json").json
        assert learnt.ok("memory", "show", *WHOSE, "--", record["id"]).out == shown.out
        assert "no memory 'nothing' of user 42 of acme" in learnt.error("memory", "show", "nothing", *WHOSE)
        assert "no memory" in learnt.error("memory", "show", "preferred_name", *WHOSE, "--kind", "fact")
        assert "no memory" in learnt.error("memory", "show", *WHOSE, "--kind", "fact", "--", record["id"])

    def test_an_id_finds_what_is_not_active_any_more(self, learnt: Amlog) -> None:
        record = learnt.ok("memory", "show", "preferred_name", *WHOSE, "--json").json
        learnt.append("support", "run 1", UserMessage("Call me Robin."))
        learnt.ok("memory", "derive", "run 1", *WHOSE)
        assert learnt.ok("memory", "show", *WHOSE, "--", record["id"]).out.startswith(
            "preferred_name: Kim   preference, scope user, superseded\n"
        )

    def test_search(self, learnt: Amlog) -> None:
        hits = learnt.ok("memory", "search", "preferred", "name", *WHOSE, "--json").json
        (hit,) = [one for one in hits if one["record"] and one["record"]["value"] == "Kim"]
        assert [one["score"] for one in hits] == sorted((one["score"] for one in hits), reverse=True)
        assert 0 < hit["score"] <= 1
        assert hit["matched_by"]
        assert (hit["id"], hit["kind"]) == (hit["record"]["id"], "preference")
        assert hit["evidence"] == hit["record"]["evidence"]
        assert learnt.ok("memory", "search", "preferred name", *WHOSE).out.splitlines()[0].split() == [
            "score",
            "kind",
            "memory",
            "from",
        ]
        assert len(learnt.ok("memory", "search", "preferred language name", "-k", "1", *WHOSE, "--json").json) == 1
        assert learnt("memory", "search", "zebra", *WHOSE).err == "no matches\n"

    def test_explain_cites_the_log(self, learnt: Amlog) -> None:
        out = learnt.ok("memory", "explain", "preferred_name", *WHOSE).out
        assert "source: run support/run 1" in out
        assert f"  support/run%201#1  user: {SAID}\n" in out
        found = learnt.ok("memory", "explain", "preferred_name", *WHOSE, "--json").json
        assert found["evidence"][0]["text"] == f"user: {SAID}"
        assert found["record"]["value"] == "Kim"
        assert found["events"]
        assert "no memory" in learnt.error("memory", "explain", "nothing", *WHOSE)

    def test_history_has_every_value(self, learnt: Amlog) -> None:
        learnt.append("support", "run 1", UserMessage("Call me Robin."))
        learnt.ok("memory", "derive", "run 1", *WHOSE)
        lines = learnt.ok("memory", "history", "preferred_name", *WHOSE).out.splitlines()
        assert ["Kim" in lines[1], "superseded" in lines[1]] == [True, True]
        assert ["Robin" in lines[2], "active" in lines[2]] == [True, True]
        old, new = learnt.ok("memory", "history", "preferred_name", *WHOSE, "--json").json
        assert (old["record"]["value"], old["closed_at"] is None) == ("Kim", False)
        assert (new["record"]["value"], new["closed_at"]) == ("Robin", None)
        assert learnt("memory", "history", "x", *WHOSE).err == "the key 'x' of user 42 of acme has no values\n"

    def test_stats_count(self, learnt: Amlog) -> None:
        found = learnt.ok("memory", "stats", *WHOSE, "--json").json
        assert (found["active"], found["runs"]) == ({"preference": 2}, 1)
        assert "active preference" in learnt.ok("memory", "stats", *WHOSE).out

    def test_what_was_said_cannot_move_the_cursor(self, amlog: Amlog) -> None:
        with _Subject(amlog) as me:
            me.remember(Preference("style", "\x1b[2Jbold\u202e"))
        for command in (("list",), ("show", "style"), ("explain", "style"), ("history", "style"), ("search", "style")):
            out = amlog.ok("memory", *command, *WHOSE).out
            assert "\x1b" not in out
            assert "\\x1b[2Jbold\\u202e" in out
            assert "\u202e" not in amlog.ok("memory", *command, *WHOSE, "--json").out


class TestForget:
    def test_it_asks_and_off_a_terminal_must_be_told(self, learnt: Amlog) -> None:
        error = run("memory", "forget", "preferred_name", *WHOSE, AMLOG_STORE=learnt.url)
        assert (error.status, error.out) == (2, "")
        assert "Forget 'preferred_name', 1 value, of user 42 of acme permanently?" in error.err
        ran = run_on_terminal("memory", "forget", "preferred_name", *WHOSE, answer="n\n", AMLOG_STORE=learnt.url)
        assert ran.status == 1
        assert "cancelled; nothing was changed" in ran.out
        assert _keys(learnt) == ["language", "preferred_name"]
        ran = run_on_terminal("memory", "forget", "preferred_name", *WHOSE, answer="y\n", AMLOG_STORE=learnt.url)
        assert ran.status == 0
        assert "forgot 1 memory" in without_codes(ran.out)
        assert _keys(learnt) == ["language"]

    def test_a_key_is_every_value_and_is_not_learnt_again(self, learnt: Amlog) -> None:
        learnt.append("support", "run 1", UserMessage("Call me Robin."))
        learnt.ok("memory", "derive", "run 1", *WHOSE)
        assert learnt.ok("memory", "forget", "preferred_name", "-y", *WHOSE).out == "✔ forgot 2 memories\n"
        assert (
            learnt.ok("memory", "derive", "--again", *WHOSE, "--json").json[0]["outcomes"][-1]["action"] == "forgotten"
        )
        assert learnt.ok("memory", "history", "language", *WHOSE).out
        assert learnt.ok("memory", "rebuild", *WHOSE, "--json").json["equal"] is True
        assert _keys(learnt) == ["language"]

    def test_an_id_is_that_one(self, learnt: Amlog) -> None:
        with _Subject(learnt) as me:
            me.write([Candidate(Episode("discovery"), text="One."), Candidate(Episode("discovery"), text="Two.")])
        one, _ = learnt.ok("memory", "list", *WHOSE, "--kind", "episode", "--json").json
        report = learnt.ok("memory", "forget", "-y", *WHOSE, "--json", "--", one["id"]).json
        assert report["records"] == 1
        assert [one["text"] for one in learnt.ok("memory", "list", *WHOSE, "--kind", "episode", "--json").json] == [
            "Two."
        ]

    def test_evidence_goes_too_when_asked(self, learnt: Amlog) -> None:
        ran = learnt.ok("memory", "forget", "preferred_name", "-y", "--evidence", *WHOSE)
        assert ran.out == "✔ forgot 1 memory, and redacted 1 event of runs\n"
        assert SAID not in learnt.ok("show", "support/run 1", "--full").out

    def test_a_sweep_redacts_what_holds_the_value(self, learnt: Amlog) -> None:
        learnt.append("support", "later", UserMessage("It is Kim again."), UserMessage("Call Kim's mother."))
        learnt.ok("memory", "link", "later", *WHOSE)
        command = ("memory", "forget", "preferred_name", *WHOSE)
        assert (
            learnt.ok(*command, "--dry-run", "--sweep").out == "✔ would forget 1 memory, and redact 3 events of runs\n"
        )
        assert learnt.ok(*command, "--dry-run", "--evidence").out.endswith(
            "  events of linked runs that still contain the value: support/later#1, support/later#2\n"
        )
        assert "redact 3 events" in learnt.error(*command, "-y", "--sweep", "--sweep-limit", "2")
        assert "need a RECORD" in learnt.error("memory", "forget", "--all", "--sweep", "-y", *WHOSE, status=2)
        assert _keys(learnt) == ["language", "preferred_name"]
        found = learnt.ok(*command, "-y", "--evidence", "--json").json
        assert [place["name"] for place in found["elsewhere"]] == ["support/later#1", "support/later#2"]
        assert (found["records"], found["evidence"]) == (1, 1)

    def test_other_memories_that_hold_the_value_are_named(self, learnt: Amlog) -> None:
        with _Subject(learnt) as me:
            me.remember(key="drink", value="Kim likes tea")
        ran = learnt.ok("memory", "forget", "preferred_name", "-y", "--sweep", *WHOSE)
        assert "  other memories that still contain the value: " in ran.out

    def test_everything(self, learnt: Amlog) -> None:
        assert learnt.ok("memory", "forget", "--all", "-y", *WHOSE).out == "✔ forgot 2 memories\n"
        assert _keys(learnt) == []
        assert learnt.ok("memory", "derive", "run 1", *WHOSE).status == 0
        assert _keys(learnt) == []

    def test_what_is_not_known(self, learnt: Amlog) -> None:
        assert "no memory 'x'" in learnt.error("memory", "forget", "x", "-y", *WHOSE)
        for wrong in ((), ("x", "--all"), ("--all", "--kind", "fact")):
            assert "give either" in learnt.error("memory", "forget", *wrong, "-y", *WHOSE, status=2)
        assert _keys(learnt) == ["language", "preferred_name"]


class TestUpkeep:
    def test_cleanup_archives_what_is_old_and_matters_little(self, learnt: Amlog) -> None:
        with _Subject(learnt) as me:
            me.write([Candidate(Episode("discovery"), text="Small.", importance=0.1)])
            me.write([Candidate(Episode("discovery"), text="Large.", importance=0.9)])
        assert learnt.ok("memory", "cleanup", *WHOSE).out == "✔ archived 0 memories, marked 0 memories as expired\n"
        ran = learnt.ok("memory", "cleanup", "--older-than", "0", *WHOSE, "--json")
        assert [one["text"] for one in ran.json["archived"]] == ["Small."]
        assert ran.json["expired"] == []
        archived = learnt.ok("memory", "list", "--status", "archived", *WHOSE, "--json").json
        assert [one["text"] for one in archived] == ["Small."]
        ran = learnt.ok("memory", "cleanup", "--older-than", "0", "--below", "6", *WHOSE)
        assert ran.out.startswith("✔ archived 1 memory, marked 0 memories as expired\n")
        assert "Large." in ran.out
        assert "--below" in learnt.error("memory", "cleanup", "--below", "7", *WHOSE, status=2)

    def test_rebuild_gives_the_same(self, learnt: Amlog) -> None:
        ran = learnt.ok("memory", "rebuild", *WHOSE)
        assert ran.out.startswith("✔ 2 memories from ")
        assert ran.out.endswith(", equal to the stored memories\n")


class TestInAndOut:
    def test_what_is_exported_can_be_taken_in(self, learnt: Amlog) -> None:
        data = learnt.ok("memory", "export", *WHOSE).out
        assert json.loads(data.splitlines()[0])["format"].startswith("agent-memory-log-records/")
        file = learnt.file("memory.jsonl", data)
        other = ("--tenant", "acme", "--user", "43")
        ran = learnt.ok("memory", "import", file, *other)
        assert ran.out.startswith("✔ 2 written\n")
        report = learnt.ok("memory", "import", file, *other, "--json").json
        assert (report["status"], [one["action"] for one in report["outcomes"]]) == ("ok", ["unchanged"] * 2)
        again, first = (json.loads(text.splitlines()[0]) for text in (learnt.ok("memory", "export", *other).out, data))
        assert (again["format"], again["records"]) == (first["format"], first["records"])
        assert len(learnt.ok("memory", "list", *other, "--json").json) == 2

    def test_from_standard_input_into_a_new_store(self, learnt: Amlog) -> None:
        data = learnt.ok("memory", "export", *WHOSE).out
        url = f"sqlite:///{learnt.folder / 'new.db'}"
        ran = run("memory", "import", "-", *WHOSE, stdin=data.encode(), AMLOG_STORE=url)
        assert (ran.status, ran.err) == (0, "")
        assert run("memory", "export", *WHOSE, AMLOG_STORE=url).out.count("\n") == 3

    def test_a_secret_in_a_file_is_blocked(self, learnt: Amlog) -> None:
        _, records = learnt.ok("memory", "export", *WHOSE).out.split("\n", 1)
        header = '{"format":"agent-memory-log-records/1"}\n'  # by hand, without a digest
        data = header + records.replace("Kim", "ghp_" + "A1b2C3d4" * 4 + "A1b2")
        ran = learnt.ok("memory", "import", learnt.file("m.jsonl", data), "--tenant", "acme", "--user", "43")
        assert "1 written, 1 blocked" in ran.out
        assert "ghp_" not in ran.out

    def test_what_is_no_export_is_refused_whole(self, learnt: Amlog) -> None:
        data = learnt.ok("memory", "export", *WHOSE).out
        whose = ("--tenant", "acme", "--user", "43")
        for wrong in ("x\n", "{}\n", data + "{}\n", data + "x\n"):
            assert "line" in learnt.error("memory", "import", learnt.file("m.jsonl", wrong), *whose)
        assert learnt.error("memory", "import", "missing.jsonl", *whose) == "missing.jsonl: No such file or directory"
        assert learnt.ok("memory", "list", *whose, "--json").json == []


def test_on_a_terminal_it_is_laid_out(learnt: Amlog) -> None:
    shown = run_on_terminal("memory", "list", *WHOSE, columns=120, AMLOG_STORE=learnt.url)
    assert shown.status == 0
    assert "\x1b[" in shown.out
    assert "★★★★☆" in shown.out
    narrow = without_codes(run_on_terminal("memory", "list", *WHOSE, columns=60, AMLOG_STORE=learnt.url).out)
    assert "★★★★☆  preferred_name  Kim\n" in narrow
    assert "180 days left" in narrow
    told = without_codes(run_on_terminal("memory", "history", "language", *WHOSE, AMLOG_STORE=learnt.url).out)
    assert "german" in told
    assert "active, support/run%201#1" in told
    plain = run("memory", "list", *WHOSE, AMLOG_STORE=learnt.url, PYTHONIOENCODING="ascii")
    assert "****." in plain.out


def test_every_event_that_a_memory_rests_on_is_readable(amlog: Amlog) -> None:
    call = ToolCall("c1", "book", payload_json='{"seat": "1"}')
    amlog.append("a/b", "r", call, ToolResult("c1", "book", error_message="seat must be a number"))
    with _Subject(amlog) as me:
        evidence = (Evidence("a/b", "r", 2), Evidence("a/b", "r", 1), Evidence("a/b", "gone", 1))
        me.write([Candidate(Episode("error"), text="A seat is a number.", evidence=evidence)])
        me.link_run("a/b", "r")
    (episode,) = amlog.ok("memory", "list", *WHOSE, "--json").json
    assert "a%2Fb/r#2 +2" in amlog.ok("memory", "list", *WHOSE).out
    out = amlog.ok("memory", "explain", *WHOSE, "--", episode["id"]).out
    assert "  a%2Fb/r#2  tool_result: book: seat must be a number\n" in out
    assert '  a%2Fb/r#1  tool_call: book {"seat": "1"}\n' in out
    assert "  a%2Fb/gone#1  (not linked to this subject)\n" in out
