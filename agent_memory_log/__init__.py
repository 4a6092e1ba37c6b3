"""The durable, typed, replayable log of what an AI agent did.

Start with ``open_store`` and ``new_event``; ``Reader`` answers questions about what ``load_run`` returns. The rest of
the library: ``agent_memory_log.transcript`` (provider messages to events and back), ``agent_memory_log.jsonl`` (export
and import), ``agent_memory_log.conformance`` (the test suite for backends), ``agent_memory_log.backend`` (for their
authors), ``agent_memory_log.errors`` (everything that is raised).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own takes longer to import than all that this module does
if TYPE_CHECKING:
    from agent_memory_log.front import *  # noqa: F403
    from agent_memory_log.front import __all__ as __all__  # a type checker wants it said twice
else:

    def __getattr__(name: str) -> object:
        """Import the front when one of its names is first used.

        So ``amlog`` prepares for Ctrl-C before the slow imports, and a program that needs one room imports that alone.
        """
        if name == "__all__" or not name.startswith("__"):
            import agent_memory_log.front as front  # noqa: PLC0415, PLR0402  # "from" would ask this function for it

            globals().update({public: getattr(front, public) for public in front.__all__}, __all__=front.__all__)
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
