"""Tests of ``amlog serve`` with tokens, as a process: its callers, its log and its audit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import amlog
from tests.service.access.issuer import AUDIENCE, running_issuer
from tests.service.serving import Answer, ServerProcess

TOKEN = re.compile(rb"aml_[0-9a-f]{16}|[0-9a-f]{64}")
USER = ("--tenant", "acme", "--user", "42", "--agents", "support-*")
SECRET = "the-content"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def created(store: str, name: str, *options: str) -> str:
    ran = amlog.run("tokens", "create", "--store", store, "--name", name, *(options or USER))
    assert ran.status == 0, ran
    return ran.out.strip()


def lines_of(audit: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in audit.read_bytes().splitlines()]


def post(server: ServerProcess, token: str, operation: str, body: Any) -> Answer:
    return server.post(operation, body, authorization=f"Bearer {token}")


def test_tokens_of_one_store_work_on_every_server_until_they_are_revoked(store: str, tmp_path: Path) -> None:
    first = created(store, "first")
    with (
        ServerProcess(store, tmp_path / "log1", "--host", "0.0.0.0") as server,
        ServerProcess(store, tmp_path / "log2") as other,
    ):
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == (
            "each request needs a token, and without --cert tokens cross the network unencrypted\n"
        )
        refused = other.post("memory/get", {"key": "drink"})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert post(other, first, "memory/remember", {"key": "drink", "value": SECRET}).status == 200
        second = created(store, "second")
        for token in (first, second):
            assert SECRET in post(other, token, "memory/get", {"key": "drink"}).body.decode()
        assert amlog.run("tokens", "revoke", "first", "--store", store).status == 0
        assert post(other, first, "memory/get", {"key": "drink"}).status == 401
        assert post(other, second, "memory/get", {"key": "drink"}).status == 200
        assert {line["caller"] for line in other.log if line["message"] == "answered"} == {"", "first", "second"}


def test_a_server_that_started_without_tokens_notices_the_first_one_at_once(store: str, tmp_path: Path) -> None:
    body = {"agent": "support-1", "run": "r"}
    with ServerProcess(store, tmp_path / "log", "--tenant", "acme", "--user", "42") as server:
        assert server.post("memory/remember", {"key": "drink", "value": SECRET}).status == 200
        with server.connect() as stream:
            message = msgspec.json.encode(body)
            stream.sendall(
                b"POST /v1/runs/follow HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (server.port, len(message), message)
            )
            received = b""
            while b"data:" not in received:
                received += stream.recv(4_096)
            token = created(store, "first")
            for operation in ("memory/get", "runs/load_run", "runs/list_runs"):
                assert server.post(operation, {"key": "drink"} if "memory" in operation else body).status == 401
            event = {"type": "user_message", "timestamp": "2026-01-01T00:00:00Z", "data": {"message": SECRET}}
            assert post(server, token, "runs/append_events", {**body, "events": [event]}).status == 200
            while b"event: error" not in received:  # the append is not reported to a caller without a token
                received += stream.recv(4_096)
            assert received.count(b"data:") == 2
            assert b"unauthenticated" in received
        assert SECRET in post(server, token, "memory/get", {"key": "drink"}).body.decode()
        assert amlog.run("tokens", "revoke", "first", "--store", store).status == 0
        assert server.post("runs/list_runs", {}).status == 401


def test_the_end_of_the_last_token_opens_nothing(store: str, tmp_path: Path) -> None:
    created(store, "only")
    assert amlog.run("tokens", "revoke", "only", "--store", store).status == 0
    with ServerProcess(store, tmp_path / "log") as server:
        assert server.post("runs/list_runs", {}).status == 401


def test_the_audit_and_the_log_have_no_content_and_no_token(store: str, tmp_path: Path) -> None:
    token, audit = created(store, "app"), tmp_path / "audit"
    with ServerProcess(store, tmp_path / "log", "--audit", str(audit)) as server:
        event = {"type": "user_message", "timestamp": "2026-01-01T00:00:00Z", "data": {"message": SECRET}}
        bodies: list[tuple[str, dict[str, Any], int]] = [
            ("runs/append_events", {"agent": "support-1", "run": "r", "events": [event, event]}, 200),
            ("runs/append_events", {"agent": "support-1", "run": "r", "events": [event], "expected_version": 7}, 409),
            ("runs/append_events", {"agent": "billing", "run": "r", "events": [event]}, 403),
            ("runs/load_run", {"agent": "support-1", "run": "r"}, 200),
            ("memory/remember", {"key": "drink", "value": SECRET}, 200),
            ("memory/forget", {"key": "drink"}, 403),
            ("runs/append_events", {"agent": "support-1", "run": "r", "events": SECRET}, 422),
        ]
        for operation, body, status in bodies:
            answer = post(server, token, operation, body)
            assert answer.status == status, answer
            lines = lines_of(audit)
            assert (
                answer.headers["x-request-id"] in {line["request"] for line in lines}
                or status == 422
                or "load" in operation
            )
        server.process.terminate()
        server.process.wait(amlog.PATIENCE)
    lines = lines_of(audit)
    assert [(line["operation"], line["outcome"], line.get("events_count")) for line in lines] == [
        ("runs/append_events", "ok", 2),
        ("runs/append_events", "version_conflict", 1),
        ("runs/append_events", "access_denied", 1),
        ("memory/remember", "ok", None),
        ("memory/forget", "access_denied", None),
    ]
    assert {(line["caller"], line["tenant"], line["scopes"]["user"]) for line in lines} == {("app", "acme", "42")}
    for file in (audit, tmp_path / "log"):
        assert SECRET.encode() not in file.read_bytes()
        assert not TOKEN.search(file.read_bytes())
    assert audit.stat().st_mode & 0o777 == 0o600


def test_tokens_of_an_issuer_and_of_the_store_work_together(store: str, tmp_path: Path) -> None:
    own = created(store, "own")
    with running_issuer() as issuer:
        issuer.add_key("first")
        options = ("--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE, "--oidc-claim", "tenant=org")
        with ServerProcess(store, tmp_path / "log", *options) as server:
            user = issuer.token("first", org="acme", sub="42")
            other = issuer.token("first", org="acme", sub="43")
            assert post(server, user, "memory/remember", {"key": "drink", "value": SECRET}).status == 200
            assert SECRET in post(server, own, "memory/get", {"key": "drink"}).body.decode()
            assert post(server, other, "memory/get", {"key": "drink"}).json is None
            assert post(server, user, "runs/load_run", {"agent": "support-1", "run": "r"}).status == 403
            assert (
                post(server, issuer.token("first", org="acme", aud="other"), "memory/get", {"key": "k"}).status == 401
            )
            assert post(server, issuer.token("first"), "memory/get", {"key": "k"}).status == 401, "it has no claim org"
        lines = [line for line in server.log if line.get("operation") == "memory/remember"]
        assert lines[-1]["caller"] == "oidc:@memory/acme/user/42"


def test_an_issuer_that_cannot_be_reached_is_no_wrong_token(store: str, tmp_path: Path) -> None:
    own = created(store, "own")
    with running_issuer() as issuer:
        issuer.add_key("first")
        token = issuer.token("first")
    with ServerProcess(store, tmp_path / "log", "--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE) as server:
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == "each request needs a token\n"
        assert server.process.stdout.readline().startswith(
            "the keys of the issuer cannot be read, so its tokens are refused for now: "
        )
        assert post(server, token, "memory/get", {"key": "k"}).status == 503
        assert post(server, own, "memory/get", {"key": "k"}).status == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tenant", "acme", "--user", "42"), "--tenant is for a server without tokens"),
        (("--oidc-issuer", "https://acme.example"), "--oidc-issuer and --oidc-audience belong together"),
        (("--oidc-claim", "tenant=org"), "--oidc-claim needs both"),
        (("--oidc-issuer", "http://acme.example", "--oidc-audience", "a"), "must be a URL that begins with https://"),
        (("--oidc-issuer", "https://a.example", "--oidc-audience", "a", "--oidc-claim", "org"), "must be NAME=CLAIM"),
        (("--oidc-issuer", "https://a.example", "--oidc-audience", "a", "--oidc-claim", "x=y"), "must be NAME=CLAIM"),
        (("--audit", "{folder}/runs.db"), "is a file of the store"),
        (("--audit", "{folder}/missing/audit"), "the audit cannot be written"),
    ],
)
def test_wrong_options_are_refused(store: str, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    created(store, "app")
    arguments = [option.format(folder=tmp_path) for option in options]
    ran = amlog.run("serve", "--store", store, "--port", "0", *arguments)
    assert ran.status in (1, 2)
    assert message in ran.err
    assert ran.out == ""
