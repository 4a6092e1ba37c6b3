"""Tests of the context budget: the order of records, the share of each section, and no duplicates."""

from __future__ import annotations

import pytest

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Episode, MemoryContext, Note, SyncMemory, SyncMemoryClient
from tests.memory.stores import SetClock, somebody

ENOUGH = 1_000_000


def append_messages(store: SyncStore, me: SyncMemory, *texts: str, run: str = "run", scope: str = "user") -> None:
    """Append user messages to a run and link it, so that a search returns them."""
    store.append_events("agent", run, *(new_event(UserMessage(text)) for text in texts))
    me.link_run("agent", run, scope=scope)


def test_a_context_without_a_match_is_empty_and_has_no_note() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody(user="1"))
        assert me.context("zebra") == MemoryContext()
        me.remember(Note(), text="The sea was calm")
        assert me.context("zebra") == MemoryContext()
        assert me.context("sea").text


def test_context_fits_every_budget_and_uses_an_exact_fit() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock, count_tokens=len).of(somebody(user="1"))
        me.remember(key="language", value="english")
        minimal = me.context("zebra", max_tokens=ENOUGH)
        assert me.context("zebra", max_tokens=minimal.tokens) == minimal
        too_little = minimal.tokens - 1
        assert me.context("zebra", max_tokens=too_little) == MemoryContext(
            note=f"nothing fits into max_tokens={too_little}"
        )
        me.remember(Episode("x"), text="A zebra was seen")
        clock.move(days=1)
        me.remember(Episode("x"), text="The sea was calm")
        append_messages(store, me, "Where is the zebra?")
        full = me.context("zebra", max_tokens=ENOUGH)
        assert (len(full.records), len(full.messages)) == (3, 1)
        sizes: list[int] = []
        context = MemoryContext()
        for budget in range(1, full.tokens + 2):
            context = me.context("zebra", max_tokens=budget)
            assert len(context.text) == context.tokens <= budget
            assert set(context.text.splitlines()) <= set(full.text.splitlines())
            sizes.append(len(context.records) + len(context.messages))
        assert context == full
        assert sizes[0] == 0
        assert set(sizes) == {0, 1, 2, 3, 4}
        assert full == me.context("zebra", max_tokens=10**40)


def test_large_profile_leaves_room_for_relevant_records_and_messages() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        for number in range(60):
            me.remember(key=f"key{number}", value="something or other", importance=1 if number == 41 else 0.5)
        profile = me.context("When does the zebra run?", max_tokens=1_000)
        assert profile.tokens > 950
        me.remember(Episode("x"), text="The zebra was fed", importance=0.25)
        append_messages(store, me, "The zebra runs at noon")
        context = me.context("When does the zebra run?", max_tokens=1_000)
        assert context.tokens > 950
        assert "was fed" in context.text
        assert "at noon" in context.text
        assert '"key41"' in context.text
        # At least half of the profile remains.
        assert len(context.records) - 1 >= len(profile.records) // 2


def test_messages_leave_room_for_the_profile() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        me.remember(key="language", value="english")
        for number in range(5):
            me.remember(Episode("x"), text=f"{number} zebra " + "z" * 200)
        append_messages(store, me, *(f"{number} zebra " + "w" * 90 for number in range(5)))
        context = me.context("zebra", max_tokens=1_000)
        assert '"english"' in context.text
        assert "zzz" in context.text
        assert "www" in context.text


def test_items_larger_than_the_budget_are_omitted_and_the_rest_included() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        me.remember(key="story", value="s" * 600, importance=1)
        me.remember(key="language", value="english", importance=0)
        append_messages(store, me, "zebra " * 100, "zebra at noon")
        context = me.context("zebra", max_tokens=500)
        assert [line for line in context.text.splitlines() if line.startswith("- pref")] == [
            '- preference "language": "english"'
        ]
        assert [evidence.seq for evidence in context.messages] == [2]


def test_context_keeps_the_best_message_if_not_all_fit() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        append_messages(
            store, me, "The striped horse", "A zebra, a lion and a fish", "The zebra ate grass", "Zebra zebra"
        )
        best = me.search("zebra ate grass", kinds=["message"], top_k=1)[0]
        context = me.context("zebra ate grass", max_tokens=270)
        assert context.messages == best.evidence


def test_context_limits_the_number_of_records_and_messages() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock, count_tokens=len).of(somebody())
        for number in range(12):
            clock.move(days=1)
            me.remember(Episode("task_result"), text=f"zebra {number}", importance=0.1 if number in {3, 11} else 0.5)
            me.remember(Episode("task_result"), text=f"sea {number}", scope="workspace")
        append_messages(store, me, *(f"zebra {number}" for number in range(12)))
        context = me.context("zebra", max_tokens=ENOUGH)
    lines = context.text.splitlines()
    assert sum('"zebra' in line and "said" not in line for line in lines) in {6, 7}
    assert '"sea 11"' in context.text
    assert '"zebra 3"' not in context.text.partition("What was said:")[0]
    assert len(context.records) == len(set(context.records)) == 8
    assert len(context.messages) == 12


def test_run_linked_to_several_scopes_appears_once() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody())
        append_messages(store, me, *(f"zebra {number}" for number in range(6)))
        me.link_run("agent", "run", scope="workspace")
        context = me.context("zebra", max_tokens=ENOUGH)
        assert len(context.messages) == len(set(context.messages)) == 6
        assert sum("zebra" in line for line in context.text.splitlines()) == 6


@pytest.mark.parametrize("budget", [0, -1, -(10**30), True, False, 1.0, float("nan"), None, "100"])
def test_invalid_budget_is_refused_with_and_without_records(budget: object) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="max_tokens must be an integer from 1"):
                me.context("x", max_tokens=budget)  # type: ignore[arg-type]  # must be refused
            me.remember(key="language", value="english")


def test_profile_gets_half_of_the_budget() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        for number in range(60):
            me.remember(key=f"key{number}", value="something or other")
        for number in range(5):
            me.remember(Episode("x"), text=f"{number} zebra " + "z" * 400)
        append_messages(store, me, *(f"{number} zebra " + "w" * 400 for number in range(5)))
        context = me.context("zebra", max_tokens=4_000)
        sizes = [len(part) for part in context.text.replace("What was said:", "What happened:").split("What happened:")]
    assert context.tokens > 3_900
    assert 1_500 < sizes[0] < 2_300
    assert 800 < sizes[1] < 1_300
    assert 800 < sizes[2] < 1_300


def test_headings_count_towards_the_budget() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, count_tokens=len).of(somebody(user="1"))
        me.remember(key="k1", value="v" * 38)
        minimal = me.context("zebra", max_tokens=ENOUGH)
        me.remember(key="k2", value="v" * 38)
        append_messages(store, me, "zebra " + "w" * 26)
        # Each of the other two lines has 60 bytes, but the message also needs its heading.
        context = me.context("zebra", max_tokens=minimal.tokens + 65)
        assert context.tokens == minimal.tokens + 60
        assert (len(context.records), context.messages) == (2, ())


def test_unimportant_episode_appears_only_while_it_is_recent() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=clock, count_tokens=len).of(somebody(user="1"))
        me.remember(Episode("x"), text="A zebra sneezed", importance=0.1)
        assert "sneezed" in me.context("zebra", max_tokens=ENOUGH).text
        for number in range(3):
            clock.move(days=1)
            me.remember(Episode("x"), text=f"The sea was calm, {number}")
        assert "sneezed" not in me.context("zebra", max_tokens=ENOUGH).text
