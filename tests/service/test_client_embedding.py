"""A search whose client embeds texts and queries: the number of its requests, and its lines in the audit."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from typing import Any

import pytest

from agent_memory_log import open_store
from agent_memory_log.memory import Episode, Principal, SyncMemoryClient
from agent_memory_log.service.callers import Callers
from agent_memory_log.service.grants import RIGHTS, Grant
from tests.memory.test_search_vectors import Meaning
from tests.service.serving import Serving, serving

PRINCIPAL = Principal("acme", {"user": "1", "workspace": "ops"})

_numbers = itertools.count()


class Counted(Callers):
    """A caller whose rights can change. The server asks for them once in each request."""

    def __init__(self) -> None:
        self.requests = 0
        self.rights = RIGHTS

    async def grant_of(self, authorization: str | None) -> Grant:  # noqa: ARG002  # there is only this caller
        self.requests += 1
        return Grant("caller", frozenset(self.rights), PRINCIPAL)


class Side:
    """A server, and a client of it that embeds."""

    def __init__(self, caplog: pytest.LogCaptureFixture, server: Serving, caller: Counted, *, grpc: bool) -> None:
        self._caplog = caplog
        self.caller = caller
        self._config = {"mode": "remote", "base_url": "http://127.0.0.1:1" if grpc else server.url} | (
            {"prefer_grpc": True, "grpc_target": server.grpc_target} if grpc else {}
        )

    def client(self, embedder: Meaning) -> SyncMemoryClient:
        return SyncMemoryClient(config=self._config, embedder=embedder)

    def cost(self, call: Callable[[], Any]) -> tuple[int, list[str]]:
        """Return the number of requests of a call, and the outcomes of those in the audit."""
        self._caplog.clear()
        before = self.caller.requests
        call()
        audited = [record for record in self._caplog.records if record.name == "agent_memory_log.audit"]
        return self.caller.requests - before, [vars(record)["fields"]["outcome"] for record in audited]


@pytest.fixture(params=["http", "grpc"])
def side(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Generator[Side]:
    grpc = request.param == "grpc"
    caller = Counted()
    url = f"memory:client-embedding-{next(_numbers)}"
    with (
        caplog.at_level(logging.INFO, "agent_memory_log.audit"),
        serving(lambda: open_store(url), callers=caller, grpc=grpc) as server,
    ):
        yield Side(caplog, server, caller, grpc=grpc)


def calls(client: SyncMemoryClient) -> list[Callable[[], Any]]:
    return [
        lambda: client.search("dog"),
        lambda: client.search("dog", scopes=["user"]),
        lambda: client.context("dog"),
        lambda: client.search(" "),
    ]


def test_a_search_is_one_request_if_all_texts_have_vectors(side: Side) -> None:
    with side.client(Meaning()) as client:
        client.remember(Episode("x"), text="a puppy barked")
        client.remember(key="car", value="an old vehicle", scope="workspace")
        # The search, the texts, their vectors, that there are no more, and the search again.
        assert side.cost(lambda: client.search("dog")) == (5, ["ok"])
        for call in calls(client):
            assert side.cost(call) == (1, [])
        client.remember(Episode("x"), text="a hound slept")
        assert side.cost(lambda: client.context("dog")) == (5, ["ok"])


def test_a_search_of_a_token_that_may_only_read_is_one_request(side: Side) -> None:
    embedder = Meaning()
    with side.client(Meaning()) as writer, side.client(embedder) as reader:
        writer.remember(Episode("x"), text="a puppy barked")
        writer.search("dog")
        writer.remember(Episode("x"), text="a hound slept")
        side.caller.rights = ("read",)
        reader.list()  # opens the connection
        for call in calls(reader):
            assert side.cost(call) == (1, [])
        hits = reader.search("dog")
        assert hits.note == "texts without vectors were compared by words, because the token may not write"
        assert reader.context("dog").note == hits.note
        assert hits.scopes_to_embed == reader.context("dog").scopes_to_embed == ()
        assert [hit.text for hit in reader.search("puppy")] == ["a puppy barked"]
        assert embedder.asked == []


def test_a_token_that_loses_the_right_to_write_gets_the_first_answer(side: Side) -> None:
    class Slow(Meaning):
        def embed(self, texts: Any, kind: Any) -> Any:
            if kind == "document":
                side.caller.rights = ("read",)
            return super().embed(texts, kind)

    with side.client(Slow()) as client:
        client.remember(Episode("x"), text="a puppy barked")
        hits = client.search("puppy")
        assert [hit.text for hit in hits] == ["a puppy barked"]
        assert "compared by words: memory/store_vectors needs the right write" in hits.note
        assert hits.plan.strategies == ("words", "meaning")
