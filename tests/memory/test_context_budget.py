"""What fits into the block: what comes first, what is left out, that nothing starves, and that nothing comes twice."""

from __future__ import annotations

import pytest

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Episode, MemoryContext, SyncMemory, SyncMemoryClient
from agent_memory_log.models.tokens import count_bytes
from tests.memory.stores import SetClock, somebody

ENOUGH = 1_000_000


def say(store: SyncStore, me: SyncMemory, *texts: str, run: str = "run", scope: str = "user") -> None:
    """Let messages be found."""
    store.append_events("agent", run, *(new_event(UserMessage(text)) for text in texts))
    me.link_run("agent", run, scope=scope)


def test_every_budget_is_kept_to_and_what_fits_exactly_is_there() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock).of(somebody(user="1"))
        me.remember(key="language", value="english")
        alone = me.context("zebra", max_tokens=ENOUGH)
        assert me.context("zebra", max_tokens=alone.tokens) == alone
        too_little = alone.tokens - 1
        assert me.context("zebra", max_tokens=too_little) == MemoryContext(
            note=f"nothing fits into max_tokens={too_little}"
        )
        me.remember(Episode("x"), text="A zebra was seen")
        clock.move(days=1)
        me.remember(Episode("x"), text="The sea was calm")
        say(store, me, "Where is the zebra?")
        full = me.context("zebra", max_tokens=ENOUGH)
        assert (len(full.records), len(full.messages)) == (3, 1)
        sizes: list[int] = []
        found = MemoryContext()
        for budget in range(1, full.tokens + 2):
            found = me.context("zebra", max_tokens=budget)
            assert count_bytes(found.text) == found.tokens <= budget
            assert set(found.text.splitlines()) <= set(full.text.splitlines())
            sizes.append(len(found.records) + len(found.messages))
        assert found == full
        assert sizes[0] == 0
        assert set(sizes) == {0, 1, 2, 3, 4}
        assert full == me.context("zebra", max_tokens=10**40)


def test_a_large_profile_leaves_room_for_what_has_to_do_with_the_question() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        for number in range(60):
            me.remember(key=f"key{number}", value="something or other", importance=1 if number == 41 else 0.5)
        profile = me.context("When does the zebra run?", max_tokens=1_000)
        assert profile.tokens > 950
        me.remember(Episode("x"), text="The zebra was fed", importance=0.25)
        say(store, me, "The zebra runs at noon")
        found = me.context("When does the zebra run?", max_tokens=1_000)
        assert found.tokens > 950
        assert "was fed" in found.text
        assert "at noon" in found.text
        assert '"key41"' in found.text
        # Half of the room is the profile's, whatever else there is.
        assert len(found.records) - 1 >= len(profile.records) // 2


def test_what_was_said_leaves_room_for_the_profile() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        me.remember(key="language", value="english")
        for number in range(5):
            me.remember(Episode("x"), text=f"{number} zebra " + "z" * 200)
        say(store, me, *(f"{number} zebra " + "w" * 90 for number in range(5)))
        found = me.context("zebra", max_tokens=1_000)
        assert '"english"' in found.text
        assert "zzz" in found.text
        assert "www" in found.text


def test_what_is_larger_than_the_budget_is_left_out_and_the_rest_kept() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        me.remember(key="story", value="s" * 600, importance=1)
        me.remember(key="language", value="english", importance=0)
        say(store, me, "zebra " * 100, "zebra at noon")
        found = me.context("zebra", max_tokens=500)
        assert [line for line in found.text.splitlines() if line.startswith("- pref")] == [
            '- preference "language": "english"'
        ]
        assert [one.seq for one in found.messages] == [2]


def test_the_best_are_kept_where_not_all_fit() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        say(store, me, "The striped horse", "A zebra, a lion and a fish", "The zebra ate grass", "Zebra zebra")
        best = me.search("zebra ate grass", kinds=["message"], top_k=1)[0]
        found = me.context("zebra ate grass", max_tokens=270)
        assert found.messages == best.evidence


def test_no_more_than_promised() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock).of(somebody())
        for number in range(12):
            clock.move(days=1)
            me.remember(Episode("x"), text=f"zebra {number}", importance=0.1 if number in {3, 11} else 0.5)
            me.remember(Episode("x"), text=f"sea {number}", scope="workspace")
        say(store, me, *(f"zebra {number}" for number in range(12)))
        found = me.context("zebra", max_tokens=ENOUGH)
    lines = found.text.splitlines()
    assert sum('"zebra' in line and "said" not in line for line in lines) in {6, 7}
    assert '"sea 11"' in found.text
    assert '"zebra 3"' not in found.text.partition("What was said:")[0]
    assert len(found.records) == len(set(found.records)) == 8
    assert len(found.messages) == 5


def test_a_run_of_several_scopes_is_not_there_twice() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        say(store, me, *(f"zebra {number}" for number in range(6)))
        me.link_run("agent", "run", scope="workspace")
        found = me.context("zebra", max_tokens=ENOUGH)
        assert len(found.messages) == len(set(found.messages)) == 5
        assert sum("zebra" in line for line in found.text.splitlines()) == 5


@pytest.mark.parametrize("budget", [0, -1, -(10**30), True, False, 1.0, float("nan"), None, "100"])
def test_a_budget_that_is_none_is_refused_whether_there_is_memory_or_not(budget: object) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="max_tokens must be an integer from 1"):
                me.context("x", max_tokens=budget)  # type: ignore[arg-type]  # what is tested
            me.remember(key="language", value="english")


def test_half_of_the_room_is_the_profiles() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        for number in range(60):
            me.remember(key=f"key{number}", value="something or other")
        for number in range(5):
            me.remember(Episode("x"), text=f"{number} zebra " + "z" * 400)
        say(store, me, *(f"{number} zebra " + "w" * 400 for number in range(5)))
        found = me.context("zebra", max_tokens=4_000)
        sizes = [len(part) for part in found.text.replace("What was said:", "What happened:").split("What happened:")]
    assert found.tokens > 3_900
    assert 1_500 < sizes[0] < 2_300
    assert 800 < sizes[1] < 1_300
    assert 800 < sizes[2] < 1_300


def test_a_heading_takes_room_too() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        me.remember(key="k1", value="v" * 38)
        alone = me.context("zebra", max_tokens=ENOUGH)
        me.remember(key="k2", value="v" * 38)
        say(store, me, "zebra " + "w" * 26)
        # Each of the other two lines has 60 bytes, but the message needs its heading besides.
        found = me.context("zebra", max_tokens=alone.tokens + 65)
        assert found.tokens == alone.tokens + 60
        assert (len(found.records), found.messages) == (2, ())


def test_what_hardly_matters_is_there_while_it_is_recent() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock).of(somebody(user="1"))
        me.remember(Episode("x"), text="A zebra sneezed", importance=0.1)
        assert "sneezed" in me.context("zebra", max_tokens=ENOUGH).text
        for number in range(3):
            clock.move(days=1)
            me.remember(Episode("x"), text=f"The sea was calm, {number}")
        assert "sneezed" not in me.context("zebra", max_tokens=ENOUGH).text
