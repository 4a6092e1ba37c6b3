"""``amlog import``: imports transcripts, trajectories and exported runs into a store."""

from __future__ import annotations

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
from agent_memory_log.cli.stopping import Graceful, received_status
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
        help="Also import the library's own agents and event types. The author of the file then controls the memory.",
    ),
]

File = Annotated[str, typer.Argument(metavar="FILE", help="The file. Use - for standard input.", show_default=False)]


def openai_chat(
    file: File,
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="The agent of the imported runs.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import OpenAI Chat Completions transcripts.

    Each line of the file is a JSON object with messages, and becomes a run. The field run, run_id, id or
    conversation_id is the name of the run. Without such a field, the name is made of the file and the line, such as
    chats-0007. The other fields become the meta of the run. Importing again stores nothing twice.

    With --json: an object with runs, read and inserted. Each run has name, agent, run, version, read, inserted and
    problem (empty if the whole run was imported). read and inserted are sums over the runs.
    """
    _report(run_async(_import_chats(file, agent, store)), as_json=as_json)


def jsonl(file: File, *, reserved: Reserved = False, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Import runs that amlog export wrote, with the same events, ids and seqs.

    The whole file is checked before anything is stored. A file that was cut off or changed after the export is refused.
    Files of older versions have no end line. They are imported with a warning. Importing again stores nothing twice.

    With --json: the same object as for openai-chat.
    """
    results = run_async(_import_jsonl(file, store, reserved=reserved))
    if not all(result.verified for result in results):
        note(f"{file} has no end line: cannot check that the file is complete and unchanged")
    _report(results, as_json=as_json)


def atif(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="The files. Use - for standard input.", show_default=False)
    ],
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="NAME", help="The agent of all runs, also those of sub-agents.", show_default=False
        ),
    ] = None,
    reserved: Reserved = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import ATIF trajectories that amlog export --to atif or other tools wrote.

    Each file is one JSON document. The name of the run is the name that amlog wrote to the document. In other documents
    it is the session_id, the trajectory_id, or else the name of the file. The agent is the agent of the document,
    unless --agent is given.

    Embedded trajectories of sub-agents become separate runs. With --agent, their names are RUN:AGENT:TRAJECTORY_ID.
    Importing again stores nothing twice.

    With --json: the same object as for openai-chat.
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
    """Import runs that the Go original (goa-ai / loom-mcp, v1.0.3) stored in MongoDB.

    The command only reads the database. The default collection is agent_memory. The option collection of the URL names
    another one. Seqs, times and labels stay the same. Importing again adds new events and stores nothing twice.

    If an event cannot be read, the events of its run before it are imported, all other runs are imported, and the exit
    status is 1.

    With --json: the same object as for openai-chat.
    """
    results = run_async(_import_go_original(source, store, reserved=reserved))
    _report(results, as_json=as_json)


async def _import_go_original(source: str, store_url: str | None, *, reserved: bool) -> list[ImportedRun]:
    url = ParsedUrl.parse(source)
    backend = find_backend(url)
    if not isinstance(backend, ReadsGoOriginal):
        raise UsageProblem(
            f"SOURCE_URL must be the URL of a MongoDB database, such as mongodb://host/database, got {url.masked!r}"
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
    """Yield the open file, or a temporary copy of a stream that can be read only once."""
    with ExitStack() as stack:
        opened = sys.stdin.buffer if file == "-" else stack.enter_context(Path(file).open("rb"))
        if not opened.seekable():
            spooled = stack.enter_context(tempfile.TemporaryFile())
            spooled.writelines(_lines_of(opened))
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
                f"{file}: the run {agent}/{trajectory.run} already holds the trajectory of another agent: change the "
                "session_id of one of them, or import them without --agent"
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
    """Return the name of the file if the document has no name for its run, else None."""
    if not isinstance(document, dict):
        return None
    fields = cast("dict[str, object]", document)
    extra = fields.get("extra")
    name = fields.get("session_id") or fields.get("trajectory_id")
    if name or (isinstance(extra, dict) and "agent_memory_log" in extra):
        return None
    return "stdin" if file == "-" else Path(file).stem


def _name_and_meta(chat: ChatLine, stem: str) -> tuple[str, dict[str, JsonValue]]:
    if chat.run is not None:
        return chat.run, chat.extra
    for field in _RUN_FIELDS:
        value = chat.extra.get(field)
        if (isinstance(value, str) and value) or type(value) is int:
            return str(value), {key: other for key, other in chat.extra.items() if key != field}
    return f"{stem}-{chat.line:04}", chat.extra


@contextmanager
def _lines(file: str) -> Generator[Iterable[bytes]]:
    """Yield the lines of a file, and show a progress bar while they are read."""
    if file == "-":
        with progress("importing") as advance:
            yield _counted(sys.stdin.buffer, advance)
        return
    path = Path(file)
    with path.open("rb") as opened, progress(f"importing {path.name}", path.stat().st_size or None) as advance:
        yield _counted(opened, advance)


def _counted(opened: BinaryIO, advance: Advance) -> Iterator[bytes]:
    for line in _lines_of(opened):
        yield line
        advance(len(line))


def _lines_of(opened: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file. A signal ends the wait for a line, which blocks the event loop."""
    while True:
        with Graceful():
            if received_status():  # the signal came before the block
                raise KeyboardInterrupt
            line = opened.readline()
        if not line:
            return
        yield line


def _report(results: list[ImportedRun], *, as_json: bool) -> None:
    if not results:
        raise CommandFailed("nothing to import: the source contains no runs")
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
    already = f"{read - inserted:,} already stored" if inserted < read else ""
    if not inserted:
        text, already = f"nothing new: {name} with {counted(read, 'event')} already stored", ""
    listed = {"runs": runs, "read": read, "inserted": inserted}
    output.report(listed, text, already, as_json=as_json, failed=bool(problems))
    if problems:
        output.flush()
        raise typer.Exit(FAILED)


_HELP = "Import runs into a store.\n\nTo copy runs from another store, use amlog copy SOURCE_URL TARGET_URL."

import_app = typer.Typer(no_args_is_help=True, help=_HELP)
import_app.command(_OPENAI_CHAT, help=reflowed(openai_chat))(openai_chat)
import_app.command("atif", help=reflowed(atif))(atif)
import_app.command("go-mongodb", help=reflowed(go_mongodb))(go_mongodb)
import_app.command("jsonl", help=reflowed(jsonl))(jsonl)
