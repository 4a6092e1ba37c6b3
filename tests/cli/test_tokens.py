"""Tests of ``amlog tokens``: its output, and wrong options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amlog import PATIENCE, Amlog, environment, run_on_terminal, without_codes

TOKEN = re.compile(r"aml_[0-9a-f]{16}_[0-9a-f]{64}")
USER = ("--tenant", "acme", "--user", "42")


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    return command


def test_create_prints_only_the_token_and_describes_it_on_standard_error(amlog: Amlog) -> None:
    ran = amlog("tokens", "create", *USER, "--scope", "workspace=ops", "--agents", "support-*", "--name", "app")
    assert ran.status == 0
    assert TOKEN.fullmatch(ran.out.rstrip("\n"))
    assert "app: read, write on the memory of user 42, workspace ops of acme and the runs of support-*" in ran.err
    assert not TOKEN.search(ran.err)


def test_token_that_cannot_be_shown_is_named(amlog: Amlog) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "agent_memory_log.cli", "tokens", "create", *USER],
            env=environment(**_at(amlog)),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE,
            text=True,
        )
    line = re.fullmatch(
        r"amlog: the token \w{16} was created, .*: revoke it with amlog tokens revoke (\w+)\n", ran.stderr
    )
    assert (ran.returncode, line is not None) == (1, True)
    assert amlog("tokens", "revoke", line[1] if line else "").status == 0


def test_a_terminal_never_breaks_what_people_copy(amlog: Amlog) -> None:
    created = run_on_terminal("tokens", "create", *USER, "--name", "a-name-of-20-letters", columns=40, **_at(amlog)).out
    assert TOKEN.match(created)
    listed = without_codes(run_on_terminal("tokens", "list", columns=40, **_at(amlog)).out)
    assert created.split("_")[1] in listed
    assert "a-name-of-20-letters" in listed
    text = "word " * 40 + "https://example.com/" + "x" * 80
    assert amlog("memory", "remember", "link", text.strip(), "--kind", "fact", *USER).status == 0
    context = without_codes(run_on_terminal("memory", "context", "link", *USER, columns=40, **_at(amlog)).out)
    assert text in context


def _at(amlog: Amlog) -> dict[str, str]:
    return {"AMLOG_STORE": amlog.url}


def test_the_token_of_an_operator_says_that_it_reaches_all_tenants(amlog: Amlog) -> None:
    ran = amlog("tokens", "create", "--agents", "*", "--agents", "@*", "--may", "read")
    assert "read on every run, with the stored memory of all tenants" in ran.err
    ran = amlog("tokens", "create", "--agents", "@memory/acme/*")
    assert "the runs of @memory/acme/* (which hold stored memory)" in ran.err


def test_list_and_revoke_never_show_a_token(amlog: Amlog) -> None:
    created = amlog("tokens", "create", *USER, "--may", "read,erase", "--days", "30", "--json").json
    token_id = created["id"]
    assert created["token"].startswith(f"aml_{token_id}_")
    del created["token"]
    (listed,) = amlog.ok("tokens", "list", "--json").json
    assert listed == created
    assert (listed["rights"], listed["status"], listed["agents"]) == (["read", "erase"], "active", [])
    assert (listed["tenant"], listed["scopes"]) == ("acme", {"user": "42"})
    assert "active" in amlog.ok("tokens", "list").out
    assert amlog.ok("tokens", "revoke", token_id).out == f"✔ revoked {token_id} ({token_id})\n"
    (listed,) = amlog.ok("tokens", "list", "--json").json
    assert listed["status"] == "revoked"
    assert listed["revoked"] is not None
    for command in (("tokens", "list"), ("show", "@access/tokens", "--json"), ("runs", "--all")):
        assert not TOKEN.search(amlog.ok(*command).out)


def test_a_pasted_token_is_not_repeated_and_its_id_is_named(amlog: Amlog) -> None:
    created = amlog("tokens", "create", *USER, "--name", "a", "--json").json
    error = amlog.error("tokens", "revoke", created["token"])
    assert error == f"expected the name or the id of a token, got the token itself: its id is {created['id']}"


def test_a_store_without_tokens_lists_none(amlog: Amlog) -> None:
    amlog("tokens", "create", *USER, "--name", "a")
    assert "no active token has the name or id 'b'" in amlog.error("tokens", "revoke", "b")
    amlog.ok("tokens", "revoke", "a")
    assert "no active token" in amlog.error("tokens", "revoke", "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--user", "42"), "a user or a scope needs --tenant"),
        (("--tenant", "acme"), "no user or scope"),
        (("--tenant", "acme", "--user", " 42"), "white space"),
        ((*USER, "--may", "read,admin"), "--may 'read,admin' must be some of read, write, erase"),
        ((*USER, "--may", ""), "--may '' must be some of"),
        (("--store", "https://memory.example", *USER), "a server does not manage its own tokens"),
        (("--store", "HTTP://memory.example", *USER), "a server does not manage its own tokens"),
    ],
)
def test_wrong_options_are_refused(amlog: Amlog, options: tuple[str, ...], message: str) -> None:
    assert message in amlog.error("tokens", "create", *options, status=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "a token needs a tenant with a user, or agents"),
        ((*USER, "--days", "0"), "days must be an integer from 1 to 3,650"),
        ((*USER, "--name", "a b"), "name must have 1 to 64 of the characters"),
        ((*USER, "--agents", ""), "agents must have 1 to 512 characters"),
    ],
)
def test_invalid_tokens_are_refused(amlog: Amlog, options: tuple[str, ...], message: str) -> None:
    assert message in amlog.error("tokens", "create", *options)


def test_a_missing_store_is_created_by_creating_a_token(amlog: Amlog) -> None:
    for arguments in (("list",), ("revoke", "app")):
        error = amlog.error("tokens", *arguments)
        assert "no such file; check the URL, or create the store with amlog tokens create" in error
