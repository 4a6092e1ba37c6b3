"""``amlog memory context``, ``search`` and ``link``, on every backend."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_memory_log import UserMessage, new_event
from agent_memory_log.cli.names import run_name
from agent_memory_log.memory import Principal, SyncMemoryClient, stream_of
from agent_memory_log.memory.principals import STREAM_RUN
from tests.amlog import run
from tests.memory_stores import OpenStore, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def _filled(open_memory_store: OpenStore) -> Principal:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody(user="42"))
    agent = f"agent {me.principal.tenant}"
    me.remember(key="language", value="\x1b[2Jenglish")
    store.append_events(agent, "run", new_event(UserMessage("Which language is the zebra?")))
    me.link_run(agent, "run")
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version
    return me.principal


def test_context_prints_the_block(open_memory_store: OpenStore, store_url: str) -> None:
    if store_url == "memory:":
        pytest.skip("what is in memory is not there for a command")
    principal = _filled(open_memory_store)
    whose = ("--tenant", principal.tenant, "--user", "42", "--store", store_url)
    ran = run("memory", "context", "which", "language", *whose)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert (lines[0], lines[-1]) == ("<memory>", "</memory>")
    assert "\x1b" not in ran.out
    assert any("Which language is the zebra?" in line for line in lines)
    found = run("memory", "context", "which", "language", *whose, "--json").json
    assert (len(found["records"]), len(found["messages"]), found["note"]) == (1, 1, "")
    assert found["tokens"] <= 1_000
    ran = run("memory", "context", "language", *whose, "--max-tokens", "9")
    assert (ran.status, ran.out, ran.err) == (0, "", "nothing remembered that fits\n")


def test_search_explains_scores(open_memory_store: OpenStore, store_url: str) -> None:
    if store_url == "memory:":
        pytest.skip("what is in memory is not there for a command")
    principal = _filled(open_memory_store)
    whose = ("--tenant", principal.tenant, "--user", "42", "--store", store_url)
    ran = run("memory", "search", "zebra", "language", *whose, "--explain")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split()[-2:] == ["matched", "by"]
    assert "user: Which language is the zebra?" in ran.out
    assert "words +" in ran.out
    assert "confidence -" in ran.out


def test_search_chooses_by_time_and_boosts(open_memory_store: OpenStore, store_url: str) -> None:
    if store_url == "memory:":
        pytest.skip("what is in memory is not there for a command")
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody(user="42"))
    agent = f"agent {me.principal.tenant}"
    for day in (1, 2, 3):
        said = new_event(UserMessage(f"The zebra of day {day}."), timestamp=datetime(2026, 3, day, tzinfo=UTC))
        store.append_events(agent, "run", said)
    me.link_run(agent, "run")
    me.remember(key="tone", value="dry")
    whose = ("--tenant", me.principal.tenant, "--user", "42", "--store", store_url, "--json")

    def found(*options: str) -> set[str]:
        return {one["text"] for one in run("memory", "search", "zebra", *whose, *options).json}

    assert found() == {f"The zebra of day {day}." for day in (1, 2, 3)}
    assert found("--since", "2026-03-02T00:00:00Z") == {"The zebra of day 2.", "The zebra of day 3."}
    assert found("--until", "2026-03-02T01:00:00+01:00") == {"The zebra of day 1."}
    assert found("--since", "2026-03-02T00:00:00Z", "--until", "2026-03-03T00:00:00Z") == {"The zebra of day 2."}
    assert found("--boost", "Tone", "--boost", "language") == found() | {"tone: dry"}


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_time_that_is_none_is_named(option: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    ran = run("memory", "search", "x", "--tenant", "a", "--user", "b", "--store", url, option, "yesterday")
    assert (ran.status, ran.out) == (2, "")
    assert f"{option} 'yesterday': not RFC 3339" in ran.err


def test_link_lets_messages_be_found(open_memory_store: OpenStore, store_url: str) -> None:
    if store_url == "memory:":
        pytest.skip("what is in memory is not there for a command")
    store = open_memory_store()
    principal = somebody(user="42", workspace="ops")
    agent = f"agent {principal.tenant}"
    for name in ("run/1", "run/2"):
        store.append_events(agent, name, new_event(UserMessage(f"A zebra in {name}.")))
    user = ("--tenant", principal.tenant, "--user", "42", "--store", store_url)
    workspace = ("--tenant", principal.tenant, "--scope", "workspace=ops", "--store", store_url)
    names = [run_name(agent, name) for name in ("run/1", "run/2")]

    def found(*whose: str) -> set[str]:
        return {one["text"] for one in run("memory", "search", "zebra", *whose, "--json").json}

    assert found(*user) == set()
    ran = run("memory", "link", names[0], *user)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith(f" linked {names[0]}\n")
    assert found(*user) == {"A zebra in run/1."}
    assert found(*workspace) == set()
    version = store.load_run(stream_of(principal.subject("user")), STREAM_RUN).version
    assert run("memory", "link", names[0], *user).status == 0
    assert store.load_run(stream_of(principal.subject("user")), STREAM_RUN).version == version
    linked = run("memory", "link", *names, *workspace, "--json").json
    assert linked == [{"agent": agent, "run": "run/1"}, {"agent": agent, "run": "run/2"}]
    assert found(*workspace) == {"A zebra in run/1.", "A zebra in run/2."}
    # A name that is none is refused before any run is linked.
    ran = run("memory", "link", names[1], f"{names[1]}x", *user)
    assert (ran.status, ran.out) == (1, "")
    assert f"no run {names[1]}x" in ran.err
    assert found(*user) == {"A zebra in run/1."}
