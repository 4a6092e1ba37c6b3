"""The durable, typed, replayable log of what an AI agent did.

Start with ``open_store`` and ``new_event``; ``Reader`` answers questions about what ``load_run`` returns. The rooms:
``events`` (what is stored), ``transfer`` (JSONL, copies, forks, imports, verification), ``transcript`` (provider
messages to events and back), ``recording``, ``replay``, ``interchange``, ``memory`` (what is derived from the log),
``recall`` (the search for texts), ``models``, ``secrets``, ``errors`` (everything that is raised), ``backend_kit`` and
``conformance`` (for authors of backends).
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
