"""The model port, over real HTTP: what is asked, what is tried again, and the reason that each failure ends in."""

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
SCHEMA: dict[str, Any] = {"type": "object", "title": "of the test"}
LONG_AGO, FAR_AWAY = "Sat, 01 Jan 2000 00:00:00 GMT", "Fri, 31 Dec 9999 00:00:00 GMT"
BUSY = Reply(status=429, body=b'{"error": {"message": "slow down"}}')
BROKEN = Reply(status=500, body=b"oops")


def impatient(server: ModelServer | str, **settings: Any) -> OpenAIModel:
    url = server if isinstance(server, str) else server.url
    return OpenAIModel(ModelSettings(base_url=url, backoff_seconds=0.001, **settings), api_key="sk-of-the-test")


def ask(
    replies: Sequence[Reply], *, timeout: float = 30.0, model: str = "", **settings: Any
) -> tuple[Completion | ModelFailed, ModelServer]:
    """The answer or the error, and the server for what it was asked."""
    with ModelServer(replies) as server, impatient(server, **settings) as adapter:
        try:
            return adapter.complete(QUESTION, schema=SCHEMA, max_tokens=77, timeout=timeout, model=model), server
        except ModelFailed as error:
            return error, server


def test_answer_has_its_token_usage() -> None:
    found, server = ask([says_json({"ok": True})])
    assert found == Completion('{"ok": true}', {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
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
    assert '"title":"of the test"' in contract["content"]
    assert user == {"role": "user", "content": "What now?"}


def test_a_call_names_its_model_before_the_settings_do() -> None:
    assert ask([says("x")], name="small")[1].requests[0].body["model"] == "small"
    assert ask([says("x")], name="small", model="large")[1].requests[0].body["model"] == "large"


@pytest.mark.parametrize(
    ("usage", "counts"),
    [(None, {}), ({"total_tokens": 3, "details": {"cached": 1}, "fast": True, "cost": 0.1}, {"total_tokens": 3})],
)
def test_usage_has_only_integer_counts(usage: dict[str, object] | None, counts: dict[str, int]) -> None:
    found, _ = ask([says("x", usage)])
    assert isinstance(found, Completion)
    assert found.usage == counts


@pytest.mark.parametrize(
    "passing",
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
def test_temporary_failure_is_retried(passing: Reply) -> None:
    found, server = ask([passing, passing, says("at last")])
    assert isinstance(found, Completion)
    assert found.text == "at last"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "error"),
    [(BUSY, ModelUnavailable), (BROKEN, ModelUnavailable), (Reply(cut=-1), ModelTimeout), (Reply(cut=1), ModelTimeout)],
    ids=["429", "500", "closed", "closed half way"],
)
@pytest.mark.parametrize("attempts", [1, 3])
def test_permanent_failure_ends_the_retries(reply: Reply, error: type[ModelFailed], attempts: int) -> None:
    found, server = ask([reply], attempts=attempts)
    assert isinstance(found, ModelFailed)
    assert type(found) is error
    assert found.__cause__ is not None
    assert len(server.requests) == attempts


def test_server_message_is_in_the_error() -> None:
    found, _ = ask([BUSY], attempts=1)
    assert "429" in str(found)
    assert "slow down" in str(found)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_permanent_failure_is_not_retried(status: int) -> None:
    found, server = ask([Reply(status=status)])
    assert type(found) is ModelUnavailable
    assert len(server.requests) == 1


def test_server_can_forbid_retries() -> None:
    found, server = ask([Reply(status=429, headers={"x-should-retry": "false"})])
    assert type(found) is ModelUnavailable
    assert len(server.requests) == 1


@pytest.mark.parametrize("pause", ["2", FAR_AWAY])
def test_a_pause_beyond_the_deadline_is_not_waited_for(pause: str) -> None:
    found, server = ask([Reply(status=429, headers={"Retry-After": pause}), says("late")], timeout=1)
    assert type(found) is ModelUnavailable
    assert len(server.requests) == 1


def test_a_pause_that_would_outlast_the_call_is_not_begun() -> None:
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
def test_a_slow_server_is_a_timeout_and_all_attempts_share_the_time(slow: Reply) -> None:
    found, server = ask([slow], timeout=0.3, attempts=50)
    assert type(found) is ModelTimeout
    assert found.code == "llm_timeout"
    assert len(server.requests) <= 2


def test_the_settings_may_have_less_patience_than_the_caller() -> None:
    busy = Reply(status=429, headers={"Retry-After": "2"})
    found, server = ask([busy, says("late")], timeout=30, timeout_seconds=1.0)
    assert type(found) is ModelUnavailable
    assert len(server.requests) == 1


def test_no_connection_is_a_timeout() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and nobody answers
        taken.bind(("127.0.0.1", 0))
        with impatient(f"http://127.0.0.1:{taken.getsockname()[1]}/v1") as adapter, pytest.raises(ModelTimeout):
            adapter.complete(QUESTION, schema=SCHEMA, max_tokens=1, timeout=30)


def test_no_time_is_a_timeout_without_a_call() -> None:
    found, server = ask([says("x")], timeout=0)
    assert type(found) is ModelTimeout
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
    found, server = ask([reply])
    assert type(found) is error
    assert len(server.requests) == 1


def test_missing_api_key_has_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY is not set"):
        OpenAIModel(ModelSettings())
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY is not set"):
        OpenAIModel(ModelSettings())


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-sécret"])
def test_a_key_that_no_header_holds_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY") as found:
        OpenAIModel(ModelSettings(), api_key=key)
    assert "cret" not in str(found.value)


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


def test_text_that_cannot_be_sent_is_refused_by_name() -> None:
    with ModelServer([says("x")]) as server, impatient(server) as adapter:
        with pytest.raises(InvalidArgument, match=r"messages\[0\].content"):
            adapter.complete([ModelMessage("user", "\ud800")], schema=SCHEMA, max_tokens=1, timeout=30)
        assert not server.requests


def test_a_conversation_keeps_its_roles() -> None:
    with ModelServer([says("x")]) as server, impatient(server) as adapter:
        talk = [ModelMessage("user", "a"), ModelMessage("assistant", "b"), ModelMessage("user", "c")]
        adapter.complete(talk, schema=SCHEMA, max_tokens=1, timeout=30)
        (request,) = server.requests
    contract, *rest = request.body["messages"]
    assert contract["role"] == "system"
    assert [(one["role"], one["content"]) for one in rest] == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_the_client_is_imported_only_by_who_asks_it() -> None:
    code = (
        "import sys, agent_memory_log.memory, agent_memory_log.models, agent_memory_log.memory.extraction; "
        "assert not {'openai', 'pydantic'} & set(sys.modules); "
        "import agent_memory_log.models.openai_chat; assert 'openai' not in sys.modules; "
        "sys.modules['openai'] = None; "
        "agent_memory_log.models.openai_chat.OpenAIModel(api_key='k')"
    )
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "agent_memory_log.errors.InvalidArgument: the openai client cannot be imported" in found.stderr
    assert "agent-memory-log[memory]" in found.stderr


def test_scripted_model_gives_its_answers_in_turn() -> None:
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
def test_an_answer_that_breaks_its_contract_has_a_reason(text: str, error: type[ModelFailed]) -> None:
    with pytest.raises(error):
        read_answer(text, Contract)


def test_the_message_names_the_place_and_never_the_value() -> None:
    value = "secret"[::-1]  # a traceback shows the lines of this file too
    with pytest.raises(ModelInvalidSchema, match="count") as found:
        read_answer(f'{{"count": "{value}"}}', Contract)
    assert value not in "".join(traceback.format_exception(found.value))


def test_an_answer_within_its_contract_is_read() -> None:
    assert read_answer('{"count": 3, "share": 1, "more": "is left alone"}', Contract) == Contract(count=3, share=1.0)
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
