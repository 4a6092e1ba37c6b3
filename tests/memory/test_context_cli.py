"""Tests of ``amlog memory context``, ``search`` and ``link`` on every backend."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.cli.run_names import run_name
from agent_memory_log.memory import Candidate, Episode, Principal, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import STREAM_RUN
from tests.amlog import PATIENCE, Amlog, run, run_on_terminal, start, without_codes
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


def _fill_store(open_memory_store: OpenStore) -> Principal:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody(user="42"))
    agent = f"agent {me.principal.tenant}"
    me.remember(key="language", value="\x1b[2Jenglish")
    store.append_events(agent, "run", new_event(UserMessage("Which language is the zebra?")))
    me.link_run(agent, "run")
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version
    return me.principal


def test_context_prints_the_block(open_memory_store: OpenStore, store_url: str, amlog: Amlog) -> None:
    if store_url == "memory:":
        pytest.skip("a command cannot read an in-memory store")
    principal = _fill_store(open_memory_store)
    subject = ("--tenant", principal.tenant, "--user", "42", "--store", store_url)
    result = run("memory", "context", "which", "language", *subject)
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert (lines[0], lines[-1]) == ("<memory>", "</memory>")
    assert "\x1b" not in result.out
    assert any("Which language is the zebra?" in line for line in lines)
    context = amlog("memory", "context", "which", "language", *subject, "--json").json
    assert (len(context["records"]), len(context["messages"]), context["note"]) == (1, 1, "")
    assert context["tokens"] <= 1_000
    result = amlog("memory", "context", "language", *subject, "--max-tokens", "9")
    assert (result.status, result.out, result.err) == (0, "", "nothing fits into max_tokens=9\n")
    result = amlog("memory", "context", "zebra", *subject[:2], "--user", "43", *subject[4:])
    assert (result.status, result.out, result.err) == (0, "", "no memory matches the question\n")


def test_search_explains_scores(open_memory_store: OpenStore, store_url: str, amlog: Amlog) -> None:
    if store_url == "memory:":
        pytest.skip("a command cannot read an in-memory store")
    principal = _fill_store(open_memory_store)
    subject = ("--tenant", principal.tenant, "--user", "42", "--store", store_url)
    result = amlog("memory", "search", "zebra", "language", *subject, "--explain")
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines()[0].split()[-2:] == ["matched", "by"]
    assert "user: Which language is the zebra?" in result.out
    assert "words +" in result.out
    assert "confidence -" in result.out


def test_search_filters_by_time_and_boosts_keys(open_memory_store: OpenStore, store_url: str, amlog: Amlog) -> None:
    if store_url == "memory:":
        pytest.skip("a command cannot read an in-memory store")
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody(user="42"))
    agent = f"agent {me.principal.tenant}"
    for day in (1, 2, 3):
        event = new_event(UserMessage(f"The zebra of day {day}."), timestamp=datetime(2026, 3, day, tzinfo=UTC))
        store.append_events(agent, "run", event)
    me.link_run(agent, "run")
    me.remember(key="tone", value="dry")
    subject = ("--tenant", me.principal.tenant, "--user", "42", "--store", store_url, "--json")

    def search_texts(*options: str) -> set[str]:
        return {hit["text"] for hit in amlog("memory", "search", "zebra", *subject, *options).json}

    assert search_texts() == {f"The zebra of day {day}." for day in (1, 2, 3)}
    assert search_texts("--since", "2026-03-02T00:00:00Z") == {"The zebra of day 2.", "The zebra of day 3."}
    assert search_texts("--until", "2026-03-02T01:00:00+01:00") == {"The zebra of day 1."}
    assert search_texts("--since", "2026-03-02T00:00:00Z", "--until", "2026-03-03T00:00:00Z") == {"The zebra of day 2."}
    assert search_texts("--boost", "Tone", "--boost", "language") == search_texts() | {"tone: dry"}


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_invalid_time_is_named(option: str, amlog: Amlog) -> None:
    result = amlog("memory", "search", "x", "--tenant", "a", "--user", "b", option, "yesterday")
    assert (result.status, result.out) == (2, "")
    assert f"{option} 'yesterday': not RFC 3339" in result.err


def test_search_returns_messages_of_linked_runs(open_memory_store: OpenStore, store_url: str, amlog: Amlog) -> None:
    if store_url == "memory:":
        pytest.skip("a command cannot read an in-memory store")
    store = open_memory_store()
    principal = somebody(user="42", workspace="ops")
    agent = f"agent {principal.tenant}"
    for name in ("run/1", "run/2"):
        store.append_events(agent, name, new_event(UserMessage(f"A zebra in {name}.")))
    user = ("--tenant", principal.tenant, "--user", "42", "--store", store_url)
    workspace = ("--tenant", principal.tenant, "--scope", "workspace=ops", "--store", store_url)
    names = [run_name(agent, name) for name in ("run/1", "run/2")]

    def search_texts(*subject: str) -> set[str]:
        return {hit["text"] for hit in amlog("memory", "search", "zebra", *subject, "--json").json}

    assert search_texts(*user) == set()
    result = amlog("memory", "link", names[0], *user)
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith(f" linked {names[0]}\n")
    assert search_texts(*user) == {"A zebra in run/1."}
    assert search_texts(*workspace) == set()
    version = store.load_run(stream_of(principal.subject("user")), STREAM_RUN).version
    assert amlog("memory", "link", names[0], *user).status == 0
    assert store.load_run(stream_of(principal.subject("user")), STREAM_RUN).version == version
    linked = amlog("memory", "link", *names, *workspace, "--json").json
    assert linked == [{"agent": agent, "run": "run/1"}, {"agent": agent, "run": "run/2"}]
    assert search_texts(*workspace) == {"A zebra in run/1.", "A zebra in run/2."}
    # An unknown run name is refused before any run is linked.
    result = amlog("memory", "link", names[1], f"{names[1]}x", *user)
    assert (result.status, result.out) == (1, "")
    assert f"no run {names[1]}x" in result.err
    assert search_texts(*user) == {"A zebra in run/1."}


SUBJECT = ("--tenant", "acme", "--user", "42")


def test_link_changes_nothing_if_one_run_cannot_be_linked(amlog: Amlog) -> None:
    with open_sync_store(amlog.url) as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "42"}))
        me.remember(key="tone", value="dry")
        store.append_events("a", "r", new_event(UserMessage("A zebra.")))
        library_run = run_name(stream_of(me.principal.subject("user")), STREAM_RUN)
    error = amlog.error("memory", "link", "a/r", library_run, *SUBJECT)
    assert error == f"{library_run} belongs to the library's own agent and cannot be linked"
    assert amlog("memory", "search", "zebra", *SUBJECT).err == "no matches\n"
    assert amlog.ok("memory", "link", "a/r", "r", "a/r", *SUBJECT).out.count("linked a/r\n") == 1
    assert amlog.ok("memory", "link", "a/r", "r", *SUBJECT, "--json").json == [{"agent": "a", "run": "r"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top", "0"), "'--top' / '-k'"),
        (("--top", "10001"), "'--top' / '-k'"),
        (("-k", "all"), "'--top' / '-k'"),
        (("--kind", ""), "--kind must not be empty"),
        (("--kind", "fact", "--kind", " "), "--kind must not be empty"),
        (("--boost", ""), "--boost must not be empty"),
        (("--since", "2026-03-02T00:00:00Z", "--until", "2026-03-01T00:00:00Z"), "--since must be before --until"),
        (("--since", "2026-03-02T00:00:00Z", "--until", "2026-03-02T01:00:00+01:00"), "--since must be before"),
        (("--until", "0"), "--until '0'"),
        (("--scope", "team"), "--scope 'team'"),
        (("--scope", "user=1"), "'user' is given twice"),
    ],
)
def test_wrong_option_is_named(options: tuple[str, ...], message: str, amlog: Amlog) -> None:
    with open_sync_store(amlog.url) as store:
        SyncMemoryClient(store).of(Principal("acme", {"user": "42"})).remember(key="tone", value="dry")
    assert message in amlog.error("memory", "search", "tone", *SUBJECT, *options, status=2)


@pytest.mark.parametrize("budget", ["0", "-1", "1.5", "many", ""])
def test_invalid_token_budget_is_named(budget: str, amlog: Amlog) -> None:
    assert "'--max-tokens'" in amlog.error("memory", "context", "x", *SUBJECT, "--max-tokens", budget, status=2)


@pytest.mark.parametrize("command", ["context", "search", "list"])
def test_command_reports_an_empty_store(command: str, amlog: Amlog) -> None:
    words = () if command == "list" else ("zebra",)
    result = amlog("memory", command, *words, *SUBJECT, "--store", "memory:")
    assert (result.status, result.out) == (0, "")
    assert result.err.startswith("no ")


STORED = "\x1b[2J\x9b31m\x07\u2028\u202e\r\x0b\x85日本語 😀 zebra"


def _fill_with_hostile(url: str) -> None:
    with open_sync_store(url) as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "42"}))
        me.remember(key=f"key {STORED}", value=STORED)
        me.write([Candidate(Episode(STORED), text=STORED, tags=(STORED,), entities=(STORED,))])
        store.append_events("a", "r", new_event(UserMessage(STORED), labels={"speaker": STORED}))
        me.link_run("a", "r")


@pytest.mark.parametrize(
    "command", [("search", "zebra", "-k", "9"), ("search", "zebra", "--explain"), ("context", "zebra"), ("list",)]
)
def test_stored_control_characters_never_reach_the_output(command: tuple[str, ...], amlog: Amlog) -> None:
    _fill_with_hostile(amlog.url)
    raw = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]")
    for options in ((), ("--json",)):
        out = amlog.ok("memory", *command, *SUBJECT, *options).out
        assert "zebra" in out
        assert raw.search(out) is None
    terminal_text = without_codes(run_on_terminal("memory", *command, *SUBJECT, AMLOG_STORE=amlog.url).out)
    assert "zebra" in terminal_text
    assert raw.search(terminal_text.replace("\r\n", "\n")) is None
    changes = {"AMLOG_STORE": amlog.url, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1"}
    result = run("memory", *command, *SUBJECT, stdin=b"", **changes)
    assert (result.status, result.err) == (0, "")
    assert "zebra" in result.out
    assert result.out.isascii()
    assert raw.search(result.out) is None


def test_json_hits_hold_evidence_and_score_shares(amlog: Amlog) -> None:
    _fill_with_hostile(amlog.url)
    hits = amlog.ok("memory", "search", "zebra", *SUBJECT, "-k", "9", "--json").json
    assert {hit["kind"] for hit in hits} == {"preference", "episode", "message"}
    for hit in hits:
        assert hit.keys() == {"score", "matched_by", "kind", "id", "text", "evidence", "record"}
        assert hit["score"] == pytest.approx(sum(hit["matched_by"].values()), abs=0.01)
        assert (hit["record"] is None) == (hit["kind"] == "message")
    (message,) = [hit for hit in hits if hit["kind"] == "message"]
    assert (message["id"], message["text"]) == ("a/r#1", STORED)
    assert message["evidence"] == [{"name": "a/r#1", "agent": "a", "run": "r", "seq": 1, "item": ""}]


def test_wide_characters_keep_the_columns_aligned(amlog: Amlog) -> None:
    with open_sync_store(amlog.url) as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "42"}))
        me.remember(key="語言", value="one")
        me.remember(key="tone and", value="two")
    terminal_text = without_codes(run_on_terminal("memory", "list", *SUBJECT, AMLOG_STORE=amlog.url).out)
    names = [line for line in terminal_text.splitlines() if line.endswith(("one", "two"))]
    # The first name has two characters of two columns each. The second has eight characters of one column.
    assert [line[7:] for line in names] == ["語言      one", "tone and  two"]


@pytest.mark.parametrize("command", ["context", "search"])
def test_closed_output_pipe_is_no_error(command: str, amlog: Amlog) -> None:
    with open_sync_store(amlog.url) as store:
        store.append_events(
            "a", "r", *(new_event(UserMessage(f"zebra {number} " + "w" * 400)) for number in range(500))
        )
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "42"}))
        me.link_run("a", "r")
        for number in range(90):
            me.remember(key=f"zebra {number}", value="w" * 1_000)
    options = ("-k", "500") if command == "search" else ("--max-tokens", "1000000")
    process = start("memory", command, "zebra", *SUBJECT, *options, AMLOG_STORE=amlog.url)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) in (0, 141)
