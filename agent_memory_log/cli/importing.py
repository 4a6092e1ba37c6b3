"""``amlog import``: other people's transcripts and trajectories, and our own JSONL, into a store."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from agent_memory_log.backend_kit import ReadsGoOriginal
from agent_memory_log.backend_kit import StoreUrl as ParsedUrl
from agent_memory_log.cli.errors import FAILED, CommandFailed, UsageProblem
from agent_memory_log.cli.options import AsJson, StoreUrl, open_or_create, reflowed, run_async
from agent_memory_log.cli.output import Advance, Output, note, progress
from agent_memory_log.cli.run_names import run_map, run_name
from agent_memory_log.cli.verify import write_findings
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.interchange.atif import AtifRun, from_atif, import_atif
from agent_memory_log.opening import find_backend
from agent_memory_log.transcript import ChatLine, import_transcript, read_chat_lines
from agent_memory_log.transfer.importing import ImportedRun, decode_document, import_runs
from agent_memory_log.transfer.jsonl import check_jsonl, import_jsonl
from agent_memory_log.transfer.verifying import Remark, Severity
from agent_memory_log.wording import counted

_OPENAI_CHAT = "openai-chat"
_RUN_FIELDS = ("run_id", "id", "conversation_id")

Reserved = Annotated[
    bool,
    typer.Option(
        "--reserved",
        help="Also take in the library's own agents and event types: who wrote the file then decides what memory says.",
    ),
]

File = Annotated[str, typer.Argument(metavar="FILE", help="The file, or - for standard input.", show_default=False)]


def openai_chat(
    file: File,
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="The agent the runs belong to.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import OpenAI Chat Completions transcripts.

    The file has one JSON object with messages a line. A line is a run. It is named by its field run, run_id, id or
    conversation_id, and without one by the file and the line, such as chats-0007; its other fields become the run's
    meta. Importing again stores nothing twice.

    With --json: runs, each with name, agent, run, version, read, inserted and problem (empty where all of it was
    imported); and the sums read and inserted.
    """
    _report(run_async(_import_chats(file, agent, store)), as_json=as_json)


def jsonl(file: File, *, reserved: Reserved = False, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Import runs that amlog export wrote, with their events, ids and numbering.

    The file is read once before anything is stored: one that was cut off or changed since is refused. A file without
    an end line, as older ones are, is taken with a note. Importing again stores nothing twice.

    With --json: as for openai-chat.
    """
    results = run_async(_import_jsonl(file, store, reserved=reserved))
    if not all(result.verified for result in results):
        note(f"{file} has no end line: whether it is whole and unchanged is not known")
    _report(results, as_json=as_json)


def atif(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="The files, or - for standard input.", show_default=False)
    ],
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="NAME", help="The agent that all runs belong to, sub-agents' too.", show_default=False
        ),
    ] = None,
    reserved: Reserved = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import ATIF trajectories, as amlog export --to atif and other tools write them.

    Each file is one JSON document. A run has the name amlog wrote in it, or else is named by its session_id or
    trajectory_id, and without either by the file; its agent is the document's, unless given. Embedded trajectories of
    sub-agents become runs of their own; under --agent, these are named RUN:AGENT:TRAJECTORY_ID. Importing again stores
    nothing twice.

    With --json: as for openai-chat.
    """
    trajectories = _read_trajectories(files, agent)
    _report(run_async(_import_atif(trajectories, store, reserved=reserved)), as_json=as_json)


def go_mongodb(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE_URL", help="The database, such as mongodb://host/database.", show_default=False),
    ],
    *,
    reserved: Reserved = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import what the Go original (goa-ai / loom-mcp, v1.0.3) keeps in MongoDB.

    The database is only read. The URL's option collection names the collection, unless it is agent_memory. Seqs, times
    and labels are kept. Importing again adds what is new, and stores nothing twice.

    Of a run with an event that cannot be read, the events before it are imported, and the status is 1; the other runs
    are imported.

    With --json: as for openai-chat.
    """
    results = run_async(_import_go_original(source, store, reserved=reserved))
    _report(results, as_json=as_json)


async def _import_go_original(source: str, store_url: str | None, *, reserved: bool) -> list[ImportedRun]:
    url = ParsedUrl.parse(source)
    backend = find_backend(url)
    if not isinstance(backend, ReadsGoOriginal):
        raise UsageProblem(
            f"SOURCE_URL must name a MongoDB database, as in mongodb://host/database, found {url.shown!r}"
        )
    results: list[ImportedRun] = []
    async with open_or_create(store_url) as store, aclosing(backend.go_original_runs(url)) as runs:
        with progress("importing") as advance:
            async for imported in import_runs(store, runs, reserved=reserved):
                results.append(imported)
                advance()
    return results


async def _import_chats(file: str, agent: str, url: str | None) -> list[ImportedRun]:
    results: list[ImportedRun] = []
    stem = "stdin" if file == "-" else Path(file).stem
    with _lines(file) as lines:
        async with open_or_create(url) as store:
            for chat in read_chat_lines(lines):
                run, meta = _name_and_meta(chat, stem)
                try:
                    result = await import_transcript(store, agent, run, chat.messages, _OPENAI_CHAT, meta=meta)
                except Exception as error:
                    error.add_note(f"line {chat.line}")
                    raise
                results.append(ImportedRun(agent, run, result.version, len(result.events), result.inserted))
    return results


async def _import_jsonl(file: str, url: str | None, *, reserved: bool) -> list[ImportedRun]:
    with _rereadable(file) as opened:
        start = opened.tell()
        check_jsonl(opened)
        total = opened.tell() - start
        opened.seek(start)
        with progress(f"importing {Path(file).name}", total or None) as advance:
            async with open_or_create(url) as store:
                return await import_jsonl(store, _counted(opened, advance), reserved=reserved)


@contextmanager
def _rereadable(file: str) -> Generator[BinaryIO]:
    """The file opened, or a copy of what can be read only once, such as standard input."""
    with ExitStack() as stack:
        opened = sys.stdin.buffer if file == "-" else stack.enter_context(Path(file).open("rb"))
        if not opened.seekable():
            spooled = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(opened, spooled)
            spooled.seek(0)
            opened = spooled
        yield opened


def _read_trajectories(files: list[str], agent: str | None) -> list[AtifRun]:
    trajectories: list[AtifRun] = []
    own_agents: dict[str, object] = {}
    for file in files:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        document = decode_document(text, file)
        try:
            trajectory = from_atif(document, agent=agent, run=_missing_name(document, file))
        except AgentMemoryLogError as error:
            error.add_note(file)
            raise
        own_agent = cast("dict[str, dict[str, object]]", document)["agent"]["name"]
        if agent is not None and own_agents.setdefault(trajectory.run, own_agent) != own_agent:
            raise CommandFailed(
                f"{file}: {agent}/{trajectory.run} is already the run of another agent's trajectory: rename one's "
                "session_id, or import them without --agent"
            )
        trajectories.append(trajectory)
    return trajectories


async def _import_atif(trajectories: list[AtifRun], url: str | None, *, reserved: bool) -> list[ImportedRun]:
    results: list[ImportedRun] = []
    async with open_or_create(url) as store:
        for trajectory in trajectories:
            results += await import_atif(store, trajectory, reserved=reserved)
    return results


def _missing_name(document: object, file: str) -> str | None:
    """The file's own name, for a document that names no run."""
    if not isinstance(document, dict):
        return None
    fields = cast("dict[str, object]", document)
    extra = fields.get("extra")
    named = fields.get("session_id") or fields.get("trajectory_id")
    if named or (isinstance(extra, dict) and "agent_memory_log" in extra):
        return None
    return "stdin" if file == "-" else Path(file).stem


def _name_and_meta(chat: ChatLine, stem: str) -> tuple[str, dict[str, JsonValue]]:
    if chat.run is not None:
        return chat.run, chat.extra
    for field in _RUN_FIELDS:
        value = chat.extra.get(field)
        if (isinstance(value, str) and value) or type(value) is int:
            return str(value), {key: kept for key, kept in chat.extra.items() if key != field}
    return f"{stem}-{chat.line:04}", chat.extra


@contextmanager
def _lines(file: str) -> Generator[Iterable[bytes]]:
    """A file's lines, with a progress bar for how far they were read."""
    if file == "-":
        with progress("importing") as advance:
            yield _counted(sys.stdin.buffer, advance)
        return
    path = Path(file)
    with path.open("rb") as opened, progress(f"importing {path.name}", path.stat().st_size or None) as advance:
        yield _counted(opened, advance)


def _counted(opened: BinaryIO, advance: Advance) -> Iterator[bytes]:
    for line in opened:
        yield line
        advance(len(line))


def _report(results: list[ImportedRun], *, as_json: bool) -> None:
    if not results:
        raise CommandFailed("nothing to import: there are no runs in it")
    read, inserted = sum(result.read for result in results), sum(result.inserted for result in results)
    runs = [
        run_map(
            result.agent,
            result.run,
            version=result.version,
            read=result.read,
            inserted=result.inserted,
            problem=result.problem,
        )
        for result in results
    ]
    problems = [
        Remark(Severity.ERROR, result.agent, result.run, 0, result.problem) for result in results if result.problem
    ]
    output = Output()
    if not as_json:
        write_findings(output, problems)
    name = run_name(results[0].agent, results[0].run) if len(results) == 1 else counted(len(results), "run")
    text = f"imported {counted(inserted, 'event')} into {name}"
    already = f"{read - inserted:,} already there" if inserted < read else ""
    if not inserted:
        text, already = f"nothing new: {name} with {counted(read, 'event')} already there", ""
    listed = {"runs": runs, "read": read, "inserted": inserted}
    output.report(listed, text, already, as_json=as_json, failed=bool(problems))
    if problems:
        output.flush()
        raise typer.Exit(FAILED)


_HELP = "Put runs into a store.\n\nRuns that are in another store are copied, with amlog copy SOURCE_URL TARGET_URL."

import_app = typer.Typer(no_args_is_help=True, help=_HELP)
import_app.command(_OPENAI_CHAT, help=reflowed(openai_chat))(openai_chat)
import_app.command("atif", help=reflowed(atif))(atif)
import_app.command("go-mongodb", help=reflowed(go_mongodb))(go_mongodb)
import_app.command("jsonl", help=reflowed(jsonl))(jsonl)
