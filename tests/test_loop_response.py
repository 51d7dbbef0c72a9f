"""One answer of the model: what is told, what is kept, and when it is asked for again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.agent import Agent
from agentcore.errors import AgentAbortedError, AgentRunError
from agentcore.events import (
    AssistantMessageEvent,
    DoneEvent,
    ErrorEvent,
    RetryEvent,
    StartEvent,
    TextDeltaEvent,
    TextStartEvent,
)
from agentcore.llm.request import Context, StreamOptions
from agentcore.loop import RetryPolicy
from agentcore.messages import AssistantMessage, TextContent
from agentcore.models import Model
from agentcore.testing import ScriptedTurn, fails, says, scripted_stream

pytestmark = pytest.mark.pythons

FAST = RetryPolicy(max_retries=3, base_delay=0.001)


def run(*turns: ScriptedTurn, retry: RetryPolicy | None = FAST) -> tuple[Agent, Any, list[Any]]:
    """Run one prompt against a script; return the agent, the stream function and the events."""
    stream = scripted_stream(*turns)
    agent = Agent(stream_fn=stream, retry=retry)
    events: list[Any] = []
    agent.subscribe(events.append)
    agent.prompt("go").wait(10)
    return agent, stream, events


def kinds(events: list[Any]) -> list[str]:
    return [event.type for event in events if event.type != "message_update"]


def test_an_answer_that_broke_off_is_asked_for_again() -> None:
    """C014 (c): the text of the failed try is neither in the transcript nor in the next request."""
    agent, stream, events = run(says("half ", "of it") + fails("overloaded", retryable=True), says("all of it"))
    assert [message.role for message in agent.messages] == ["user", "assistant"]
    assert agent.messages[-1].text == "all of it"
    assert stream.requests[0] == stream.requests[1]
    assert kinds(events) == [
        "agent_start", "turn_start", "message_start", "message_end",
        "message_start", "message_end", "retry", "message_start", "message_end", "turn_end", "agent_end",
    ]  # fmt: skip
    failed = events[kinds_index(events, "retry") - 1].message
    assert (failed.stop_reason, failed.text, failed.error_message) == ("error", "half of it", "overloaded")
    assert agent.state.error_message is None


def kinds_index(events: list[Any], kind: str) -> int:
    return next(index for index, event in enumerate(events) if event.type == kind)


def test_an_overload_before_any_delta_is_tried_again_too() -> None:
    """C014 (b): a failure right behind the StartEvent, with no delta, is the answer retry's."""
    agent, stream, _ = run(fails("overloaded", retryable=True), says("ok"))
    assert agent.messages[-1].text == "ok"
    assert len(stream.requests) == 2


def test_a_failure_before_the_start_is_final_here() -> None:
    """The request retry has made its own tries until the StartEvent; the two never stack."""
    model = AssistantMessage(stop_reason="error", error_message="overloaded", error_kind="server", error_retryable=True)
    asked = []

    def stream(*args: Any) -> Iterator[AssistantMessageEvent]:
        asked.append(1)
        yield ErrorEvent(model)

    agent = Agent(stream_fn=stream, retry=FAST)
    with pytest.raises(AgentRunError, match="overloaded") as raised:
        agent.run("go")
    assert (raised.value.kind, asked) == ("server", [1])


def test_tries_are_counted_and_the_last_failure_stays() -> None:
    """After max_retries new tries the failed answer is in the transcript, and the run fails with its text and kind."""
    broken = fails("overloaded", kind="server", retryable=True)
    agent, stream, events = run(broken, broken, broken, retry=RetryPolicy(2, 0.001))
    retries = [event for event in events if isinstance(event, RetryEvent)]
    assert [(event.attempt, event.max_retries, event.source, event.kind) for event in retries] == [
        (1, 2, "answer", "server"),
        (2, 2, "answer", "server"),
    ]
    assert len(stream.requests) == 3
    assert [message.role for message in agent.messages] == ["user", "assistant"]
    assert agent.messages[-1].stop_reason == "error"


@pytest.mark.parametrize(
    ("turn", "policy"),
    [
        (fails("no such model", retryable=False), FAST),
        (fails("overloaded", retryable=True), None),
        (fails("overloaded", retryable=True), RetryPolicy(max_retries=0)),
    ],
)
def test_no_new_try(turn: ScriptedTurn, policy: RetryPolicy | None) -> None:
    """What cannot be helped by a new try, and what the policy forbids, is asked for once."""
    _, stream, events = run(turn, says("never"), retry=policy)
    assert len(stream.requests) == 1
    assert "retry" not in kinds(events)


@pytest.mark.parametrize(("text", "tries"), [("Overloaded, try again later", 2), ("insufficient_quota: no credit", 1)])
def test_a_foreign_failure_is_judged_by_its_text(text: str, tries: int) -> None:
    """A custom stream function says nothing but a text: that decides, and quota is never tried again."""
    asked = []

    def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        asked.append(1)
        partial = AssistantMessage()
        yield StartEvent(partial)
        if len(asked) == 2:
            yield DoneEvent(AssistantMessage([TextContent("ok")]))
        yield ErrorEvent(AssistantMessage(stop_reason="error", error_message=text))

    agent = Agent(stream_fn=stream, retry=FAST)
    agent.prompt("go").wait(10)
    assert len(asked) == tries


def test_pauses_grow_and_jitter_only_shortens() -> None:
    """Each pause doubles, less up to a quarter: so each is longer than the one before."""
    policy = RetryPolicy(base_delay=2.0)
    for _ in range(200):
        pauses = [policy.pause(attempt) for attempt in (1, 2, 3)]
        assert 1.5 <= pauses[0] <= 2.0 < 3.0 <= pauses[1] <= 4.0 < 6.0 <= pauses[2] <= 8.0


def test_an_abort_ends_the_pause() -> None:
    """An abort during the pause settles the run at once, as aborted; no further request is made."""
    stream = scripted_stream(fails("overloaded", retryable=True), says("never"))
    agent = Agent(stream_fn=stream, retry=RetryPolicy(base_delay=60))
    paused = threading.Event()
    agent.subscribe(lambda event: paused.set() if event.type == "retry" else None)
    run = agent.prompt("go")
    assert paused.wait(5)
    began = time.monotonic()
    agent.abort("enough")
    with pytest.raises(AgentAbortedError, match="enough"):
        run.result(5)
    assert time.monotonic() - began < 1
    assert [getattr(message, "stop_reason", None) for message in agent.messages] == [None, "aborted"]
    assert len(stream.requests) == 1


def test_the_wait_covers_new_tries_and_their_tools() -> None:
    """C052: prompt's run settles after the last try, with one agent_end."""
    from agentcore.testing import calls
    from agentcore.tools.decorator import tool

    done = []

    @tool
    def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    stream = scripted_stream(fails("503", retryable=True), calls("look"), says("done"))
    agent = Agent(stream_fn=stream, tools=[look], retry=FAST)
    events: list[Any] = []
    agent.subscribe(events.append)
    agent.prompt("go")
    assert agent.wait_for_idle(10)
    assert done == ["look"]
    assert agent.messages[-1].text == "done"
    assert kinds(events).count("agent_end") == 1


def test_a_stream_that_just_ends_is_a_failure_and_what_came_is_kept() -> None:
    """No last event and no result(): an error of kind protocol, with the partial content."""

    def stream(*args: Any) -> Iterator[AssistantMessageEvent]:
        partial = AssistantMessage([TextContent("half")])
        yield StartEvent(partial)
        yield TextStartEvent(0, partial)
        yield TextDeltaEvent(0, "half", partial)

    agent = Agent(stream_fn=stream, retry=None)
    with pytest.raises(AgentRunError, match="ended without a DoneEvent") as raised:
        agent.run("go")
    assert raised.value.kind == "protocol"
    assert agent.messages[-1].text == "half"


def test_a_stream_function_that_yields_something_else_is_told_so() -> None:
    """A wrong event fails the run with a text that says what to yield."""

    def stream(*args: Any) -> Iterator[Any]:
        yield "hello"

    agent = Agent(stream_fn=stream)
    with pytest.raises(AgentRunError, match="yielded a value of type str: it must yield AssistantMessageEvents") as raised:
        agent.run("go")
    assert raised.value.kind == "hook"
    assert isinstance(raised.value.__cause__, TypeError)


def test_the_generator_is_closed_when_a_listener_raises() -> None:
    """A stream that is left in the middle is closed at once, so that its connection does not wait for the garbage collector."""
    closed = threading.Event()

    def stream(*args: Any) -> Iterator[AssistantMessageEvent]:
        try:
            yield StartEvent(AssistantMessage())
            yield DoneEvent(AssistantMessage())
        finally:
            closed.set()

    def listener(event: Any) -> None:
        if event.type == "message_start" and event.message.role == "assistant" and not closed.is_set():
            raise ValueError("not this one")

    agent = Agent(stream_fn=stream)
    agent.subscribe(listener)
    with pytest.raises(AgentRunError, match="not this one"):
        agent.run("go")
    assert closed.is_set()


def test_the_answer_is_asked_for_in_step_with_the_listeners() -> None:
    """The next event of a stream is asked for when all listeners have had the last one."""
    order: list[str] = []

    def stream(*args: Any) -> Iterator[AssistantMessageEvent]:
        partial = AssistantMessage([TextContent("")])
        yield StartEvent(partial)
        for word in ("a", "b"):
            order.append(f"asked {word}")
            yield TextDeltaEvent(0, word, partial)
        yield DoneEvent(AssistantMessage([TextContent("ab")]))

    agent = Agent(stream_fn=stream)
    agent.subscribe(lambda event: order.append("heard") if event.type == "message_update" else None)
    agent.run("go")
    assert order == ["asked a", "heard", "asked b", "heard"]


def test_without_listeners_the_state_still_shows_the_answer_growing() -> None:
    """Where nobody listens no updates are made, but `state.streaming_message` is live all the same."""
    seen, go_on = threading.Event(), threading.Event()

    def stream(*args: Any) -> Iterator[AssistantMessageEvent]:
        partial = AssistantMessage([TextContent("")])
        yield StartEvent(partial)
        for text in ("one", "one two"):
            partial = AssistantMessage([TextContent(text)])  # a fresh object with every event, as some do it
            yield TextDeltaEvent(0, text, partial)
        seen.set()
        assert go_on.wait(5)
        yield DoneEvent(AssistantMessage([TextContent("one two three")]))

    agent = Agent(stream_fn=stream)
    run = agent.prompt("go")
    assert seen.wait(5)
    streaming = agent.state.streaming_message
    assert isinstance(streaming, AssistantMessage) and streaming.text == "one two"
    go_on.set()
    assert run.result(5)[-1].text == "one two three"


@pytest.mark.parametrize(("arguments", "text"), [({"max_retries": -1}, "max_retries"), ({"base_delay": -1}, "seconds")])
def test_a_policy_that_makes_no_sense_is_refused(arguments: Any, text: str) -> None:
    """Wrong numbers are refused when the policy is made."""
    with pytest.raises(ValueError, match=text):
        RetryPolicy(**arguments)


@pytest.mark.parametrize(
    ("hooks", "text"),
    [
        (
            {"transform_context": lambda messages: None},
            "transform_context returned a value of type NoneType: it must return the list",
        ),
        ({"convert_to_llm": lambda messages: iter(messages)}, "convert_to_llm returned a value of type list_iterator"),
        ({"stream_fn": lambda *args: None}, "the stream function returned a value of type NoneType: it must return an iterable"),
        (
            {"prepare_next_turn": lambda: True},
            "prepare_next_turn returned a value of type bool: it must return AgentLoopTurnUpdate\\(",
        ),
        ({"prepare_next_turn_with_context": lambda: {}}, "prepare_next_turn_with_context returned a value of type dict"),
        ({"get_api_key": lambda: 5}, "get_api_key returned a value of type int: it must return a text or None"),
    ],
)
def test_a_hook_that_returns_something_else_is_told_so(hooks: Any, text: str) -> None:
    """Each fails the run with one line that names the hook and what it must return; the agent is usable afterwards."""
    agent = Agent(**{"stream_fn": scripted_stream(says("ok"), says("ok")), **hooks})
    with pytest.raises(AgentRunError, match=text) as raised:
        agent.run("go")
    assert raised.value.kind == "hook"
    for name in hooks:
        setattr(agent, name, None)
    agent.stream_fn = scripted_stream(says("fine"))
    assert agent.run("again").text == "fine"


def test_requests_are_logged_without_their_contents(caplog: pytest.LogCaptureFixture) -> None:
    """DEBUG shows each request and each run, never a key or what a message says."""
    agent = Agent(model=Model("m"), stream_fn=scripted_stream(says("the-answer")), system_prompt="the-rules")
    agent.get_api_key = lambda provider: "K-SECRET"
    with caplog.at_level("DEBUG", logger="agentcore"):
        agent.run("the-question")
    assert [record.getMessage() for record in caplog.records] == [
        "run begins: model m, 0 messages",
        "request to m: 1 messages, 0 tools",
        "run ends: 2 new messages",
    ]
