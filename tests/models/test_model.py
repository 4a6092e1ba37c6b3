"""Tests of the model port over real HTTP: its requests, its retries, and the error for each failure."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from agent_memory_log.errors import (
    InvalidArgument,
    ModelEmpty,
    ModelFailed,
    ModelInvalidJson,
    ModelInvalidSchema,
    ModelTimeout,
    ModelUnavailable,
)
from agent_memory_log.models import Completion, ModelMessage, ModelPort, ScriptedModel
from agent_memory_log.models.answers import read_answer, schema_of
from agent_memory_log.models.deadline import Deadline
from agent_memory_log.models.openai_chat import DEFAULT_MODEL, OpenAIModel
from agent_memory_log.models.settings import ModelSettings
from tests.models.model_server import ModelServer, Reply, says, says_json

QUESTION = [ModelMessage("system", "Be brief."), ModelMessage("user", "What now?")]
SCHEMA: dict[str, Any] = {"type": "object", "title": "test schema"}
LONG_AGO, FAR_AWAY = "Sat, 01 Jan 2000 00:00:00 GMT", "Fri, 31 Dec 9999 00:00:00 GMT"
BUSY = Reply(status=429, body=b'{"error": {"message": "slow down"}}')
BROKEN = Reply(status=500, body=b"oops")


def adapter_for(server: ModelServer | str, **settings: Any) -> OpenAIModel:
    url = server if isinstance(server, str) else server.url
    return OpenAIModel(ModelSettings(base_url=url, backoff_seconds=0.001, **settings), api_key="sk-of-the-test")


def ask(
    replies: Sequence[Reply], *, timeout: float = 30.0, model: str = "", **settings: Any
) -> tuple[Completion | ModelFailed, ModelServer]:
    """Return the answer or the error, and the server with its requests."""
    with ModelServer(replies) as server, adapter_for(server, **settings) as adapter:
        try:
            return adapter.complete(QUESTION, schema=SCHEMA, max_tokens=77, timeout=timeout, model=model), server
        except ModelFailed as error:
            return error, server


def test_answer_has_its_token_usage() -> None:
    outcome, server = ask([says_json({"ok": True})])
    assert outcome == Completion('{"ok": true}', {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-of-the-test"
    assert request.body["model"] == DEFAULT_MODEL
    assert request.body["temperature"] == 0
    assert request.body["max_tokens"] == 77
    assert request.body["response_format"] == {"type": "json_object"}
    system, contract, user = request.body["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert contract["role"] == "system"
    assert "JSON" in contract["content"]
    assert '"title":"test schema"' in contract["content"]
    assert user == {"role": "user", "content": "What now?"}


def test_model_of_the_call_overrides_the_settings() -> None:
    assert ask([says("x")], name="small")[1].requests[0].body["model"] == "small"
    assert ask([says("x")], name="small", model="large")[1].requests[0].body["model"] == "large"


@pytest.mark.parametrize(
    ("usage", "counts"),
    [(None, {}), ({"total_tokens": 3, "details": {"cached": 1}, "fast": True, "cost": 0.1}, {"total_tokens": 3})],
)
def test_usage_has_only_integer_counts(usage: dict[str, object] | None, counts: dict[str, int]) -> None:
    outcome, _ = ask([says("x", usage)])
    assert isinstance(outcome, Completion)
    assert outcome.usage == counts


@pytest.mark.parametrize(
    "temporary",
    [
        BUSY,
        BROKEN,
        Reply(status=503),
        Reply(status=408),
        Reply(status=409),
        Reply(status=429, headers={"Retry-After": "0"}),
        Reply(status=429, headers={"Retry-After": "0.001"}),
        Reply(status=429, headers={"Retry-After": LONG_AGO}),
        Reply(status=429, headers={"Retry-After": "nan"}),
        Reply(status=429, headers={"Retry-After": "soon"}),
        Reply(cut=-1),
        Reply(cut=1),
    ],
    ids=lambda reply: f"{reply.status} {reply.headers.get('Retry-After', '')} {reply.cut}",
)
def test_temporary_failure_is_retried(temporary: Reply) -> None:
    outcome, server = ask([temporary, temporary, says("at last")])
    assert isinstance(outcome, Completion)
    assert outcome.text == "at last"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "error"),
    [(BUSY, ModelUnavailable), (BROKEN, ModelUnavailable), (Reply(cut=-1), ModelTimeout), (Reply(cut=1), ModelTimeout)],
    ids=["429", "500", "closed", "closed half way"],
)
@pytest.mark.parametrize("attempts", [1, 3])
def test_repeated_failure_is_raised_after_the_last_attempt(
    reply: Reply, error: type[ModelFailed], attempts: int
) -> None:
    outcome, server = ask([reply], attempts=attempts)
    assert isinstance(outcome, ModelFailed)
    assert type(outcome) is error
    assert outcome.__cause__ is not None
    assert len(server.requests) == attempts


def test_server_message_is_in_the_error() -> None:
    outcome, _ = ask([BUSY], attempts=1)
    assert "429" in str(outcome)
    assert "slow down" in str(outcome)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_permanent_failure_is_not_retried(status: int) -> None:
    outcome, server = ask([Reply(status=status)])
    assert type(outcome) is ModelUnavailable
    assert len(server.requests) == 1


def test_server_can_forbid_retries() -> None:
    outcome, server = ask([Reply(status=429, headers={"x-should-retry": "false"})])
    assert type(outcome) is ModelUnavailable
    assert len(server.requests) == 1


@pytest.mark.parametrize("pause", ["2", FAR_AWAY])
def test_retry_after_beyond_the_deadline_is_not_waited_for(pause: str) -> None:
    outcome, server = ask([Reply(status=429, headers={"Retry-After": pause}), says("late")], timeout=1)
    assert type(outcome) is ModelUnavailable
    assert len(server.requests) == 1


def test_backoff_beyond_the_deadline_is_not_waited_for() -> None:
    with ModelServer([BUSY]) as server:
        settings = ModelSettings(base_url=server.url, backoff_seconds=2.0)
        with OpenAIModel(settings, api_key="k") as adapter, pytest.raises(ModelUnavailable):
            adapter.complete(QUESTION, schema=SCHEMA, max_tokens=1, timeout=1)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "slow",
    [
        Reply(hangs=True),
        Reply(stalls=1, body=b"{     }"),
        Reply(status=500, stalls=1, body=b"sorry, but"),
        Reply(drips=True, body=b" " * 100_000),
    ],
    ids=["silent", "stalled", "stalled in an error", "dripping"],
)
def test_slow_server_is_a_timeout_shared_by_all_attempts(slow: Reply) -> None:
    outcome, server = ask([slow], timeout=0.3, attempts=50)
    assert type(outcome) is ModelTimeout
    assert outcome.code == "llm_timeout"
    assert len(server.requests) <= 2


def test_shorter_timeout_of_the_settings_applies() -> None:
    busy = Reply(status=429, headers={"Retry-After": "2"})
    outcome, server = ask([busy, says("late")], timeout=30, timeout_seconds=1.0)
    assert type(outcome) is ModelUnavailable
    assert len(server.requests) == 1


def test_no_connection_is_a_timeout() -> None:
    with socket.socket() as unused_socket:  # bound but not listening, so the port refuses connections
        unused_socket.bind(("127.0.0.1", 0))
        with (
            adapter_for(f"http://127.0.0.1:{unused_socket.getsockname()[1]}/v1") as adapter,
            pytest.raises(ModelTimeout),
        ):
            adapter.complete(QUESTION, schema=SCHEMA, max_tokens=1, timeout=30)


def test_zero_timeout_raises_without_a_request() -> None:
    outcome, server = ask([says("x")], timeout=0)
    assert type(outcome) is ModelTimeout
    assert not server.requests


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(body=b""), ModelInvalidJson),
        (Reply(body=b'{"choices": ['), ModelInvalidJson),
        (Reply(body=b"<html>welcome to the hotel</html>"), ModelInvalidJson),
        (Reply(body=b'{"choices": "\xff"}'), ModelInvalidJson),
        (Reply(body=b"[" * 100_000), ModelInvalidJson),
        (Reply(body=b"[]"), ModelInvalidSchema),
        (Reply(body=b"{}"), ModelInvalidSchema),
        (Reply(body=b'{"choices": []}'), ModelInvalidSchema),
        (Reply(body=b'{"choices": [{}]}'), ModelInvalidSchema),
        (Reply(body=b'{"choices": [{"message": {"content": 7}}]}'), ModelInvalidSchema),
        (says(""), ModelEmpty),
        (says(" \n"), ModelEmpty),
        (says(None), ModelEmpty),
        (Reply(body=b'{"choices": [{"message": {}}]}'), ModelEmpty),
    ],
    ids=lambda value: value.body[:40].decode("latin-1") if isinstance(value, Reply) else value.__name__,
)
def test_invalid_response_has_a_reason_and_no_retry(reply: Reply, error: type[ModelFailed]) -> None:
    outcome, server = ask([reply])
    assert type(outcome) is error
    assert len(server.requests) == 1


def test_missing_api_key_has_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY is not set"):
        OpenAIModel(ModelSettings())
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY is not set"):
        OpenAIModel(ModelSettings())


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-sécret"])
def test_error_for_an_unsendable_key_does_not_show_the_key(key: str) -> None:
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY") as raised:
        OpenAIModel(ModelSettings(), api_key=key)
    assert "cret" not in str(raised.value)


def test_environment_sets_server_model_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer([says("x")]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        monkeypatch.setenv("OPENAI_MODEL", "from-env")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_TIMEOUT_SECONDS", "20")
        with OpenAIModel() as adapter:
            adapter.complete(QUESTION, schema=SCHEMA, max_tokens=1, timeout=30)
        (request,) = server.requests
    assert request.headers["authorization"] == "Bearer sk-env"
    assert request.body["model"] == "from-env"


def test_error_for_unsendable_text_names_the_message() -> None:
    with ModelServer([says("x")]) as server, adapter_for(server) as adapter:
        with pytest.raises(InvalidArgument, match=r"messages\[0\].content"):
            adapter.complete([ModelMessage("user", "\ud800")], schema=SCHEMA, max_tokens=1, timeout=30)
        assert not server.requests


def test_messages_keep_their_roles() -> None:
    with ModelServer([says("x")]) as server, adapter_for(server) as adapter:
        conversation = [ModelMessage("user", "a"), ModelMessage("assistant", "b"), ModelMessage("user", "c")]
        adapter.complete(conversation, schema=SCHEMA, max_tokens=1, timeout=30)
        (request,) = server.requests
    contract, *rest = request.body["messages"]
    assert contract["role"] == "system"
    assert [(message["role"], message["content"]) for message in rest] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]


def test_openai_is_imported_only_when_the_adapter_is_created() -> None:
    code = (
        "import sys, agent_memory_log.memory, agent_memory_log.models, agent_memory_log.memory.extraction; "
        "assert not {'openai', 'pydantic'} & set(sys.modules); "
        "import agent_memory_log.models.openai_chat; assert 'openai' not in sys.modules; "
        "sys.modules['openai'] = None; "
        "agent_memory_log.models.openai_chat.OpenAIModel(api_key='k')"
    )
    completed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "agent_memory_log.errors.InvalidArgument: the openai client cannot be imported" in completed.stderr
    assert "agent-memory-log[memory]" in completed.stderr


def test_scripted_model_returns_its_answers_in_order() -> None:
    model = ScriptedModel(["plain", {"a": 1}, ModelTimeout("slow"), " "])
    port: ModelPort = model

    def complete() -> str:
        return port.complete(QUESTION, schema=SCHEMA, max_tokens=5, timeout=1, model="m").text

    assert complete() == "plain"
    assert complete() == '{"a":1}'
    with pytest.raises(ModelTimeout, match="slow"):
        complete()
    with pytest.raises(ModelEmpty):
        complete()
    with pytest.raises(ModelUnavailable, match="no answer to question 5"):
        complete()
    assert len(model.asked) == 5
    assert model.asked[0].messages == tuple(QUESTION)
    assert (model.asked[0].max_tokens, model.asked[0].timeout, model.asked[0].model) == (5, 1, "m")


class Contract(BaseModel, strict=True):
    count: int
    share: float = 0.0
    word: str = ""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ModelInvalidJson),
        ("{", ModelInvalidJson),
        ("```json\n{}\n```", ModelInvalidJson),
        ("[" * 100_000, ModelInvalidJson),
        ("[]", ModelInvalidSchema),
        ("null", ModelInvalidSchema),
        ("{}", ModelInvalidSchema),
        ('{"count": true}', ModelInvalidSchema),
        ('{"count": 1.5}', ModelInvalidSchema),
        ('{"count": "1"}', ModelInvalidSchema),
        ('{"count": 1, "share": NaN}', ModelInvalidSchema),
        ('{"count": 1, "share": -Infinity}', ModelInvalidSchema),
        ('{"count": 1, "word": "\\ud800"}', ModelInvalidSchema),
    ],
)
def test_answer_that_breaks_its_contract_raises(text: str, error: type[ModelFailed]) -> None:
    with pytest.raises(error):
        read_answer(text, Contract)


def test_contract_error_names_the_path_and_never_the_value() -> None:
    value = "secret"[::-1]  # not written out, because a traceback also shows the lines of this file
    with pytest.raises(ModelInvalidSchema, match="count") as raised:
        read_answer(f'{{"count": "{value}"}}', Contract)
    assert value not in "".join(traceback.format_exception(raised.value))


def test_valid_answer_is_decoded_and_unknown_fields_are_ignored() -> None:
    assert read_answer('{"count": 3, "share": 1, "more": "ignored"}', Contract) == Contract(count=3, share=1.0)
    properties = schema_of(Contract)["properties"]
    assert isinstance(properties, dict)
    assert properties.keys() == {"count", "share", "word"}


def test_deadline_returns_the_remaining_seconds() -> None:
    now = 100.0

    def timer() -> float:
        return now

    deadline = Deadline(5, timer)
    assert (deadline.left(), deadline.has_passed) == (5, False)
    now = 104.5
    assert (deadline.left(), deadline.has_passed) == (0.5, False)
    now = 105.0
    assert (deadline.left(), deadline.has_passed) == (0, True)
