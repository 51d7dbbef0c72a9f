"""Listeners are told one at a time, whichever threads the events come from, and nobody waits for himself."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from agentcore import AgentHarness, HarnessError, Model, UserMessage, tool
from agentcore.testing import calls, says, scripted_stream, waits

pytestmark = pytest.mark.pythons

MODEL = Model("m", provider="p", context_window=100_000)


def make(*turns: Any, **options: Any) -> AgentHarness:
    return AgentHarness(model=MODEL, stream_fn=scripted_stream(*turns), retry=None, **options)


def test_what_a_call_brings_about_is_told_on_its_thread_before_it_returns() -> None:
    """While nobody listens elsewhere, `set_model` and `steer` tell their events themselves."""
    let_go = threading.Event()
    harness = make([waits(let_go), says("ok")], says("steered"))
    told: list[tuple[str, str]] = []
    harness.subscribe(lambda event: told.append((event.type, threading.current_thread().name)))
    run = harness.prompt("go")
    _wait_for(lambda: any(kind == "message_end" for kind, _ in told))
    told.clear()
    harness.steer("quick")
    harness.set_thinking_level("high")
    me = threading.current_thread().name
    assert told == [("queue_update", me), ("thinking_level_update", me)]
    let_go.set()
    run.result(10)


def _wait_for(is_true: Any, limit: float = 5.0) -> None:
    waited = threading.Event()
    for _ in range(int(limit / 0.005)):
        if is_true():
            return
        waited.wait(0.005)
    raise AssertionError("it did not become true")


def test_listeners_run_one_at_a_time() -> None:
    """A listener at work on the run thread is not called by another thread meanwhile: it is told when it has returned."""
    inside, let_go = threading.Event(), threading.Event()
    harness = make(says("ok"))
    depth: list[int] = [0]
    told: list[str] = []

    def listener(event: Any) -> None:
        depth[0] += 1
        assert depth[0] == 1
        if event.type == "turn_start":
            inside.set()
            assert let_go.wait(5)
        told.append(event.type)
        depth[0] -= 1

    harness.subscribe(listener)
    run = harness.prompt("go")
    assert inside.wait(5)
    harness.next_turn("later")  # does not wait for the listener
    assert "queue_update" not in told
    let_go.set()
    run.result(10)
    assert told[:3] == ["agent_start", "turn_start", "queue_update"]


def test_a_listener_may_wait_for_a_tool_that_steers() -> None:
    """A tool's `steer` never waits for a listener, so a listener may wait for the tool's own code."""
    steered, started = threading.Event(), threading.Event()

    @tool
    def work() -> str:
        """Steer and go on."""
        started.set()
        harness.steer("from the tool")
        steered.set()
        return "done"

    harness = make(calls("work"), says("ok"), tools=[work])
    waited: list[bool] = []

    def listener(event: Any) -> None:
        if event.type == "tool_execution_start":
            pass
        if event.type == "tool_execution_end":
            waited.append(steered.wait(5))

    harness.subscribe(listener)
    harness.run("go", timeout=10)
    assert waited == [True]


def test_waiting_inside_is_an_error() -> None:
    """In a listener, on the run thread or on the thread whose call it tells, waiting for the run would be for ever."""
    let_go = threading.Event()
    harness = make([waits(let_go), says("ok")])
    errors: list[str] = []

    def listener(event: Any) -> None:
        if event.type in ("turn_start", "queue_update"):
            try:
                harness.wait_for_idle()
            except RuntimeError as error:
                errors.append(str(error))

    harness.subscribe(listener)
    run = harness.prompt("go")
    _wait_for(lambda: errors)
    harness.next_turn("x")  # tells the listener on this thread
    assert len(errors) == 2
    assert "cannot be waited for from inside itself" in errors[1]
    let_go.set()
    run.result(10)


def test_abort_on_the_runs_own_threads_returns_at_once() -> None:
    """In a listener and in a tool `abort` does not wait; it says what it cleared."""
    cleared: list[list[str]] = []

    @tool
    def work() -> str:
        """Abort from inside."""
        harness.steer("lost")
        cleared.append([message.text for message in harness.abort().cleared_steer])
        return "done"

    harness = make(calls("work"), says("never"), says("ok"), tools=[work])
    run = harness.prompt("go")
    assert run.wait(10)
    assert cleared == [["lost"]]
    assert run.message is not None and run.message.stop_reason == "aborted"

    def listener(event: Any) -> None:
        if event.type == "turn_start":
            harness.abort()

    harness.subscribe(listener)
    second = harness.prompt("again")
    assert second.wait(10)
    assert second.message is not None and second.message.stop_reason == "aborted"


def test_abort_elsewhere_waits_for_idle() -> None:
    """When `abort` returns, the run has settled, and the queues are as it says."""
    never = threading.Event()
    harness = make([waits(never), says("never")])
    run = harness.prompt("go")
    _wait_for(lambda: len(harness.messages) == 1)
    harness.steer("one")
    harness.follow_up("two")
    result = harness.abort("enough")
    assert run.done()
    assert harness.phase == "idle"
    assert [message.text for message in (*result.cleared_steer, *result.cleared_follow_up)] == ["one", "two"]
    assert run.message is not None and run.message.stop_reason == "aborted"
    assert run.signal.reason == "enough"


def test_what_a_listener_raises_at_a_late_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is left to whom it could be raised; the run goes on."""
    inside, let_go = threading.Event(), threading.Event()
    harness = make(says("ok"))

    def listener(event: Any) -> None:
        if event.type == "turn_start":
            inside.set()
            assert let_go.wait(5)
        if event.type == "queue_update":
            raise ValueError("late trouble")

    harness.subscribe(listener)
    with caplog.at_level(logging.ERROR, "agentcore"):
        run = harness.prompt("go")
        assert inside.wait(5)
        harness.next_turn("x")
        let_go.set()
        run.result(10)
    assert "a listener raised at queue_update" in caplog.text


def test_what_a_listener_raises_fails_the_call_but_the_change_is_made() -> None:
    """The call raises a `HarnessError` of code `hook` with the listener's words and its cause."""
    harness = make()

    def listener(event: Any) -> None:
        raise ValueError("no such screen")

    unsubscribe = harness.subscribe(listener)
    with pytest.raises(HarnessError, match="no such screen") as caught:
        harness.set_thinking_level("high")
    assert caught.value.code == "hook"
    assert isinstance(caught.value.__cause__, ValueError)
    assert harness.thinking_level == "high"
    unsubscribe()
    unsubscribe()
    harness.set_thinking_level("low")


def test_many_threads_call_at_once() -> None:
    """Eight threads change settings and queue messages while runs go on: every event is told once, none inside another."""
    harness = make(*[says("ok")] * 400)
    busy = threading.Lock()
    counts: dict[str, int] = {}

    def listener(event: Any) -> None:
        assert busy.acquire(blocking=False), "two listeners at a time"
        counts[event.type] = counts.get(event.type, 0) + 1
        busy.release()

    harness.subscribe(listener)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            for number in range(20):
                harness.set_thinking_level("high" if number % 2 else "low")
                harness.next_turn("n")
                harness.append_message(UserMessage("a"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        harness.run("go", timeout=20)
    for thread in threads:
        thread.join(20)
    harness.run("last", timeout=20)
    assert errors == []
    assert counts["thinking_level_update"] == 160
    assert harness.session.build_context().thinking_level == harness.thinking_level
    assert counts["settled"] == 11
    stored = harness.session.build_context().messages
    assert [message.role for message in stored] == [message.role for message in harness.messages]
    assert sum(message.role == "user" for message in stored) == 160 * 2 + 11
