"""Measures search in stores of given sizes: ``python -m benchmarks.recall.stored 5000 100000 500000``.

For each number of messages, it makes a store in an SQLite file. One process makes the search index. Another process
opens it, and measures its first search, the memory that this search takes, and the searches after it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.store import SyncStore
from benchmarks.recall.corpus import conversations
from benchmarks.recall.rankers import TOP
from benchmarks.recall.speed import documents_of, timed

RUN_LENGTH = 400


def _memory(store: SyncStore) -> SyncMemory:
    return SyncMemoryClient(store).of(Principal(tenant="bench", scopes={"user": "1"}))


def _fill(url: str, messages: int) -> None:
    with open_sync_store(f"{url}?durability=os") as store:
        documents = documents_of(conversations("dev"), messages)
        for first in range(0, messages, RUN_LENGTH):
            events = [
                new_event(UserMessage(turn.text), labels={"speaker": turn.speaker}, timestamp=turn.time)
                for turn in documents[first : first + RUN_LENGTH]
            ]
            store.append_events("agent", f"run-{first}", *events)
        _memory(store).link_runs([("agent", f"run-{first}") for first in range(0, messages, RUN_LENGTH)])


def _search(url: str) -> dict[str, float]:
    questions = [question.question for talk in conversations("dev") for question in talk.questions]
    with open_sync_store(url) as store:
        me = _memory(store)
        store.list_runs()
        before = _resident()
        start = perf_counter()
        me.search(questions[0], top_k=TOP)
        first = perf_counter() - start
        grown = _resident() - before
        median, slowest = timed(lambda question: me.search(question, top_k=TOP), questions)
    return {"first": first, "grown": grown, "median": median, "slowest": slowest, "peak": _peak()}


def _resident() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_new_process(url: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.recall.stored", "--search", url]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def main() -> None:
    """Measure each size, and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of messages")
    parser.add_argument("--search", metavar="URL", help="measure searches in this store, and print them as JSON")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the stores in this folder, and use those that exist")
    arguments = parser.parse_args()
    if arguments.search:
        print(json.dumps(_search(arguments.search)))
        return
    for size in arguments.sizes:
        with TemporaryDirectory() as temporary:
            path = Path(arguments.keep or temporary) / f"{size}.db"
            if not path.exists():
                _fill(f"sqlite:///{path}", size)
            first = _in_new_process(f"sqlite:///{path}")
            opened = _in_new_process(f"sqlite:///{path}")
            files = sum(file.stat().st_size for file in path.with_name(f"{path.name}-index").glob("*"))
            print(
                f"{size:,} messages: the index was made in {first['first']:.1f} s with at most {first['peak']:.0f} MB. "
                f"It has {files / size:.0f} bytes a message. "
                f"In a new process, the "
                f"first search of a process {opened['first'] * 1e3:.0f} ms and {opened['grown']:.0f} MB, "
                f"later ones {opened['median'] * 1e3:.1f} ms, 99 % within {opened['slowest'] * 1e3:.1f} ms"
            )


if __name__ == "__main__":
    main()
