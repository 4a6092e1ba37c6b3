"""Provides the Messages API inputs of the tests that run for every provider."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from anthropic.types import MessageParam
from anthropic.types.beta import BetaMessageParam
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agent_memory_log import JsonValue
from tests.transcript.transcripts import (
    THOUGHT,
    Case,
    Message,
    consume,
    json_values,
    maps,
    names,
    shaped,
    spoken_texts,
    texts,
)

ANTHROPIC = "anthropic"

MARK = {"type": "ephemeral"}


def user(*content: Any) -> Message:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> Message:
    return {"role": "assistant", "content": list(content)}


def text(text: str = "Hi", **fields: Any) -> Message:
    return {"type": "text", "text": text, **fields}


def thinking(thought: str = "hm", signature: str = "sig", **fields: Any) -> Message:
    return {"type": "thinking", "thinking": thought, "signature": signature, **fields}


def redacted(data: str = "YWJj", **fields: Any) -> Message:
    return {"type": "redacted_thinking", "data": data, **fields}


def use(call_id: str = "t1", name: str = "get_order", arguments: Any = None, **fields: Any) -> Message:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}, **fields}


def result(call_id: str = "t1", content: Any = "ok", **fields: Any) -> Message:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def server(call_id: str = "s1", name: str = "web_search", **fields: Any) -> Message:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {"query": "x"}, **fields}


USER: Message = {"role": "user", "content": "Hi"}
ANSWER: Message = {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
IMAGE = {"type": "image", "source": SOURCE}
DOCUMENT = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "It is green."},
    "title": "Colours",
    "context": "a list",
    "citations": {"enabled": True},
    "cache_control": MARK,
}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://example.org",
    "title": "T",
    "content": [text("found")],
    "citations": {"enabled": True},
}
CITATION = {
    "type": "char_location",
    "cited_text": "green",
    "document_index": 0,
    "document_title": "Colours",
    "start_char_index": 6,
    "end_char_index": 11,
}
SEARCHED = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [
        {
            "type": "web_search_result",
            "encrypted_content": "Eq8B",
            "title": "T",
            "url": "https://example.org",
            "page_age": "1 day",
        }
    ],
}
FETCHED = {
    "type": "web_fetch_tool_result",
    "tool_use_id": "s2",
    "content": {
        "type": "web_fetch_result",
        "url": "https://example.org",
        "content": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
    },
}
RAN = {
    "type": "code_execution_tool_result",
    "tool_use_id": "s3",
    "content": {
        "type": "code_execution_result",
        "stdout": "1\n",
        "stderr": "",
        "return_code": 0,
        "content": [{"type": "code_execution_output", "file_id": "file_1"}],
    },
}
BASHED: Message = {
    "type": "bash_code_execution_tool_result",
    "tool_use_id": "s4",
    "content": {"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []},
}
EDITED = {
    "type": "text_editor_code_execution_tool_result",
    "tool_use_id": "s5",
    "content": {"type": "text_editor_code_execution_create_result", "is_file_update": False},
}
FOUND_TOOLS = {
    "type": "tool_search_tool_result",
    "tool_use_id": "s6",
    "content": {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "get_order"}],
    },
}
MCP_USE = {"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "s", "input": {"a": 1}}
MCP_RESULT = {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": [text("1")]}
COMPACTION = {"type": "compaction", "content": "We spoke of orders.", "encrypted_content": "AAA", "signature": "s"}

VALID: dict[str, list[Message]] = {
    "no messages": [],
    "consecutive messages of the assistant": [USER, assistant(use("a")), ANSWER, assistant(use("b")),
        user(result("b"), result("a"))],
    "an id used again in a later message": [USER, assistant(use("a")), user(result("a", "1")), assistant(use("a")),
        user(result("a", "2"))],
    "two system messages": [USER, {"role": "system", "content": "S"}, {"role": "system", "content": "T"}, ANSWER],
    "text as a string": [USER, {"role": "assistant", "content": "Hello"}, USER],
    "text as blocks": [user(text()), ANSWER, user(text("a"), text("b"))],
    "a tool": [USER, assistant(text("Let me look."), use()), user(result()), ANSWER],
    "arguments of every kind": [
        USER,
        assistant(use(arguments={"n": 10**40, "f": 1.0, "s": "é\0", "l": [None, True, {"": []}], "big": 1e300})),
        user(result()),
    ],
    "parallel tools, results in another order": [
        USER,
        assistant(use("a"), use("b"), use("c")),
        user(result("c", "3"), result("a", "1"), result("b", "2"), text("And hurry.")),
        ANSWER,
    ],
    "results of every form": [
        USER,
        assistant(*(use(f"t{n}") for n in range(8))),
        user(
            {"type": "tool_result", "tool_use_id": "t0"},
            result("t1", ""),
            result("t2", "boom", is_error=True),
            result("t3", "fine", is_error=False),
            result("t4", [text("a"), IMAGE, text("b", cache_control=MARK)]),
            result("t5", [DOCUMENT, SEARCH_RESULT, {"type": "tool_reference", "tool_name": "get_order"}]),
            result("t6", [text("broken")], is_error=True, cache_control=MARK),
            result("t7", []),
        ),
    ],
    "thinking": [
        USER,
        assistant(thinking(), text("Hello")),
        USER,
        assistant(thinking("", "signed, but empty"), redacted(), redacted("not base64!"), text("x"), use()),
        user(result()),
        assistant(thinking("again", "sig 2"), use("t2")),
        user(result("t2")),
        assistant(text("Done")),
    ],
    "thinking between tools": [
        USER,
        assistant(thinking("a", "1"), use("a"), thinking("b", "2"), text("so"), thinking("c", "3"), use("b")),
        user(result("a"), result("b")),
    ],
    "citations": [
        user(DOCUMENT, text("Which colour?")),
        assistant(text("It is "), text("green", citations=[CITATION]), text(".")),
    ],
    "attachments": [user(IMAGE, DOCUMENT, SEARCH_RESULT, {"type": "container_upload", "file_id": "f"}, text())],
    "an image alone": [user(IMAGE)],
    "server tools": [
        USER,
        assistant(
            text("I search."),
            server(),
            SEARCHED,
            server("s2", "web_fetch"),
            FETCHED,
            server("s3", "code_execution"),
            RAN,
            server("s4", "bash_code_execution"),
            BASHED,
            server("s5", "text_editor_code_execution"),
            EDITED,
            server("s6", "tool_search_tool_regex"),
            FOUND_TOOLS,
            text("Found it.", citations=None),
        ),
        USER,
    ],
    "a failed server tool": [
        USER,
        assistant(
            server(),
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
            },
        ),
    ],
    "a paused server tool": [USER, assistant(server()), assistant(SEARCHED, text("Found it."))],
    "a tool called by code": [
        USER,
        assistant(
            server("s3", "code_execution"),
            use("t1", caller={"type": "code_execution_20250825", "tool_id": "s3"}),
        ),
        user(result()),
        assistant(RAN, text("Done")),
    ],
    "a server of tools": [USER, assistant(MCP_USE, MCP_RESULT, text("Done"))],
    "compaction": [USER, assistant(COMPACTION, text("Where were we?")), USER],
    "repeated user messages": [USER, USER, user(text("x")), ANSWER, ANSWER],
    "instructions in the middle": [
        USER,
        {"role": "system", "content": "Be brief."},
        ANSWER,
        user(text()),
        {"role": "system", "content": [text("Be kind.", cache_control=MARK)]},
    ],
    "cache marks": [
        user(text(cache_control=MARK)),
        assistant(text("x", cache_control={**MARK, "ttl": "1h"}), use(cache_control=MARK)),
        user(result(cache_control=MARK), text("y", cache_control=None)),
    ],
    "names": [USER, assistant(use("a", "orders--find"), use("b", "mcp__s__t"), use("c", "a-_2e-b")), user(
        result("a"), result("b"), result("c")
    )],
}  # fmt: skip

ODD_VALUES: list[Any] = [0, 1.0, False, True, None, "x", {}, {"a": 1}, [], [[]], ["x", None], 10**40]

CONVERSATIONS: dict[str, list[Message]] = {
    **VALID,
    "an empty message": [{}, {"role": "user"}, {"role": "assistant"}, {"role": "system"}],
    "unknown roles": [{"role": "critic", "content": "x"}, {"role": 5}, {"role": None, "content": []}, ANSWER],
    "content of any kind": [
        {"role": role, "content": value} for role in ("user", "assistant", "system") for value in ODD_VALUES
    ],
    "empty text": [{"role": role, "content": ""} for role in ("user", "assistant", "system")],
    "blank blocks": [user(text("")), assistant(text("")), assistant(text(" "), text("")), user(text("\n"), text(""))],
    "blocks of any kind": [{"role": role, "content": ODD_VALUES} for role in ("user", "assistant", "system")],
    "blocks of maps of any kind": [
        {"role": role, "content": [{"type": value} for value in ODD_VALUES]} for role in ("user", "assistant", "system")
    ],
    "unknown blocks": [user({"type": "new", "x": 1}), assistant({"type": "new", "x": 1}, text()), assistant({"y": []})],
    "blocks in the wrong role": [
        assistant(result(), IMAGE, text()),
        user(use(), thinking(), redacted(), text(), server(), SEARCHED),
        {"role": "system", "content": [use(), text("x"), thinking()]},
    ],
    "calls of any shape": [
        assistant(*({**use(), key: value} for key in ("id", "name", "input") for value in ODD_VALUES))
    ],
    "results of any shape": [
        user(*({**result(), key: value} for key in ("tool_use_id", "content", "is_error") for value in ODD_VALUES))
    ],
    "thinking of any shape": [
        assistant(
            *({**thinking(), key: value} for key in ("thinking", "signature") for value in ODD_VALUES),
            *({**redacted(), "data": value} for value in ["", "YQ", "YQ==", "YR==", " ", *ODD_VALUES]),
        )
    ],
    "unsigned thinking": [
        assistant(thinking("hm", ""), thinking("", ""), text()),
        assistant(thinking("", "")),
    ],
    "text between results": [user(text("a"), result("x"), text("b"), result("y"), text("c"), text("d"))],
    "repeated roles": [
        user(result("x")),
        user(result("y")),
        USER,
        user(text()),
        user(result("z"), text()),
        user(result("w")),
        {"role": "assistant", "content": "a"},
        assistant(text("b")),
        assistant(use("x")),
        {"role": "assistant", "content": "c"},
        assistant({"type": "new"}),
        assistant(thinking()),
    ],
    "extra fields": [
        {**USER, "id": 1, "message": {}, "fields": {"content": 1}},
        {**ANSWER, "model": "m", "stop_reason": None, "usage": {"a": 1.0}},
        {**assistant(use()), "without": ["role"]},
        {**user(result()), "": 1, "$set": {"a.b": None}, "a.b": "\0"},
        {"role": "system", "content": "x", "clear_at": "never"},
        {**assistant(COMPACTION), "x": 1},
    ],
    "instructions first": [
        {"role": "system", "content": "a"},
        {"role": "system", "content": [text("b"), {"type": "tool_addition", "tool": {}}]},
        USER,
        {"role": "system", "content": []},
    ],
    "repeated ids": [
        assistant(use("a"), use("a"), use("a-2")),
        user(result("a"), result("a"), result("a"), result("a-2"), result("b")),
        assistant(use("a"), use("")),
        user(result("a"), result(""), result("")),
    ],
    "names and ids of any kind": [
        assistant(
            *(
                use(name, name)
                for name in [
                    "",
                    " ",
                    "a.b",
                    "a--b",
                    "a-_2e-b",
                    "--",
                    "-_",
                    "-_2d-",
                    "é",
                    "-_110000-",
                    "-_d800-",
                    "a" * 200,
                ]
            )
        ),
        user(result("a.b"), result("é")),
    ],
}


_ids = st.sampled_from(["", "t1", "t2", "a.b"])
_kinds = st.sampled_from(
    [
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "image",
        "web_search_tool_result",
        "new",
    ]
)
_odd_data = st.sampled_from(["", "YQ==", "YWI", "x y"])
_inputs = st.dictionaries(texts, json_values, max_size=2)
_odd_blocks = maps(
    {
        "type": _kinds,
        "text": texts,
        "thinking": texts,
        "signature": texts,
        "data": _odd_data,
        "id": _ids,
        "name": st.sampled_from(["f", "a.b", "a--b", ""]),
        "input": _inputs,
        "tool_use_id": _ids,
        "content": texts | st.lists(maps({"type": _kinds, "text": texts}), max_size=3),
        "is_error": st.booleans(),
        "cache_control": st.just(MARK),
    }
)
_good_ids = st.sampled_from(["t1", "t2", "t3"])
_marked = {"cache_control": st.just(MARK)}
_blocks_of_assistants: st.SearchStrategy[Message] = st.one_of(
    shaped({"type": st.just("text"), "text": texts}, **_marked),
    shaped({"type": st.just("thinking"), "thinking": texts, "signature": texts}),
    shaped({"type": st.just("redacted_thinking"), "data": _odd_data}),
    shaped({"type": st.just("tool_use"), "id": _good_ids, "name": names, "input": _inputs}, **_marked),
    st.sampled_from([server(), SEARCHED, server("t1"), COMPACTION]),
)
_blocks_of_users: st.SearchStrategy[Message] = st.one_of(
    shaped({"type": st.just("text"), "text": texts}, **_marked),
    shaped(
        {"type": st.just("tool_result"), "tool_use_id": _good_ids},
        content=texts | st.lists(shaped({"type": st.just("text"), "text": texts}), max_size=2),
        is_error=st.booleans(),
        **_marked,
    ),
    st.sampled_from([IMAGE, DOCUMENT, SEARCH_RESULT]),
)
good_messages: st.SearchStrategy[Message] = st.one_of(
    shaped({"role": st.just("user"), "content": texts | st.lists(_blocks_of_users, max_size=4)}),
    shaped({"role": st.just("assistant"), "content": texts | st.lists(_blocks_of_assistants, max_size=5)}),
    shaped({"role": st.just("system"), "content": texts}),
)
odd_messages = maps(
    {
        "role": st.sampled_from(["user", "assistant", "system", "critic"]),
        "content": texts | st.lists(_odd_blocks | _blocks_of_assistants | _blocks_of_users, max_size=4),
        "id": texts,
        ANTHROPIC: json_values,
    }
)


@st.composite
def sound_conversations(draw: st.DrawFn) -> list[Message]:
    """Draw a valid conversation."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        messages.append(draw(st.sampled_from([USER, user(text("a"), text("b")), user(IMAGE, DOCUMENT, text())])))
        if draw(st.booleans()) and messages:
            messages.append({"role": "system", "content": draw(spoken_texts)})
        for _ in range(draw(st.integers(0, 2))):
            blocks: list[Message] = []
            call_ids: list[str] = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                signature = f"{THOUGHT} signed {number}"
                first: list[list[Message]] = [
                    [],
                    [thinking(f"{THOUGHT} {number}", signature)],
                    [thinking("", signature)],
                    [redacted(base64.b64encode(signature.encode()).decode())],
                    [server(f"s{number}"), {**SEARCHED, "tool_use_id": f"s{number}"}],
                ]
                blocks += draw(st.sampled_from(first))
                if draw(st.booleans()):
                    blocks.append(text(draw(spoken_texts)))
                call_ids.append(f"t{number}")
                blocks.append(
                    use(call_ids[-1], draw(names), draw(st.sampled_from([{}, {"id": 7}, {"a": [1.5, None]}])))
                )
            messages.append({"role": "assistant", "content": blocks})
            answers = [
                draw(
                    st.sampled_from(
                        [result(call_id), result(call_id, [text("a"), IMAGE]), result(call_id, "no", is_error=True)]
                    )
                )
                for call_id in call_ids
            ]
            messages.append({"role": "user", "content": draw(st.permutations(answers))})
        if draw(st.booleans()) or messages[-1]["role"] == "system":
            number += 1
            thought = [thinking(f"{THOUGHT} {number}", f"{THOUGHT} signed {number}")] if draw(st.booleans()) else []
            messages.append(assistant(*thought, text(draw(spoken_texts))))
    return messages


_adapter = TypeAdapter(list[MessageParam])
_beta_adapter = TypeAdapter(list[BetaMessageParam])


def judge(messages: Sequence[Message]) -> None:
    """Raise if the messages do not fit the types of the ``anthropic`` package, including its beta types."""
    consume(_beta_adapter.validate_python(list(messages)))


def judge_released(messages: Sequence[Message]) -> None:
    """Raise if the messages do not fit the released types of the ``anthropic`` package."""
    consume(_adapter.validate_python(list(messages)))


def tools(name: str, description: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return a list with one tool."""
    return [{"name": name, "description": description, "input_schema": schema}]


CASE = Case(ANTHROPIC, CONVERSATIONS, VALID, good_messages, odd_messages, sound_conversations(), judge, tools)
