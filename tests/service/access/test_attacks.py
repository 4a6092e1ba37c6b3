"""Attacks on a server with tokens, over HTTP and gRPC. No answer may hold the content of another caller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.memory.records.principals import conversations_of, stream_of
from agent_memory_log.service.access import token_callers
from agent_memory_log.service.access.tokens import revoke_token
from agent_memory_log.service.server import Limits
from agent_memory_log.service.table import OPERATIONS
from tests.service.access.world import FOREIGN, GRANTS, MINE, NEIGHBOUR, STRANGER, GrpcWorld, World, world
from tests.service.serving import Answer

REFUSED = range(400, 500)
EVENT = {"type": "user_message", "timestamp": "2026-01-01T00:00:00Z", "data": {"message": "hi"}}


@pytest.fixture(scope="module", params=[World, GrpcWorld])
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world"), kind=request.param) as served:
        yield served


def check_refused(answer: Answer, statuses: Any = REFUSED) -> None:
    """Check that an answer is a refusal without foreign content and without a token."""
    assert answer.status in statuses, answer
    assert FOREIGN not in answer.body.decode()
    assert "aml_" not in answer.body.decode()


def bodies_for(agent: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every operation that names a run, for a run of an agent."""
    runs = [[agent, "r"]]
    return [
        ("runs/load_run", {"agent": agent, "run": "r"}),
        ("runs/find_events", {"agent": agent, "run": "r", "event_ids": ["e1"]}),
        ("runs/append_events", {"agent": agent, "run": "r", "events": [EVENT]}),
        ("runs/append_events", {"agent": agent, "run": "r", "events": [EVENT], "reserved": True}),
        ("runs/redact_events", {"agent": agent, "run": "r", "seqs": [1]}),
        ("runs/delete_run", {"agent": agent, "run": "r"}),
        ("runs/follow", {"agent": agent, "run": "r"}),
        ("runs/check", {"agent": agent}),
        ("runs/check", {"agent": agent, "run": "r"}),
        ("runs/list_runs", {"agent": agent}),
        ("runs/peek_runs", {"runs": runs}),
        ("runs/erasures", {"runs": runs}),
        ("memory/link_run", {"agent": agent, "run": "r"}),
        ("memory/link_runs", {"runs": runs}),
        ("memory/derive", {"agent": agent, "run": "r"}),
        ("memory/rederive", {"runs": runs}),
        ("memory/forget_all", {"runs": runs, "evidence": True}),
    ]


LOOK_ALIKES = (
    "billing",
    "support",
    "Support-1",
    "\u0455upport-1",
    "support\u2010one",
    "\uff53upport-1",
    " support-1",
    "\u200bsupport-1",
    "@support-1",
    "*",
    "@*",
    "@access",
    "@memory/acme/user/42",
    "@memory/acme/user/43",
    "@memory/acme%2Fuser%2F42/x/y",
    "",
)


@pytest.mark.parametrize("agent", LOOK_ALIKES)
def test_runs_of_other_agents_are_refused_in_every_field(attacked: World, agent: str) -> None:
    for operation, body in bodies_for(agent):
        check_refused(attacked.post("mine", operation, body), {403})


def test_the_ingested_conversations_of_others_are_refused_in_every_field(attacked: World) -> None:
    foreign = [conversations_of(principal.subject("user")) for principal in (NEIGHBOUR, STRANGER)]
    own = conversations_of(MINE.subject("user"))
    for agent in [
        *foreign,
        "conversations/acme/user/4?",
        "conversations/acme/user/42/x",
        "conversations/",
        f"{own}\u200b",
    ]:
        for name in ("every-agent", "every-agent-without-memory"):
            for operation, body in bodies_for(agent):
                check_refused(attacked.post(name, operation, body), {403})
    for operation, body in bodies_for(own):
        check_refused(attacked.post("every-agent-without-memory", operation, body), {403})
    narrowed = json.dumps({"tenant": "acme", "scopes": {"user": "42"}})
    for headers in ({}, {"amlog_principal": narrowed}):
        answer = attacked.post("every-agent", "runs/load_run", {"agent": own, "run": "r"}, **headers)
        assert b"I drink tea" in answer.body
    for name in ("every-agent", "every-agent-without-memory"):
        for operation in ("runs/list_runs", "runs/erasures"):
            answer = attacked.post(name, operation, {})
            assert answer.status == 200
            assert not any(agent in answer.body.decode() for agent in foreign)
    assert attacked.post("operator", "runs/load_run", {"agent": foreign[0], "run": "r"}).status == 200


@pytest.mark.parametrize("agent", ["support-1", "billing", "@access"])
def test_a_token_for_memory_reaches_no_run(attacked: World, agent: str) -> None:
    for operation, body in bodies_for(agent):
        check_refused(attacked.post("memory-only", operation, body), {403})


def test_no_operation_needs_no_token(attacked: World) -> None:
    bodies = dict(bodies_for("support-1"))
    for name in OPERATIONS:
        check_refused(attacked.send(name, bodies.get(name, {})), {401})


@pytest.mark.parametrize("name", [grant.name for grant in GRANTS if grant.principal is None])
def test_a_token_without_a_tenant_reaches_no_memory(attacked: World, name: str) -> None:
    bodies = {"memory/get": {"key": "drink"}, "memory/search": {"query": FOREIGN}, "memory/export_jsonl": {}}
    for operation, body in bodies.items():
        check_refused(attacked.post(name, operation, body), {403})
        principal = json.dumps({"tenant": "acme", "scopes": {"user": "42"}})
        check_refused(attacked.post(name, operation, body, amlog_principal=principal), {403})


def test_an_operator_cannot_use_the_run_of_the_tokens(attacked: World) -> None:
    """No caller creates or revokes tokens through the server."""
    for name in ("operator", "operator-of-mine"):
        for operation, body in bodies_for("@access"):
            check_refused(attacked.post(name, operation, {**body, "run": "tokens"} if "run" in body else body), {403})
        for body in ({"include_reserved": True}, {"include_reserved": True, "limit": 1}):
            assert b"@access" not in attacked.post(name, "runs/list_runs", body).body
        assert b"@access" not in attacked.post(name, "runs/erasures", {}).body
        assert attacked.post(name, "runs/load_run", {"agent": "billing", "run": "r"}).status == 200


def test_brackets_in_a_pattern_stand_for_themselves(attacked: World) -> None:
    reached = {
        agent
        for agent in ("a[1]", "a1", "y", "b1", "@c1", "@x", "billing")
        if attacked.post("brackets", "runs/load_run", {"agent": agent, "run": "r"}).status == 200
    }
    assert reached == {"a[1]", "b1", "@c1"}
    for body, agents in (({}, {"a[1]", "b1"}), ({"include_reserved": True}, {"a[1]", "b1", "@c1"})):
        listed = attacked.post("brackets", "runs/list_runs", body).json["runs"]
        assert {run["agent"] for run in listed} == agents


@pytest.mark.parametrize(
    ("name", "denied"),
    [
        ("reader", ("memory/remember", "memory/forget", "runs/append_events", "runs/delete_run", "memory/purge")),
        ("writer", ("memory/get", "memory/search", "memory/forget", "runs/load_run", "runs/delete_run")),
    ],
)
def test_each_operation_needs_its_right(attacked: World, name: str, denied: tuple[str, ...]) -> None:
    bodies: dict[str, Any] = {
        **dict(bodies_for("support-1")),
        "memory/remember": {"key": "k", "value": "v"},
        "memory/forget": {"key": "drink"},
        "memory/get": {"key": "drink"},
        "memory/search": {"query": "drink"},
    }
    for operation in denied:
        check_refused(attacked.post(name, operation, bodies.get(operation, {})), {403})


def test_a_token_that_may_only_write_reads_no_record(attacked: World) -> None:
    record = attacked.post("mine", "memory/get", {"key": "drink"}).json["id"]
    old = {"data": {"kind": "preference", "data": {"key": "drink", "value": "x"}}, "valid_from": "2001-01-01T00:00:00Z"}
    for operation, body in (
        ("memory/write", {"candidates": [old]}),
        ("memory/remember", {"key": "drink", "value": "tea"}),
        ("memory/update", {"id": record, "importance": 0.6}),
        ("memory/derive", {"agent": "support-1", "run": "r"}),
        ("memory/rederive", {}),
    ):
        written = attacked.post("writer", operation, body)
        assert written.status == 200, written
        assert b"tea" not in written.body
        assert b"kettle" not in written.body
    assert attacked.post("mine", "memory/get", {"key": "drink"}).json["data"]["data"]["value"] == "tea"


NAMES = (
    ("umbrella", "42"),
    ("acme", "43"),
    ("ACME", "42"),
    ("acme ", "42"),
    (" acme", "42"),
    ("\u0430cme", "42"),
    ("\uff41cme", "42"),
    ("acme\u200b", "42"),
    ("acme", "42\u0301"),
    ("acme", "\u0664\u0662"),
    ("acme", "42/"),
    ("acme", "42%2F"),
    ("acme%2Fuser", "42"),
    ("acme/user/42", "x"),
    ("acme", ""),
    ("", "42"),
    ("acme", "*"),
    ("*", "*"),
)


@pytest.mark.parametrize(("tenant", "user"), NAMES)
def test_the_principal_of_a_request_is_never_wider_than_the_token(attacked: World, tenant: str, user: str) -> None:
    header = json.dumps({"tenant": tenant, "scopes": {"user": user}})
    check_refused(attacked.post("mine", "memory/get", {"key": "drink"}, amlog_principal=header), {403, 422})


PRINCIPAL = '{"tenant": "acme", "scopes": {"user": "42"}}'


@pytest.mark.parametrize(
    "header",
    [
        "",
        "acme",
        "null",
        "[]",
        "{}",
        '{"tenant": "acme"}',
        '{"tenant": "acme", "scopes": {}}',
        '{"tenant": "acme", "scopes": []}',
        '{"tenant": 1, "scopes": {"user": "42"}}',
        '{"tenant": "acme", "scopes": {"user": 42}}',
        '{"tenant": "acme", "scopes": {"user": null}}',
        '{"tenant": "acme", "scopes": {"user": "42"}, "rights": ["erase"]}',
        '{"tenant": "acme", "scopes": {"user": "42", "workspace": "ops"}}',
        '{"tenant": "acme", "scopes": {"user": "42"}, "tenant": "umbrella"}',
        '{"tenant": "acme", "scopes": {"user": "42", "user": "43"}}',
        '{"tenant": "acme", "scopes": {"user": "42"}, "scopes": {"user": "43"}}',
        f"{PRINCIPAL} {PRINCIPAL}",
        '{"tenant": "acme", "scopes": {"user": "\\ud800"}}',
        '{"tenant": "acme", "scopes": {"user": "42\\u0000"}}',
        "[" * 20_000,
        json.dumps({"tenant": "acme", "scopes": {"user": "4" * 30_000}}),
        json.dumps({"tenant": "acme", "scopes": {str(number): "x" for number in range(2_000)}}),
    ],
    ids=lambda header: header[:60],
)
def test_a_principal_of_another_form_is_refused(attacked: World, header: str) -> None:
    check_refused(attacked.post("mine", "memory/get", {"key": "drink"}, amlog_principal=header), {403, 422})


def test_a_narrower_principal_is_the_only_one(attacked: World) -> None:
    answer = attacked.post("mine", "memory/get", {"key": "drink"}, amlog_principal=PRINCIPAL)
    assert answer.json["data"]["data"]["value"] == "tea"


def raw(attacked: World, request: bytes) -> tuple[int, bytes]:
    """Send bytes and return the status and the rest of the answer."""
    with attacked.server.connect() as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return int(answer.split(b" ", 2)[1]), answer


def request_of(attacked: World, path: str, lines: list[bytes], body: Any) -> bytes:
    encoded = msgspec.json.encode(body)
    head = [
        f"POST {path} HTTP/1.1".encode(),
        f"Host: {attacked.server.host}:{attacked.server.port}".encode(),
        b"Content-Type: application/json",
        b"Connection: close",
        b"Content-Length: %d" % len(encoded),
        *lines,
    ]
    return b"\r\n".join([*head, b"", encoded])


FOREIGN_RUN = {"agent": "billing", "run": "r"}
PATHS = (
    "/v1/memory/../runs/load_run",
    "/v1/memory/%2e%2e/runs/load_run",
    "/v1//runs/load_run",
    "/v1/runs//load_run",
    "/v1/runs/load_run/",
    "/v1/runs%2Fload_run",
    "/v1/runs%252Fload_run",
    "/v1/runs/load_run%00",
    "/v1/runs/load_run%0d%0aX:y",
    "/v1/runs/load_run;agent=support-1",
    "/v1/runs/load_run?agent=support-1",
    "/v1/runs/load_run#x",
    "/v1/RUNS/LOAD_RUN",
    "/v1/runs/load\u005frun",
    "/v1/runs\\load_run",
    "/V1/runs/load_run",
    "/v1/%72uns/load_run",
    "http://other.example/v1/runs/load_run",
    "/v1/runs/load_run/../../memory/get",
    "/openapi.json/../v1/runs/load_run",
    "/v1/" + "a" * 30_000,
    "/v1/%ff%fe",
    "*",
)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:40])
@pytest.mark.parametrize("name", ["mine", "memory-only"])
def test_no_path_leads_around_the_check(attacked: World, path: str, name: str) -> None:
    token = attacked.tokens[name].encode()
    request = request_of(attacked, path, [b"Authorization: Bearer " + token], FOREIGN_RUN)
    status, answer = raw(attacked, request)
    assert status in REFUSED
    assert FOREIGN.encode() not in answer
    assert token not in answer


@pytest.mark.parametrize(
    ("lines", "statuses"),
    [
        ([b"Authorization: Bearer {mine}", b"Authorization: Bearer {stranger}"], {400}),
        ([b"Authorization: Bearer {stranger}", b"Authorization: Bearer {mine}"], {400}),
        ([b"Authorization: Bearer {mine}", b"authorization: Bearer {mine}"], {400}),
        ([b"Authorization: Bearer {mine}", b"Authorization:"], {400}),
        ([b"Authorization: Bearer {mine}, Bearer {stranger}"], {401}),
        ([b"Authorization: Bearer {mine}\x00"], {400, 401}),
        ([b"Authorization: Bearer {mine}\tx"], {400, 401}),
        ([b"Authorization: Bearer \xff{mine}"], {400, 401}),
        ([b"Authorization: Bearer", b" {mine}"], {400, 401}),
        ([b"Authorization : Bearer {mine}"], {400, 401}),
        ([b"X-Authorization: Bearer {mine}"], {401}),
        ([b"Cookie: authorization=Bearer {mine}"], {401}),
        ([b"Proxy-Authorization: Bearer {mine}"], {401}),
        ([b"Authorization: Bearer " + b"a" * 60_000], {401, 431}),
        ([b"Authorization: Bearer {mine}", b"Amlog-Principal: " + PRINCIPAL.encode(), b"Amlog-Principal: {}"], {400}),
        ([b"Authorization: Bearer {mine}", b"Amlog-Principal: " + PRINCIPAL.encode(), b"Content-Length: 1"], {400}),
        ([b"Authorization: Bearer {mine}", b"Transfer-Encoding: chunked"], {400}),
    ],
)
def test_a_request_has_one_token_in_one_header(attacked: World, lines: list[bytes], statuses: set[int]) -> None:
    for name in ("mine", "stranger"):
        lines = [line.replace(b"{%s}" % name.encode(), attacked.tokens[name].encode()) for line in lines]
    status, answer = raw(attacked, request_of(attacked, "/v1/memory/get", lines, {"key": "drink"}))
    assert status in statuses, answer
    assert FOREIGN.encode() not in answer
    assert b"tea" not in answer


def test_evidence_that_cites_a_foreign_run_shows_no_text(attacked: World) -> None:
    foreign = [{"agent": "billing", "run": "r", "seq": 1, "event_id": "e1"}, {"agent": "a1", "run": "r", "seq": 1}]
    remembered = attacked.post("mine", "memory/remember", {"key": "cites", "value": "x", "evidence": foreign})
    assert remembered.status == 200
    explained = attacked.post("mine", "memory/explain", {"id": remembered.json["record"]["id"]})
    assert [(line["text"], line["reason"]) for line in explained.json["evidence"]] == [
        ("", "not linked to this subject")
    ] * 2
    for agent in ("@access", stream_of(NEIGHBOUR.subject("user"))):
        reserved = {"agent": agent, "run": "records", "seq": 1}
        body = {"key": "cites", "value": "x", "evidence": [reserved]}
        check_refused(attacked.post("mine", "memory/remember", body), {422})
        exported = attacked.post("mine", "memory/export_jsonl", {}).json
        header, line, *_ = exported.splitlines()
        changed = {
            **msgspec.json.decode(line),
            "evidence": [reserved],
            "data": {"key": "imported", "value": agent},
        }
        data = json.dumps({"format": msgspec.json.decode(header)["format"]}) + "\n" + json.dumps(changed)
        imported = attacked.post("mine", "memory/import_jsonl", {"data": data})
        if agent == "@access":
            check_refused(imported, {422})
            continue
        record = imported.json["outcomes"][0]["record"]["id"]
        explained = attacked.post("mine", "memory/explain", {"id": record}).json["evidence"]
        assert [(line["text"], line["reason"]) for line in explained] == [("", "imported from another memory")]
    for operation in ("memory/search", "memory/context"):
        assert FOREIGN not in attacked.post("mine", operation, {"query": FOREIGN}).body.decode()
    before = attacked.post("operator", "runs/load_run", {"agent": "billing", "run": "r"}).json
    forgotten = attacked.post("mine", "memory/forget", {"key": "cites", "evidence": True, "sweep": True})
    assert forgotten.status == 200
    assert attacked.post("operator", "runs/load_run", {"agent": "billing", "run": "r"}).json == before


def test_the_records_of_others_cannot_be_read_or_changed_by_their_ids(attacked: World) -> None:
    for name in ("neighbour", "stranger"):
        foreign = attacked.post(name, "memory/get", {"key": "drink"}).json
        assert FOREIGN in foreign["data"]["data"]["value"]
        record = foreign["id"]
        assert attacked.post("mine", "memory/get", {"id": record}).json is None
        assert attacked.post("mine", "memory/explain", {"id": record}).json is None
        check_refused(attacked.post("mine", "memory/update", {"id": record, "value": "x"}), {422})
        assert attacked.post("mine", "memory/forget", {"id": record}).json["records"] == 0
        assert attacked.post(name, "memory/get", {"key": "drink"}).json == foreign


def test_a_candidate_for_a_scope_of_others_is_blocked(attacked: World) -> None:
    candidate = {"data": {"kind": "preference", "data": {"key": "drink", "value": "poison"}}, "scope": "workspace"}
    written = attacked.post("mine", "memory/write", {"candidates": [candidate]}).json
    assert [outcome["action"] for outcome in written["outcomes"]] == ["blocked"]
    for scope in ("workspace", "user/43", "../43", "43"):
        check_refused(attacked.post("mine", "memory/get", {"key": "drink", "scope": scope}), {403, 422})
        check_refused(attacked.post("mine", "memory/search", {"query": FOREIGN, "scopes": [scope]}), {403, 422})
        check_refused(attacked.post("mine", "memory/forget_all", {"scopes": [scope]}), {403, 422})


def test_an_import_reaches_only_the_own_memory(attacked: World) -> None:
    exported = attacked.post("neighbour", "memory/export_jsonl", {}).json
    assert FOREIGN in exported
    imported = attacked.post("stranger", "memory/import_jsonl", {"data": exported})
    assert imported.status == 200, "the neighbour may give it away, and the stranger keeps a copy"
    assert attacked.post("mine", "memory/get", {"key": "drink"}).json["data"]["data"]["value"] == "tea"


def test_a_link_opens_a_run_to_its_scope_and_nothing_else(attacked: World) -> None:
    """A caller may share the runs that it may use with a scope. The tokens of this scope need not allow the agent."""
    hits = attacked.post("memory-only", "memory/search", {"query": "refund for a kettle", "kinds": ["message"]}).json
    assert [hit["message"]["agent"] for hit in hits["hits"]] == ["support-1"]
    check_refused(attacked.post("memory-only", "runs/load_run", {"agent": "support-1", "run": "r"}), {403})
    for name in ("neighbour", "stranger"):
        assert not attacked.post(name, "memory/search", {"query": "refund for a kettle"}).json["hits"]


def test_equal_looking_users_have_separate_memories(attacked: World) -> None:
    """The two forms of a letter with an accent look the same."""
    for name, value in (("composed", "tea"), ("decomposed", FOREIGN)):
        assert attacked.post(name, "memory/remember", {"key": "drink", "value": value}).status == 200
    assert attacked.post("composed", "memory/get", {"key": "drink"}).json["data"]["data"]["value"] == "tea"
    assert attacked.post("composed", "memory/search", {"query": FOREIGN}).json["hits"] == []


def test_lists_and_journals_hold_only_the_own_runs(attacked: World) -> None:
    assert (
        attacked.post("operator", "runs/append_events", {"agent": "b1", "run": "gone", "events": [EVENT]}).status == 200
    )
    assert attacked.post("operator", "runs/delete_run", {"agent": "b1", "run": "gone"}).status == 200
    for body in ({}, {"include_reserved": True}, {"limit": 1, "include_reserved": True}):
        listed = attacked.post("mine", "runs/list_runs", body).json
        assert {run["agent"] for run in listed["runs"]} == {"support-1"}
    assert not attacked.post("mine", "runs/erasures", {}).json["entries"]
    check_refused(attacked.post("mine", "runs/expire_runs", {}), {403})
    check_refused(attacked.post("mine", "runs/check", {}), {403})


def test_unknown_and_wrong_tokens_take_the_same_steps(attacked: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bool] = []

    class Hmac:
        @staticmethod
        def compare_digest(left: str, right: str) -> bool:
            compared.append(left == right)
            return compared[-1]

    monkeypatch.setattr(token_callers, "hmac", Hmac)
    token = attacked.tokens["mine"]
    for authorization in (token, token[:-1] + ("0" if token[-1] != "0" else "1"), f"aml_{'0' * 16}_{'0' * 64}"):
        attacked.server.post("memory/get", {"key": "drink"}, authorization=f"Bearer {authorization}")
    assert compared == [True, False, False]


@given(st.binary(max_size=200))
def test_no_header_causes_a_failure(attacked: World, value: bytes) -> None:
    lines = [b"Authorization: Bearer " + value.translate(None, b"\r\n")]
    status, answer = raw(attacked, request_of(attacked, "/v1/memory/get", lines, {"key": "drink"}))
    assert status in {400, 401}, answer


def test_a_revoked_token_ends_an_open_stream(tmp_path: Any) -> None:
    """Also an idle stream ends, with the next sign of life. Nothing is sent after the token was revoked."""
    with world(tmp_path, Limits(heartbeat_seconds=0.1)) as served:
        for is_idle in (True, False):
            name = "mine" if is_idle else "reader"
            encoded = request_of(
                served,
                "/v1/runs/follow",
                [b"Authorization: Bearer " + served.tokens[name].encode()],
                {"agent": "support-1", "run": "r"},
            )
            with served.server.connect() as connection:
                connection.sendall(encoded)
                lines = connection.makefile("rb")
                while not (line := lines.readline()).startswith(b"data: "):
                    assert line
                revoked = asyncio.run_coroutine_threadsafe(revoke_token(served.server.store, name), served.server.loop)
                revoked.result(60)
                if not is_idle:
                    body = {"agent": "support-1", "run": "r", "events": [EVENT]}
                    assert served.post("writer", "runs/append_events", body).status == 200
                rest = b"".join(lines.readline() for _ in range(60))  # signs of life would otherwise never end
                assert b"event: error" in rest
                assert b'"code":"unauthenticated"' in rest
                assert b'"version"' not in rest
            check_refused(served.post(name, "runs/load_run", {"agent": "support-1", "run": "r"}), {401})
