"""Runs and memories as resources: ``amlog://run/AGENT/RUN`` and ``amlog://memory/ID``, each part percent-encoded."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote, unquote

from mcp_types import ListResourcesResult, ReadResourceResult, Resource, ResourceTemplate, TextResourceContents

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.operations import Get, ListRecords
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.search.quoting import quoted
from agent_memory_log.service.executing import Caller
from agent_memory_log.service.mcp.answers import MOST_ANSWER_TOKENS, listed_answer, whole_answer
from agent_memory_log.service.store_operations import ListRuns, LoadRun
from agent_memory_log.service.wire import decode_result

_Result = TypeVar("_Result")

MEMORY_URI = "amlog://memory/"
RUN_URI = "amlog://run/"
TEMPLATES = [
    ResourceTemplate(
        uri_template=f"{MEMORY_URI}{{id}}", name="memory", description="One memory, by its id.", mime_type="text/plain"
    ),
    ResourceTemplate(
        uri_template=f"{RUN_URI}{{agent}}/{{run}}",
        name="run",
        description="The events of a run, from the first on.",
        mime_type="text/plain",
    ),
]

_MOST_MEMORIES = 50
_RUNS_A_PAGE = 50
_MOST_EVENTS = 500
_LONGEST_NAME = 80


def run_uri(agent: str, run: str) -> str:
    """Return the URI of a run."""
    return f"{RUN_URI}{quote(agent, safe='')}/{quote(run, safe='')}"


def memory_uri(record_id: str) -> str:
    """Return the URI of a memory."""
    return f"{MEMORY_URI}{quote(record_id, safe='')}"


async def list_resources(caller: Caller, cursor: str | None) -> ListResourcesResult:
    """Return a page of resources: first the memories that changed last, then the runs that were created last.

    Raises:
        CursorOutOfRange: The cursor is not one of ``list_runs``.
    """
    resources: list[Resource] = []
    if cursor is None and caller.grant.principal is not None:
        records = await _result(caller, ListRecords())
        newest = sorted(records, key=lambda record: record.updated, reverse=True)[:_MOST_MEMORIES]
        resources += [
            Resource(
                uri=memory_uri(record.id),
                name=quoted(record.text, _LONGEST_NAME),
                description=f"A memory of the kind {quoted(record.kind, _LONGEST_NAME)}.",
                mime_type="text/plain",
            )
            for record in newest
        ]
    if not caller.grant.agents:
        return ListResourcesResult(resources=resources)
    page = await _result(caller, ListRuns(limit=_RUNS_A_PAGE, cursor=cursor))
    resources += [
        Resource(
            uri=run_uri(info.agent, info.run),
            name=quoted(f"{info.agent}/{info.run}", _LONGEST_NAME),
            description=f"A run of {info.event_count} events.",
            mime_type="text/plain",
        )
        for info in page.runs
    ]
    return ListResourcesResult(resources=resources, next_cursor=page.cursor)


async def read_resource(caller: Caller, uri: str) -> ReadResourceResult:
    """Return the content of a resource.

    Raises:
        InvalidArgument: The URI has another form, or names nothing that the caller can read.
        AccessDenied: The caller may not use the agent.
    """
    text = await _text_of(caller, uri)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="text/plain", text=text)])


async def _text_of(caller: Caller, uri: str) -> str:
    if uri.startswith(MEMORY_URI):
        record = await caller.execute(Get(id=_decoded(uri.removeprefix(MEMORY_URI))))
        if record is None:
            raise InvalidArgument(f"there is no memory {in_quotes(uri)}")
        return whole_answer(record, MOST_ANSWER_TOKENS)
    agent, slash, run = uri.removeprefix(RUN_URI).partition("/")
    if not uri.startswith(RUN_URI) or not slash or "/" in run:
        raise InvalidArgument(f"there is no resource {in_quotes(uri)}: expected {RUN_URI}AGENT/RUN or {MEMORY_URI}ID")
    snapshot = await caller.execute(LoadRun(_decoded(agent), _decoded(run), limit=_MOST_EVENTS))
    if not snapshot["version"]:
        raise InvalidArgument(f"there is no run {in_quotes(uri)}")
    text = listed_answer(snapshot, "log", max_tokens=MOST_ANSWER_TOKENS)
    has_more = snapshot["version"] > snapshot["last_seq"]
    return f"{text}\nThe run has more events: read them with run_read." if has_more else text


async def _result(caller: Caller, operation: Operation[_Result]) -> _Result:
    return decode_result(type(operation), await caller.execute(operation))


def _decoded(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the part {in_quotes(part)} of the URI is not UTF-8") from error
