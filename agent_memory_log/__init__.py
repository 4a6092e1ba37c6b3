"""The durable, typed, replayable log of what an AI agent did, and memory derived from it.

Start with ``open_store`` and ``new_event``. ``load_run`` returns a ``Snapshot``, and a ``Reader`` answers questions
about it.

The subpackages and modules:

- ``events``: events, their payloads, and the registry for payloads of your own.
- ``store``: the ``Store`` protocol and its results.
- ``capabilities``: optional abilities of a store: releasing unused space and making a backup.
- ``errors``: every error that the library raises.
- ``transfer``: JSONL, copies, forks, imports and verification of whole stores.
- ``transcript``: conversion between a provider's messages and events.
- ``recording``: recorders that append the steps of a running agent.
- ``replay``: recorded runs as regression tests of an agent.
- ``interchange``: other tools' formats, ATIF and OpenTelemetry.
- ``memory``: memory derived from the log.
- ``recall``: search over documents.
- ``models``: clients for the language models that memory uses.
- ``secrets``: detection and redaction of secrets.
- ``samples``: example runs.
- ``cli``: the ``amlog`` command.
- ``backend_kit``: building blocks for authors of backends.
- ``conformance``: the test suite that every backend must pass.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than the rest of this module
if TYPE_CHECKING:
    from agent_memory_log.front import *  # noqa: F403
    from agent_memory_log.front import __all__ as __all__  # type checkers need the explicit import too

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Import ``front`` when one of its names is first used, and read ``__version__`` when it is first used.

        ``amlog`` can then handle Ctrl-C before the slow imports, and a program that needs one subpackage imports only
        that one.
        """
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415  # slow to import, and rarely needed

            globals()["__version__"] = version("agent-memory-log")
            return globals()["__version__"]
        if name == "__all__" or not name.startswith("__"):
            import agent_memory_log.front as front  # noqa: PLC0415, PLR0402  # a "from" import would call this function again

            globals().update({public: getattr(front, public) for public in front.__all__}, __all__=front.__all__)
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), "__version__", *__getattr__("__all__")})
