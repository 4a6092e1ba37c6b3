"""Runs of our own making, for the demo, the tests and anyone who wants something to look at.

- ``support.jsonl``: five runs of an online shop's support agent, as OpenAI Chat messages
  (``transcript.read_chat_lines``).
- ``demo.jsonl``: one run in our own JSONL (``jsonl.import_jsonl``), with everything a run can hold; written by
  ``python -m tools.make_demo`` in the repository.
"""

from importlib.resources import files

from agent_memory_log.errors import InvalidArgument

SAMPLE_NAMES = ("support.jsonl", "demo.jsonl")


def sample_lines(name: str) -> list[bytes]:
    """The lines of a sample, each ending in a newline. Raises ``InvalidArgument`` for a name that is none.

    await import_jsonl(store, sample_lines("demo.jsonl"))
    """
    if name not in SAMPLE_NAMES:
        raise InvalidArgument(f"unknown sample {name!r}; known: {', '.join(SAMPLE_NAMES)}")
    return files(__name__).joinpath(name).read_bytes().splitlines(keepends=True)
