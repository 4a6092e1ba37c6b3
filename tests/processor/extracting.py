"""An extractor for tests that is fast, and fails as long as a file exists."""

from __future__ import annotations

from pathlib import Path

from agent_memory_log import UserMessage
from agent_memory_log.memory import Candidate, Evidence, Extraction, Preference, RunSlice


class WordExtractor:
    """Extracts ``KEY is VALUE`` from each message of the user.

    Args:
        broken: The extractor raises ``OSError`` while this file exists.
    """

    name = "words"

    def __init__(self, broken: Path | None = None) -> None:
        self._broken = broken

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return a preference for each message of the user."""
        if self._broken is not None and self._broken.exists():
            raise OSError("the extractor is broken")
        candidates: list[Candidate] = []
        for event in new.events:
            if isinstance(event.data, UserMessage) and " is " in event.data.message:
                key, value = event.data.message.split(" is ", 1)
                evidence = (Evidence(new.agent, new.run, event.seq, event_id=event.event_id),)
                candidates.append(Candidate(data=Preference(key, value), evidence=evidence))
        return Extraction(tuple(candidates))
