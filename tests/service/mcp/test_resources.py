"""Runs and memories as resources, and the prompts."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError

from agent_memory_log import UserMessage, new_event
from agent_memory_log.memory import MemoryClient, Principal
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.mcp.resources import memory_uri, run_uri
from tests.service.mcp.sessions import ME, session

AGENT = "support-\u00e4/%2F?#"
RUN = "a b/c\n"


async def test_listed_resources_can_be_read() -> None:
    async with session() as (client, store):
        await store.append_events(AGENT, RUN, new_event(UserMessage(message="hello")))
        await MemoryClient(store).of(ME).remember(key="language", value="english")
        memory, run = (await client.list_resources()).resources
        (content,) = (await client.read_resource(memory.uri)).contents
        assert '"value":"english"' in content.text  # type: ignore[union-attr]  # it is text
        assert run.uri == run_uri(AGENT, RUN)
        (content,) = (await client.read_resource(run.uri)).contents
        assert "hello" in content.text  # type: ignore[union-attr]  # it is text
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["amlog://memory/{id}", "amlog://run/{agent}/{run}"]


async def test_the_list_has_a_cursor_for_many_runs() -> None:
    async with session() as (client, store):
        for number in range(120):
            await store.append_events("support-1", f"run {number}", new_event(UserMessage(message="hello")))
        uris: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            uris += [resource.uri for resource in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(uris) == sorted(run_uri("support-1", f"run {number}") for number in range(120))


@pytest.mark.parametrize(
    "uri",
    [
        memory_uri("unknown"),
        run_uri("support-1", "unknown"),
        run_uri("billing", "run"),
        run_uri("@memory/acme/user/43", "records"),
        "amlog://run/support-1",
        "amlog://run/support-1/a/b",
        "amlog://run/support-1/..%2F..%2Fbilling",
        "amlog://run//",
        "amlog://run/%FF/x",
        "amlog://memory/",
        "file:///etc/passwd",
        "amlog://",
        "",
    ],
)
async def test_another_resource_cannot_be_read(uri: str) -> None:
    async with session() as (client, store):
        await store.append_events("billing", "run", new_event(UserMessage(message="secret")))
        other = MemoryClient(store).of(Principal("acme", {"user": "43"}))
        outcome = await other.remember(key="pin", value="secret")
        assert outcome.record is not None
        for each in (uri, memory_uri(outcome.record.id)):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(each)
            assert "secret" not in str(caught.value)
            assert caught.value.error.data["uri"] == each


async def test_prompts_recall_and_save() -> None:
    async with session() as (client, store):
        await MemoryClient(store).of(ME).remember(key="language", value="english")
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["recall", "save_session"]
        recall = str(await client.get_prompt("recall", {"question": "Which language?"}))
        assert "english" in recall
        assert "Question: Which language?" in recall
        assert 'the source_id "chat 1"' in str(await client.get_prompt("save_session", {"source_id": "chat 1"}))
        for name, arguments in (("recall", {}), ("recall", {"question": " "}), ("recall", {"q": "x"}), ("other", {})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)


@pytest.mark.parametrize(
    ("grant", "names"),
    [
        (Grant("reader", frozenset({"read"}), ME), ["recall"]),
        (Grant("writer", frozenset({"write"}), ME), ["save_session"]),
        (Grant("runs", frozenset({"read", "write"}), None, ("*",)), list[str]()),
    ],
)
async def test_a_caller_has_only_the_prompts_whose_tools_it_has(grant: Grant, names: list[str]) -> None:
    arguments = {"recall": {"question": "Which language?"}, "save_session": {"source_id": "chat"}}
    async with session(grant) as (client, _):
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == names
        for name in arguments.keys() - names:
            with pytest.raises(MCPError, match=f"the prompt {name} needs the right"):
                await client.get_prompt(name, arguments[name])
        for name in names:
            assert (await client.get_prompt(name, arguments[name])).messages


async def test_a_caller_who_may_not_read_has_no_resources() -> None:
    async with session(Grant("writer", frozenset({"write"}), ME)) as (client, store):
        await MemoryClient(store).of(ME).remember(key="language", value="english")
        with pytest.raises(MCPError, match="needs the right read"):
            await client.list_resources()
        with pytest.raises(MCPError, match="needs the right read"):
            await client.get_prompt("recall", {"question": "Which language?"})
