"""Sample runs for the demo, the tests and first experiments.

- ``support.jsonl``: five runs of an online shop's support agent, as OpenAI Chat messages. Read it with
  ``transcript.read_chat_lines``.
- ``demo.jsonl``: one run in this library's JSONL with every kind of content. Read it with ``jsonl.import_jsonl``.
  ``python -m tools.make_demo`` writes it in the repository.
"""

from importlib.resources import files

from agent_memory_log.errors import InvalidArgument

SAMPLE_NAMES = ("support.jsonl", "demo.jsonl")


def sample_lines(name: str) -> list[bytes]:
    """Return the lines of a sample, each with its newline:

        await import_jsonl(store, sample_lines("demo.jsonl"))

    Raises ``InvalidArgument`` if no sample has the name.
    """
    if name not in SAMPLE_NAMES:
        raise InvalidArgument(f"unknown sample {name!r}; the samples are {', '.join(SAMPLE_NAMES)}")
    return files(__name__).joinpath(name).read_bytes().splitlines(keepends=True)
