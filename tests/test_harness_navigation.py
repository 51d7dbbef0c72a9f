"""Moving in the tree: with and without a summary, with a label, cancelled, aborted."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentcore import AgentHarness, HarnessError, Model, UserMessage
from agentcore.session import BranchSummary, BranchSummaryEntry, LabelEntry
from agentcore.testing import fails, says, scripted_stream, waits

MODEL = Model("m", provider="p", context_window=100_000)


def make(*turns: Any) -> tuple[AgentHarness, list[str]]:
    """Return a harness that has had two questions and answers, and the ids of the four entries."""
    harness = AgentHarness(model=MODEL, stream_fn=scripted_stream(says("a1"), says("a2"), *turns), retry=None)
    harness.run("q1", timeout=10)
    harness.run("q2", timeout=10)
    return harness, [entry.id for entry in harness.session.get_entries()]


def texts(harness: AgentHarness) -> list[str]:
    return [getattr(message, "text", "") or getattr(message, "summary", "") for message in harness.messages]


def test_a_users_message_is_gone_before_and_its_text_comes_back() -> None:
    """The session stands before the question; its text can be said anew, on a branch of its own."""
    harness, ids = make(says("other"))
    told: list[Any] = []
    harness.on("session_tree", told.append)
    result = harness.navigate_tree(ids[2])
    assert (result.cancelled, result.editor_text, result.summary_entry) == (False, "q2", None)
    assert harness.session.get_leaf_id() == ids[1]
    assert texts(harness) == ["q1", "a1"]
    assert [(event.new_leaf_id, event.old_leaf_id) for event in told] == [(ids[1], ids[3])]
    harness.run("q2 again", timeout=10)
    assert texts(harness) == ["q1", "a1", "q2 again", "other"]
    assert harness.navigate_tree(ids[0]).editor_text == "q1"
    assert harness.session.get_leaf_id() is None
    assert harness.messages == []


def test_going_where_one_stands_is_nothing() -> None:
    """No event, no entry."""
    harness, ids = make()
    told: list[Any] = []
    harness.subscribe(told.append)
    assert harness.navigate_tree(ids[3]).cancelled is False
    assert told == []
    assert len(harness.session.get_entries()) == 4


def test_none_is_the_place_before_the_first_entry() -> None:
    """The conversation begins anew; all of it can be summarised."""
    harness, _ = make(says("ALL OF IT"))
    told: list[Any] = []
    harness.on("session_tree", told.append)
    entry = harness.navigate_tree(None, summarize=True).summary_entry
    assert entry is not None and "ALL OF IT" in entry.summary
    assert [message.role for message in harness.messages] == ["branchSummary"]
    harness.navigate_tree(None)
    assert harness.messages == []
    assert [event.new_leaf_id for event in told] == [entry.id, None]


def test_the_branch_that_is_left_is_summarised_and_labelled() -> None:
    """The summary is an entry at the new place and in the context; the label is stored and names it."""
    harness, ids = make(says("WHAT WAS FOUND"))
    result = harness.navigate_tree(ids[1], summarize=True, label="second try")
    entry = result.summary_entry
    assert isinstance(entry, BranchSummaryEntry)
    assert "WHAT WAS FOUND" in entry.summary
    assert entry.from_hook is False
    assert harness.session.get_label(entry.id) == "second try"
    assert isinstance(harness.session.get_entries()[-1], LabelEntry)
    assert [message.role for message in harness.messages] == ["user", "assistant", "branchSummary"]


def test_a_label_without_a_summary_names_the_target() -> None:
    """The entry that was gone to gets the name."""
    harness, ids = make()
    harness.navigate_tree(ids[1], label="here")
    assert harness.session.get_label(ids[1]) == "here"
    assert texts(harness) == ["q1", "a1"]


def test_handlers_cancel_or_write_the_summary_and_see_each_other() -> None:
    """The second handler sees the summary of the first; it is stored as made by a hook."""
    harness, ids = make()
    seen: list[Any] = []
    remove = harness.on("session_before_tree", lambda event: {"cancel": True})
    assert harness.navigate_tree(ids[1]).cancelled is True
    assert harness.session.get_leaf_id() == ids[3]
    remove()
    harness.on("session_before_tree", lambda event: {"summary": "by hand", "label": "x"})
    harness.on("session_before_tree", lambda event: seen.append((event.summary, event.preparation.label)))
    entry = harness.navigate_tree(ids[1]).summary_entry
    assert entry is not None and (entry.summary, entry.from_hook) == ("by hand", True)
    assert seen == [(BranchSummary("by hand"), "x")]


def test_what_fails_leaves_the_session_where_it_stood() -> None:
    """An unknown entry, a handler that raises, a summary that fails: each with its code."""
    harness, ids = make(fails("no model today", kind="request"))
    with pytest.raises(HarnessError, match="the session has no entry 'nope'") as caught:
        harness.navigate_tree("nope")
    assert caught.value.code == "invalid_argument"
    with pytest.raises(HarnessError, match="the branch could not be summarised: no model today") as caught:
        harness.navigate_tree(ids[1], summarize=True)
    assert caught.value.code == "branch_summary"

    def broken(event: Any) -> None:
        raise ValueError("oops")

    harness.on("session_before_tree", broken)
    with pytest.raises(HarnessError, match="oops") as caught:
        harness.navigate_tree(ids[1])
    assert caught.value.code == "hook"
    assert harness.session.get_leaf_id() == ids[3]
    assert harness.phase == "idle"


def test_an_abort_cancels_the_move() -> None:
    """While the summary is written, `abort` ends it: the move is cancelled, not failed."""
    never, results = threading.Event(), []
    asked = threading.Event()
    harness, ids = make([waits(asked.set), waits(never), says("late")])
    thread = threading.Thread(target=lambda: results.append(harness.navigate_tree(ids[1], summarize=True)))
    thread.start()
    assert asked.wait(5)
    assert harness.phase == "branch_summary"
    harness.abort()
    thread.join(5)
    assert [result.cancelled for result in results] == [True]
    assert harness.session.get_leaf_id() == ids[3]


def test_what_is_queued_during_a_move_goes_into_the_next_run() -> None:
    """`steer` is accepted while the summary is written, and waits."""
    asked, let_go = threading.Event(), threading.Event()
    harness, ids = make([waits(asked.set), waits(let_go), says("S")], says("ok"))
    thread = threading.Thread(target=lambda: harness.navigate_tree(ids[1], summarize=True))
    thread.start()
    assert asked.wait(5)
    harness.steer("mind this")
    harness.append_message(UserMessage("noted"))
    let_go.set()
    thread.join(5)
    assert texts(harness)[-1] == "noted"
    harness.run("go", timeout=10)
    assert texts(harness)[-3:] == ["go", "mind this", "ok"]
