"""Tests that each ``amlog memory`` command does what its help describes, in plain text and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_memory_log import AssistantMessage, ToolCall, ToolResult, UserMessage, open_sync_store
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Fact,
    Link,
    Preference,
    Principal,
    Source,
    SyncMemory,
    SyncMemoryClient,
)
from tests.amlog import Amlog, first_words, run, run_on_terminal, without_codes
from tests.models.model_server import ModelServer, Reply, Request, says_json

OWNER = ("--tenant", "acme", "--user", "42")
MESSAGE = "Hello. Please answer in German. Call me Kim."


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


@pytest.fixture
def derived(amlog: Amlog) -> Amlog:
    """Return a store with two preferences that were derived from a run."""
    _append_run(amlog)
    amlog.ok("memory", "derive", "support/run 1", *OWNER)
    return amlog


def _append_run(amlog: Amlog, *more: UserMessage) -> None:
    amlog.append(
        "support",
        "run 1",
        UserMessage(MESSAGE),
        AssistantMessage("Hello."),
        UserMessage("x"),
        AssistantMessage("y"),
        *more,
    )


class _Subject:
    """The memory of the user, for a ``with`` block. A test writes records with it that no command can write."""

    def __init__(self, amlog: Amlog) -> None:
        self._url = amlog.url

    def __enter__(self) -> SyncMemory:
        self._store = open_sync_store(self._url)
        return SyncMemoryClient(self._store).of(Principal("acme", {"user": "42", "workspace": "ops"}))

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _keys(amlog: Amlog, *options: str) -> list[str]:
    return [record["key"] for record in amlog.ok("memory", "list", *OWNER, *options, "--json").json]


class TestPrincipal:
    @pytest.mark.parametrize(
        ("options", "expected"),
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
    def test_commands_require_a_valid_principal(self, derived: Amlog, options: tuple[str, ...], expected: str) -> None:
        assert expected in derived.error("memory", "list", *options, status=2)

    def test_principals_see_only_their_own_memories(self, derived: Amlog) -> None:
        assert _keys(derived) == ["language", "preferred_name"]
        for other in (("--tenant", "other", "--user", "42"), ("--tenant", "acme", "--user", "43")):
            assert derived.ok("memory", "list", *other, "--json").json == []
        ran = derived("memory", "list", "--tenant", "acme", "--scope", "workspace=42")
        assert (ran.status, ran.out, ran.err) == (0, "", "no active memories of workspace 42 of acme\n")
        ran = derived("memory", "list", *OWNER, "--kind", "facts")
        assert ran.err == "no active memories of the kind facts of user 42 of acme\n"

    def test_list_shows_a_scope_column_for_several_scopes(self, derived: Amlog) -> None:
        with _Subject(derived) as me:
            me.remember(key="region", value="eu", scope="workspace")
        ran = derived.ok("memory", "list", *OWNER, "--scope", "workspace=ops")
        assert ran.out.splitlines()[0].startswith("scope")
        assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["user", "user", "workspace"]
        assert "region" not in derived.ok("memory", "list", *OWNER).out
        assert derived.ok("memory", "show", "region", "--tenant", "acme", "--scope", "workspace=ops").out

    def test_subjects_lists_all_subjects(self, derived: Amlog) -> None:
        assert derived.ok("memory", "subjects", "--json").json == [{"tenant": "acme", "scope": "user", "id": "42"}]
        assert derived.ok("memory", "subjects").out.splitlines()[1].split() == ["acme", "user", "42"]
        assert derived("memory", "subjects", "--tenant", "other").err == "no subjects\n"

    def test_commands_refuse_a_missing_file(self, amlog: Amlog) -> None:
        for command in ("list", "stats", "rebuild"):
            assert "no such file" in amlog.error("memory", command, *OWNER)
        assert not (amlog.folder / "runs.db").exists()


class TestDerive:
    def test_derive_reads_new_events_once(self, amlog: Amlog) -> None:
        _append_run(amlog)
        ran = amlog.ok("memory", "derive", "support/run 1", *OWNER)
        assert ran.out.splitlines()[0].startswith("✔ support/run%201: 2 written   #1 to #")
        assert "+ written preferred_name: Kim   support/run%201#1" in ran.out
        assert amlog.ok("memory", "derive", "run 1", *OWNER).out == (
            "✔ support/run%201: nothing to read until more messages arrive (1 event)\n"
        )
        amlog.append("support", "run 1", UserMessage("Call me Robin."))
        (report,) = amlog.ok("memory", "derive", "run 1", *OWNER, "--json").json
        assert (report["agent"], report["run"], report["status"]) == ("support", "run 1", "ok")
        assert (report["after"], report["position"], report["model_calls"]) == (3, 5, 0)
        (outcome,) = report["outcomes"]
        assert (outcome["action"], outcome["record"]["value"]) == ("written", "Robin")
        assert outcome["superseded"] in outcome["record"]["supersedes"]

    def test_derive_again_reads_all_linked_runs(self, derived: Amlog) -> None:
        ran = derived.ok("memory", "derive", "--again", *OWNER, "--json")
        assert [outcome["action"] for outcome in ran.json[0]["outcomes"]] == ["unchanged", "unchanged"]
        assert "2 unchanged" in derived.ok("memory", "derive", "run 1", "--again", *OWNER).out
        ran = derived("memory", "derive", "--again", "--tenant", "acme", "--user", "43")
        assert (ran.status, ran.err) == (0, "no run was read before: give the RUNs to learn from\n")

    def test_derive_says_that_events_wait(self, amlog: Amlog) -> None:
        amlog.append("support", "short", UserMessage(MESSAGE), AssistantMessage("Hello."))
        out = amlog.ok("memory", "derive", "support/short", *OWNER).out
        assert "nothing to read until more messages arrive (2 events)" in out
        (report,) = amlog.ok("memory", "derive", "support/short", *OWNER, "--json").json
        assert (report["status"], report["position"], report["waiting"]) == ("ok", 0, 2)

    def test_derive_requires_an_existing_run(self, derived: Amlog) -> None:
        assert "give one or more RUNs" in derived.error("memory", "derive", *OWNER, status=2)
        assert "no run" in derived.error("memory", "derive", "missing", *OWNER)

    def test_derive_skips_a_run_with_memory_off(self, amlog: Amlog) -> None:
        amlog.append("a", "off", *[UserMessage(MESSAGE), AssistantMessage("x")] * 2, meta={"memory": False})
        assert amlog.ok("memory", "derive", "off", *OWNER).out == "- a/off: skipped: memory_off\n"

    def test_derive_blocks_secrets_and_never_prints_them(self, amlog: Amlog) -> None:
        secret = "sk-proj-" + "A1b2C3d4" * 5
        amlog.append("a", "r", UserMessage(f"Call me {secret}."), *[AssistantMessage("x"), UserMessage("y")] * 2)
        ran = amlog.ok("memory", "derive", "r", *OWNER)
        assert "blocked" in ran.out or "nothing to remember" in ran.out
        assert secret not in ran.out + amlog.ok("memory", "list", *OWNER, "--json").out

    def test_derive_uses_a_model_on_request(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        _append_run(amlog)

        def answer(request: Request) -> Reply:
            if any('"episodes"' in message["content"] for message in request.body["messages"][:-1]):
                return says_json({"episodes": []})
            return says_json({"facts": [{"key": "name", "value": "Kim", "messages": [1]}], "preferences": []})

        with ModelServer(answer) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            (report,) = amlog.ok("memory", "derive", "run 1", "--model", *OWNER, "--json").json
        assert (report["model_calls"], report["usage"]["total_tokens"]) == (2, 30)
        assert [outcome["record"]["kind"] for outcome in report["outcomes"]] == ["fact"]

    def test_failed_model_sets_the_status_and_loses_nothing(
        self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _append_run(amlog)
        with ModelServer([Reply(status=400)]) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            ran = amlog("memory", "derive", "run 1", "--model", *OWNER)
        assert (ran.status, ran.out, ran.err) == (
            1,
            "✘ support/run%201: stopped: llm_unavailable   the model's server answered 400: Error code: 400\n",
            "",
        )
        assert "2 written" in amlog.ok("memory", "derive", "run 1", *OWNER).out

    def test_derive_names_the_missing_api_key(self, derived: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        assert "OPENAI_API_KEY" in derived.error("memory", "derive", "run 1", "--model", *OWNER)


def _set_days(amlog: Amlog, days: int) -> None:
    """Give the preferred name an end."""
    with _Subject(amlog) as me:
        record = me.get(key="preferred_name")
        assert record is not None
        me.update(record.id, ttl_days=days)


class TestReading:
    def test_list_shows_confidence_stars_days_and_source(self, derived: Amlog) -> None:
        _set_days(derived, 180)
        header, language, name = derived.ok("memory", "list", *OWNER).out.splitlines()
        assert header.split() == ["kind", "key", "memory", "sure", "stars", "days", "from"]
        assert language.split()[:3] == ["preference", "language", "german"]
        for line in (language, name):
            assert "★★★★☆" in line
            assert line.endswith("support/run%201#1")
        assert " 180 " in name
        assert " - " in language

    def test_list_json_has_every_field(self, derived: Amlog) -> None:
        record = derived.ok("memory", "list", *OWNER, "--json").json[1]
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
        assert record["ttl_left_days"] is None
        _set_days(derived, 180)
        assert derived.ok("memory", "list", *OWNER, "--json").json[1]["ttl_left_days"] == 180

    def test_list_filters_by_kind_status_and_time(self, derived: Amlog) -> None:
        before = derived.ok("memory", "list", *OWNER, "--json").json[0]["created"]
        with _Subject(derived) as me:
            me.write([Candidate(Episode("discovery"), text="The build takes an hour.", source=Source("user"))])
        derived.append("support", "run 1", UserMessage("Call me Robin."))
        derived.ok("memory", "derive", "run 1", *OWNER)
        (episode,) = derived.ok("memory", "list", *OWNER, "--kind", "episode", "--json").json
        assert (episode["text"], episode["key"], episode["ttl_left_days"]) == ("The build takes an hour.", "", None)
        assert "discovery" in derived.ok("memory", "list", *OWNER, "--kind", "episode").out
        (old,) = derived.ok("memory", "list", *OWNER, "--status", "superseded", "--json").json
        assert old["value"] == "Kim"
        then = derived.ok("memory", "list", *OWNER, "--as-of", before, "--json").json
        assert [(record["value"], record["status"]) for record in then][1] == ("Kim", "active")
        assert len(then) == 2
        assert "give one of" in derived.error("memory", "list", *OWNER, "--status", "gone", status=2)
        assert "--as-of" in derived.error("memory", "list", *OWNER, "--as-of", "yesterday", status=2)
        error = derived.error("memory", "list", *OWNER, "--as-of", before, "--status", "expired", status=2)
        assert "--status" in error

    def test_show_finds_a_record_by_key_or_id(self, derived: Amlog) -> None:
        _set_days(derived, 180)
        output = derived.ok("memory", "show", " Preferred_Name ", *OWNER)
        assert output.out.startswith("preferred_name: Kim   preference, scope user\n")
        assert "★★★★☆" in output.out
        assert "180 days left" in output.out
        record = derived.ok("memory", "show", "preferred_name", *OWNER, "--json").json
        assert derived.ok("memory", "show", *OWNER, "--", record["id"]).out == output.out
        assert "no memory 'nothing' of user 42 of acme" in derived.error("memory", "show", "nothing", *OWNER)
        assert "no memory" in derived.error("memory", "show", "preferred_name", *OWNER, "--kind", "fact")
        assert "no memory" in derived.error("memory", "show", *OWNER, "--kind", "fact", "--", record["id"])

    def test_show_finds_an_inactive_record_by_id(self, derived: Amlog) -> None:
        record = derived.ok("memory", "show", "preferred_name", *OWNER, "--json").json
        derived.append("support", "run 1", UserMessage("Call me Robin."))
        derived.ok("memory", "derive", "run 1", *OWNER)
        assert derived.ok("memory", "show", *OWNER, "--", record["id"]).out.startswith(
            "preferred_name: Kim   preference, scope user, superseded\n"
        )

    def test_search_returns_scored_hits(self, derived: Amlog) -> None:
        hits = derived.ok("memory", "search", "preferred", "name", *OWNER, "--json").json
        (hit,) = [hit for hit in hits if hit["record"] and hit["record"]["value"] == "Kim"]
        assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
        assert 0 < hit["score"] <= 1
        assert hit["matched_by"]
        assert (hit["id"], hit["kind"]) == (hit["record"]["id"], "preference")
        assert hit["evidence"] == hit["record"]["evidence"]
        assert derived.ok("memory", "search", "preferred name", *OWNER).out.splitlines()[0].split() == [
            "score",
            "kind",
            "memory",
            "from",
        ]
        assert len(derived.ok("memory", "search", "preferred language name", "-k", "1", *OWNER, "--json").json) == 1
        assert derived("memory", "search", "zebra", *OWNER).err == "no matches\n"

    def test_explain_cites_the_log(self, derived: Amlog) -> None:
        out = derived.ok("memory", "explain", "preferred_name", *OWNER).out
        assert "source: run support/run 1" in out
        assert f"  support/run%201#1  user: {MESSAGE}\n" in out
        report = derived.ok("memory", "explain", "preferred_name", *OWNER, "--json").json
        assert report["evidence"][0]["text"] == f"user: {MESSAGE}"
        assert report["record"]["value"] == "Kim"
        assert report["events"]
        assert "no memory" in derived.error("memory", "explain", "nothing", *OWNER)

    def test_history_has_every_value(self, derived: Amlog) -> None:
        derived.append("support", "run 1", UserMessage("Call me Robin."))
        derived.ok("memory", "derive", "run 1", *OWNER)
        lines = derived.ok("memory", "history", "preferred_name", *OWNER).out.splitlines()
        assert ["Kim" in lines[1], "superseded" in lines[1]] == [True, True]
        assert ["Robin" in lines[2], "active" in lines[2]] == [True, True]
        old, new = derived.ok("memory", "history", "preferred_name", *OWNER, "--json").json
        assert (old["record"]["value"], old["closed_at"] is None) == ("Kim", False)
        assert (new["record"]["value"], new["closed_at"]) == ("Robin", None)
        assert derived("memory", "history", "x", *OWNER).err == "the key 'x' of user 42 of acme has no values\n"

    def test_stats_counts_memories(self, derived: Amlog) -> None:
        report = derived.ok("memory", "stats", *OWNER, "--json").json
        assert (report["active"], report["runs"]) == ({"preference": 2}, 1)
        assert "active preference" in derived.ok("memory", "stats", *OWNER).out

    def test_output_escapes_control_characters(self, amlog: Amlog) -> None:
        with _Subject(amlog) as me:
            me.remember(Preference("style", "\x1b[2Jbold\u202e"))
        for command in (("list",), ("show", "style"), ("explain", "style"), ("history", "style"), ("search", "style")):
            out = amlog.ok("memory", *command, *OWNER).out
            assert "\x1b" not in out
            assert "\\x1b[2Jbold\\u202e" in out
            assert "\u202e" not in amlog.ok("memory", *command, *OWNER, "--json").out


class TestForget:
    def test_forget_asks_on_a_terminal_and_otherwise_requires_yes(self, derived: Amlog) -> None:
        error = run("memory", "forget", "preferred_name", *OWNER, AMLOG_STORE=derived.url)
        assert (error.status, error.out) == (2, "")
        assert "Forget 'preferred_name', 1 value, of user 42 of acme permanently?" in error.err
        ran = run_on_terminal("memory", "forget", "preferred_name", *OWNER, answer="n\n", AMLOG_STORE=derived.url)
        assert ran.status == 1
        assert "cancelled; nothing was changed" in ran.out
        assert _keys(derived) == ["language", "preferred_name"]
        ran = run_on_terminal("memory", "forget", "preferred_name", *OWNER, answer="y\n", AMLOG_STORE=derived.url)
        assert ran.status == 0
        assert "forgot 1 memory" in without_codes(ran.out)
        assert _keys(derived) == ["language"]

    def test_forgotten_key_loses_all_values_and_stays_forgotten(self, derived: Amlog) -> None:
        derived.append("support", "run 1", UserMessage("Call me Robin."))
        derived.ok("memory", "derive", "run 1", *OWNER)
        assert derived.ok("memory", "forget", "preferred_name", "-y", *OWNER).out == "✔ forgot 2 memories\n"
        assert (
            derived.ok("memory", "derive", "--again", *OWNER, "--json").json[0]["outcomes"][-1]["action"] == "forgotten"
        )
        assert derived.ok("memory", "history", "language", *OWNER).out
        assert derived.ok("memory", "rebuild", *OWNER, "--json").json["equal"] is True
        assert _keys(derived) == ["language"]

    def test_forget_by_id_erases_only_that_record(self, derived: Amlog) -> None:
        with _Subject(derived) as me:
            me.write([Candidate(Episode("discovery"), text="One."), Candidate(Episode("discovery"), text="Two.")])
        record, _ = derived.ok("memory", "list", *OWNER, "--kind", "episode", "--json").json
        report = derived.ok("memory", "forget", "-y", *OWNER, "--json", "--", record["id"]).json
        assert report["records"] == 1
        assert [
            record["text"] for record in derived.ok("memory", "list", *OWNER, "--kind", "episode", "--json").json
        ] == ["Two."]

    def test_forget_redacts_evidence_on_request(self, derived: Amlog) -> None:
        ran = derived.ok("memory", "forget", "preferred_name", "-y", "--evidence", *OWNER)
        also = "other memories that came only from these events, so they are forgotten too (1): "
        assert ran.out.startswith(f"✔ forgot 1 memory, and redacted 1 event of runs\n  {also}")
        assert _keys(derived) == []
        assert MESSAGE not in derived.ok("show", "support/run 1", "--full").out

    def test_sweep_redacts_every_event_that_contains_the_value(self, derived: Amlog) -> None:
        derived.append("support", "later", UserMessage("It is Kim again."), UserMessage("Call Kim's mother."))
        derived.ok("memory", "link", "later", *OWNER)
        command = ("memory", "forget", "preferred_name", *OWNER)
        planned = derived.ok(*command, "--dry-run", "--sweep").out
        assert planned.startswith("✔ would forget 1 memory, and redact 3 events of runs\n")
        elsewhere = "events of linked runs that still contain the value (2): support/later#1, support/later#2\n"
        assert elsewhere in derived.ok(*command, "--dry-run", "--evidence").out
        assert "redact 3 events" in derived.error(*command, "-y", "--sweep", "--sweep-limit", "2")
        assert "need a RECORD" in derived.error("memory", "forget", "--all", "--sweep", "-y", *OWNER, status=2)
        assert _keys(derived) == ["language", "preferred_name"]
        report = derived.ok(*command, "-y", "--evidence", "--json").json
        assert [event["name"] for event in report["elsewhere"]] == ["support/later#1", "support/later#2"]
        assert (report["records"], report["evidence"]) == (1, 1)

    def test_forget_names_other_memories_with_the_value(self, derived: Amlog) -> None:
        with _Subject(derived) as me:
            me.remember(key="drink", value="Kim likes tea")
        ran = derived.ok("memory", "forget", "preferred_name", "-y", "--sweep", *OWNER)
        assert "  other memories that still contain the value (1): " in ran.out

    def test_forget_all_erases_every_memory(self, derived: Amlog) -> None:
        assert derived.ok("memory", "forget", "--all", "-y", *OWNER).out == "✔ forgot 2 memories\n"
        assert _keys(derived) == []
        assert derived.ok("memory", "derive", "run 1", *OWNER).status == 0
        assert _keys(derived) == []

    def test_forget_refuses_unknown_keys_and_wrong_options(self, derived: Amlog) -> None:
        assert "no memory 'x'" in derived.error("memory", "forget", "x", "-y", *OWNER)
        for wrong in ((), ("x", "--all"), ("--all", "--kind", "fact")):
            assert "give either" in derived.error("memory", "forget", *wrong, "-y", *OWNER, status=2)
        assert _keys(derived) == ["language", "preferred_name"]


class TestUpkeep:
    def test_maintain_archives_weak_memories_and_says_why(self, derived: Amlog) -> None:
        with _Subject(derived) as me:
            me.write([Candidate(Episode("discovery"), text="Small.", importance=0.1)])
        assert derived.ok("memory", "maintain", *OWNER).out == "✔ changed 0 memories\n"
        weak = ("--weak-below", "1", "--unused", "0")
        ran = derived.ok("memory", "maintain", "--dry-run", *weak, *OWNER)
        assert ran.out.endswith("✔ would change 3 memories: 3 archived as weak\n")
        assert "retrievability 1.00" in ran.out
        ran = derived.ok("memory", "maintain", *weak, *OWNER, "--json")
        assert [change["kind"] for change in ran.json["decayed"]] == ["preference", "preference", "episode"]
        assert (ran.json["expired"], ran.json["remaining"]) == ([], 0)
        archived = derived.ok("memory", "list", "--status", "archived", *OWNER, "--json").json
        assert len(archived) == 3
        assert "--weak-below" in derived.error("memory", "maintain", "--weak-below", "7", *OWNER, status=2)

    def test_health_shows_layers_and_the_last_round(self, derived: Amlog) -> None:
        assert "never" in derived.ok("memory", "health", *OWNER).out
        derived.ok("memory", "maintain", *OWNER)
        health = derived.ok("memory", "health", *OWNER, "--json").json
        assert health["layers"] == {"working": 2}
        assert health["maintained_at"] is not None
        assert health["maintenance_open"] is False

    def test_audit_lists_changes_and_evolution_tells_the_story(self, derived: Amlog) -> None:
        derived.ok("memory", "remember", "language", "french", *OWNER)
        changes = derived.ok("memory", "audit", *OWNER, "--json").json
        assert [change["action"] for change in changes[:2]] == ["closed", "remembered"]
        assert "french" not in derived.ok("memory", "audit", *OWNER).out
        (newest,) = derived.ok("memory", "audit", *OWNER, "--limit", "1", "--json").json
        assert newest == changes[0]
        assert derived.ok("memory", "audit", *OWNER, "--until", "2020-01-01T00:00:00Z", "--json").json == []
        story = derived.ok("memory", "evolution", "language", *OWNER, "--json").json
        assert (story["layer"], story["record"]["value"]) == ("working", "french")
        out = derived.ok("memory", "evolution", "language", *OWNER).out
        assert 'replaces "language: german"' in out
        assert "no memory 'unknown'" in derived.error("memory", "evolution", "unknown", *OWNER)

    def test_quotas_shows_the_use_of_each_limit(self, derived: Amlog) -> None:
        uses = derived.ok("memory", "quotas", *OWNER, "--json").json
        assert {"scope": "user", "limit": "keyed", "used": 2, "soft": None, "hard": 1000} in uses
        assert first_words(derived.ok("memory", "quotas", *OWNER).out) == ["scope", *["user"] * len(uses)]

    def test_separate_undoes_a_consolidation(self, amlog: Amlog) -> None:
        with _Subject(amlog) as me:
            for end in ".!":
                me.add(f"The weekly report goes to the finance team on Monday{end}")
            (change,) = me.maintain().consolidated
        report = amlog.ok("memory", "separate", *OWNER, "--json", "--", change.record).json
        assert (report["status"], len(report["outcomes"])) == ("ok", 2)
        assert len(amlog.ok("memory", "list", *OWNER, "--json").json) == 2
        assert "consolidated" in amlog.error("memory", "separate", *OWNER, "--", change.record)

    def test_rebuild_equals_the_stored_memories(self, derived: Amlog) -> None:
        ran = derived.ok("memory", "rebuild", *OWNER)
        assert ran.out.startswith("✔ 2 memories from ")
        assert ran.out.endswith(", equal to the stored memories\n")


class TestExportAndImport:
    def test_import_reads_an_export(self, derived: Amlog) -> None:
        data = derived.ok("memory", "export", *OWNER).out
        assert json.loads(data.splitlines()[0])["format"].startswith("agent-memory-log-records/")
        file = derived.file("memory.jsonl", data)
        other = ("--tenant", "acme", "--user", "43")
        ran = derived.ok("memory", "import", file, *other)
        assert ran.out.startswith("✔ 2 written\n")
        report = derived.ok("memory", "import", file, *other, "--json").json
        assert (report["status"], [outcome["action"] for outcome in report["outcomes"]]) == ("ok", ["unchanged"] * 2)
        again, first = (json.loads(text.splitlines()[0]) for text in (derived.ok("memory", "export", *other).out, data))
        assert (again["format"], again["records"]) == (first["format"], first["records"])
        assert len(derived.ok("memory", "list", *other, "--json").json) == 2

    def test_import_reads_standard_input_into_a_new_store(self, derived: Amlog) -> None:
        data = derived.ok("memory", "export", *OWNER).out
        url = f"sqlite:///{derived.folder / 'new.db'}"
        ran = run("memory", "import", "-", *OWNER, stdin=data.encode(), AMLOG_STORE=url)
        assert (ran.status, ran.err) == (0, "")
        assert run("memory", "export", *OWNER, AMLOG_STORE=url).out.count("\n") == 3

    def test_import_blocks_a_secret(self, derived: Amlog) -> None:
        _, records = derived.ok("memory", "export", *OWNER).out.split("\n", 1)
        header = '{"format":"agent-memory-log-records/1"}\n'  # without a digest, so that the records may change
        data = header + records.replace("Kim", "ghp_" + "A1b2C3d4" * 4 + "A1b2")
        ran = derived.ok("memory", "import", derived.file("m.jsonl", data), "--tenant", "acme", "--user", "43")
        assert "1 written, 1 blocked" in ran.out
        assert "ghp_" not in ran.out

    def test_import_stores_nothing_from_an_invalid_file(self, derived: Amlog) -> None:
        data = derived.ok("memory", "export", *OWNER).out
        other = ("--tenant", "acme", "--user", "43")
        for wrong in ("x\n", "{}\n", data + "{}\n", data + "x\n"):
            assert "line" in derived.error("memory", "import", derived.file("m.jsonl", wrong), *other)
        assert derived.error("memory", "import", "missing.jsonl", *other) == "missing.jsonl: No such file or directory"
        assert derived.ok("memory", "list", *other, "--json").json == []


def test_terminal_output_fits_its_width(derived: Amlog) -> None:
    _set_days(derived, 180)
    output = run_on_terminal("memory", "list", *OWNER, columns=120, AMLOG_STORE=derived.url)
    assert output.status == 0
    assert "\x1b[" in output.out
    assert "★★★★☆" in output.out
    narrow = without_codes(run_on_terminal("memory", "list", *OWNER, columns=60, AMLOG_STORE=derived.url).out)
    assert "★★★★☆  preferred_name  Kim\n" in narrow
    assert "180 days left" in narrow
    history = without_codes(run_on_terminal("memory", "history", "language", *OWNER, AMLOG_STORE=derived.url).out)
    assert "german" in history
    assert "active, support/run%201#1" in history
    audit = without_codes(run_on_terminal("memory", "audit", *OWNER, columns=80, AMLOG_STORE=derived.url).out)
    assert "remembered  preference language, by run support/run 1\n" in audit
    assert max(map(len, audit.splitlines())) <= 80
    plain = run("memory", "list", *OWNER, AMLOG_STORE=derived.url, PYTHONIOENCODING="ascii")
    assert "****." in plain.out


def test_explain_shows_every_linked_event_of_the_evidence(amlog: Amlog) -> None:
    call = ToolCall("c1", "book", payload_json='{"seat": "1"}')
    amlog.append("a/b", "r", call, ToolResult("c1", "book", error_message="seat must be a number"))
    with _Subject(amlog) as me:
        evidence = (Evidence("a/b", "r", 2), Evidence("a/b", "r", 1), Evidence("a/b", "gone", 1))
        me.write([Candidate(Episode("error"), text="A seat is a number.", evidence=evidence)])
        me.link_run("a/b", "r")
    (episode,) = amlog.ok("memory", "list", *OWNER, "--json").json
    assert "a%2Fb/r#2 +2" in amlog.ok("memory", "list", *OWNER).out
    out = amlog.ok("memory", "explain", *OWNER, "--", episode["id"]).out
    assert "  a%2Fb/r#2  tool_result: book: seat must be a number\n" in out
    assert '  a%2Fb/r#1  tool_call: book {"seat": "1"}\n' in out
    assert "  a%2Fb/gone#1  (not linked to this subject)\n" in out


def test_conflicts_are_listed_resolved_and_opened_again(amlog: Amlog) -> None:
    with _Subject(amlog) as me:
        me.remember(Fact("diet_note", "I am a vegetarian"))
        me.remember(Fact("meal_note", "I ate a steak"))
    (pair,) = amlog.ok("memory", "conflicts", *OWNER, "--json").json
    ids = (pair["newer"]["id"], pair["older"]["id"])
    assert (pair["kind"], pair["status"], pair["trust"]) == ("contradiction", "open", [0.5, 0.5])
    assert "trust: 50% (1 source, 1 open conflict" in amlog.ok("memory", "explain", "meal_note", *OWNER).out
    merging = ("--keep", "merged", "--text", "eats meat at weekends")
    out = amlog.ok("memory", "resolve", *OWNER, *merging, "--", *ids).out
    assert "resolved, kept merged" in out
    assert "eats meat at weekends" in out
    assert "no open conflicts" in amlog("memory", "conflicts", *OWNER).err
    assert "kept merged" in amlog.ok("memory", "conflicts", *OWNER, "--status", "resolved").out
    assert "open\n" in amlog.ok("memory", "unresolve", *OWNER, "--", *ids).out
    old = amlog.error("memory", "conflicts", *OWNER, "--status", "old", status=2)
    assert "Invalid value for '--status': 'old' is not one of 'open', 'resolved'" in old
    every = amlog.error("memory", "resolve", *OWNER, "--keep", "all", "--", *ids, status=2)
    assert "'all' is not one of 'first', 'second', 'both', 'merged'" in every
    assert "there is no conflict" in amlog.error("memory", "resolve", *OWNER, "--keep", "both", "a", "b")
    missing = amlog.error("memory", "resolve", *OWNER, "a", "b", status=2)
    assert "Missing option '--keep'. Choose from: first, second, both, merged (see" in missing


@pytest.mark.parametrize("names", [("meal_note", "diet_note"), ("diet_note", "meal_note")])
def test_a_conflict_is_resolved_and_opened_again_by_keys(amlog: Amlog, names: tuple[str, str]) -> None:
    for key, value in (("diet_note", "I am a vegetarian"), ("meal_note", "I ate a steak")):
        amlog.ok("memory", "remember", key, value, "--kind", "fact", *OWNER)
    for _ in range(2):  # resolving again changes nothing
        pair = amlog.ok("memory", "resolve", *names, *OWNER, "--keep", "first", "--json").json
        assert pair["status"] == "resolved"
        assert _keys(amlog) == [names[0]]
    assert amlog.ok("memory", "unresolve", *reversed(names), *OWNER, "--json").json["status"] == "open"
    assert sorted(_keys(amlog)) == sorted(names)


def test_keys_that_fit_several_conflicts_resolve_none(amlog: Amlog) -> None:
    with _Subject(amlog) as me:
        older = me.remember(Fact("diet", "I am a vegetarian")).record
        assert older is not None
        newer = me.remember(key="diet", value="steak", links=[Link("contradicts", older.id)]).record
        assert newer is not None
    assert "give ids" in amlog.error("memory", "resolve", "diet", "diet", *OWNER, "--keep", "first")
    pair = amlog.ok("memory", "resolve", *OWNER, "--keep", "first", "--json", "--", newer.id, older.id).json
    assert (pair["newer"]["status"], pair["older"]["status"]) == ("active", "archived")


class TestRemember:
    def test_a_new_value_replaces_the_old_one(self, amlog: Amlog) -> None:
        assert "written language: english" in amlog.ok("memory", "remember", "language", "english", *OWNER).out
        outcome = amlog.ok("memory", "remember", "language", "german", *OWNER, "--ttl-days", "3", "--json").json
        assert (outcome["action"], outcome["record"]["ttl_left_days"]) == ("written", 3)
        assert outcome["superseded"]
        (record,) = amlog.ok("memory", "list", *OWNER, "--json").json
        assert (record["kind"], record["value"]) == ("preference", "german")

    def test_a_secret_is_blocked_and_sets_the_status(self, amlog: Amlog) -> None:
        ran = amlog("memory", "remember", "token", "ghp_" + "A1b2C3d4" * 4 + "A1b2", *OWNER)
        assert ran.status == 1
        assert "! blocked token" in ran.out
        assert "ghp_" not in ran.out
        assert "kind" in amlog.error("memory", "remember", "key", "value", "--kind", "message", *OWNER)


class TestDeleteAndRestore:
    def test_restore_brings_back_what_delete_archived(self, derived: Amlog) -> None:
        assert derived.ok("memory", "delete", "language", *OWNER).out.split()[1:3] == ["archived", "language:"]
        assert _keys(derived) == ["preferred_name"]
        assert _keys(derived, "--status", "archived") == ["language"]
        assert "is not archived" not in derived("memory", "delete", "language", *OWNER).err
        outcome = derived.ok("memory", "restore", "language", *OWNER, "--json").json
        assert (outcome["action"], outcome["record"]["key"]) == ("written", "language")
        assert _keys(derived) == ["preferred_name", "language"]
        (archived,) = derived.ok("memory", "list", *OWNER, "--status", "archived", "--json").json
        assert derived.ok("memory", "restore", archived["id"], *OWNER, "--json").json["action"] == "unchanged"

    def test_unknown_and_active_memories_are_refused(self, derived: Amlog) -> None:
        for command in ("delete", "restore"):
            assert "no memory 'unknown' of user 42 of acme" in derived.error("memory", command, "unknown", *OWNER)
        assert "is archived" in derived.error("memory", "restore", "language", *OWNER)


class TestIngest:
    TURNS = (
        '{"role": "user", "text": "Please call me Kim."}\n\n{"role": "assistant", "text": "Hello Kim."}\n'
        '{"role": "user", "text": "x"}\n{"role": "assistant", "text": "y"}\n'
    )

    def test_turns_are_stored_once_and_learned_from(self, amlog: Amlog) -> None:
        file = amlog.file("chat.jsonl", self.TURNS)
        ran = amlog.ok("memory", "ingest", file, "--source-id", "chat 7", *OWNER)
        assert "written preferred_name: Kim" in ran.out
        report = amlog.ok("memory", "ingest", file, "--source-id", "chat 7", *OWNER, "--json").json
        assert (report["agent"], report["run"], report["outcomes"]) == ("conversations/acme/user/42", "chat 7", [])
        more = amlog.file("more.jsonl", '{"role": "user", "text": "Please answer in German."}\n')
        assert (
            "language" in amlog.ok("memory", "ingest", more, "--source-id", "chat 7", "--first-turn", "4", *OWNER).out
        )
        assert _keys(amlog) == ["preferred_name", "language"]

    def test_a_short_conversation_is_read_at_once(self, amlog: Amlog) -> None:
        file = amlog.file("chat.jsonl", "".join(self.TURNS.splitlines(keepends=True)[:3]))
        assert "written preferred_name: Kim" in amlog.ok("memory", "ingest", file, "--source-id", "chat", *OWNER).out

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ('{"role": "user", "text": "hi"}\n{"role": "system", "text": "x"}', "line 2: "),
            ("no JSON", "line 1: "),
            ('{"role": "user"}', "line 1: "),
        ],
    )
    def test_a_wrong_line_is_named_and_nothing_stored(self, amlog: Amlog, content: str, expected: str) -> None:
        file = amlog.file("chat.jsonl", content)
        error = amlog.error("memory", "ingest", file, "--source-id", "chat", *OWNER)
        assert expected in error
        assert not (amlog.folder / "runs.db").exists()

    def test_a_turn_that_differs_is_refused(self, amlog: Amlog) -> None:
        amlog.ok("memory", "ingest", amlog.file("chat.jsonl", self.TURNS), "--source-id", "chat", *OWNER)
        other = amlog.file("other.jsonl", '{"role": "user", "text": "other"}')
        assert "turns[0] differs" in amlog.error("memory", "ingest", other, "--source-id", "chat", *OWNER)


class TestConsent:
    def test_a_withdrawal_forgets_after_a_confirmation(self, derived: Amlog) -> None:
        assert "written" in derived.ok("memory", "consent", "ask", "preference", "language", *OWNER).out
        assert derived.ok("memory", "consent", "give", "preference", "language", *OWNER, "--json").json["action"] == (
            "written"
        )
        assert "--yes" in derived.error("memory", "consent", "withdraw", "preference", "language", *OWNER, status=2)
        assert _keys(derived, "--kind", "preference") == ["language", "preferred_name"]
        report = derived.ok("memory", "consent", "withdraw", "preference", "language", *OWNER, "--yes", "--json").json
        assert report == {"records": 1, "evidence": 0}
        assert _keys(derived, "--kind", "preference") == ["preferred_name"]
        (record,) = derived.ok("memory", "list", "--kind", "consent", *OWNER, "--json").json
        assert record["value"] == "withdrawn"

    def test_a_consent_has_no_stars_and_no_doubt(self, derived: Amlog) -> None:
        derived.ok("memory", "consent", "give", "fact", *OWNER)
        plain = derived.ok("memory", "list", "--kind", "consent", *OWNER).out
        fields = derived.ok("memory", "show", "fact/", *OWNER).out
        terminal = run_on_terminal("memory", "list", "--kind", "consent", *OWNER, AMLOG_STORE=derived.url).out
        for out in (plain, fields, terminal):
            assert "given" in out
            assert "★" not in out
            assert "%" not in out

    def test_wrong_arguments_are_refused(self, amlog: Amlog) -> None:
        assert "kind must be" in amlog.error("memory", "consent", "ask", "message", *OWNER)
        assert amlog("memory", "consent", "revoke", "fact", *OWNER).status == 2
