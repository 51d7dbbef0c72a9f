"""Reading a run's events as an iterator, in step."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.agent import Agent
from agentcore.errors import AgentAbortedError, AgentRunError
from agentcore.loop import AgentContext, AgentLoopConfig, agent_loop, agent_loop_continue
from agentcore.messages import UserMessage
from agentcore.models import Model
from agentcore.testing import fails, says, scripted_stream

pytestmark = pytest.mark.pythons

KINDS = [
    "agent_start", "turn_start", "message_start", "message_end", "message_start",
    "message_update", "message_update", "message_update", "message_end", "turn_end", "agent_end",
]  # fmt: skip


def test_a_stream_gives_every_event_and_the_run() -> None:
    """All events in order, then the end; the run has the result."""
    agent = Agent(stream_fn=scripted_stream(says("hi")))
    with agent.stream("hello") as stream:
        assert [event.type for event in stream] == KINDS
        assert stream.run.text == "hi"
        assert next(stream, None) is None
    assert stream.result()[-1].text == "hi"


def test_the_run_waits_until_the_reader_asks_for_the_next_event() -> None:
    """In step: while the reader looks at one event, listeners have heard no later one."""
    agent = Agent(stream_fn=scripted_stream(says("a", "b", "c")))
    heard: list[str] = []
    agent.subscribe(lambda event: heard.append(event.type))
    read = 0
    with agent.stream("go") as stream:
        for _ in stream:
            read += 1
            assert len(heard) == read
    assert read == len(heard) > 8


@pytest.mark.parametrize("way", ["wait_for_idle", "wait", "result", "with"])
def test_whoever_waits_ends_the_step(way: str) -> None:
    """The run goes on by itself, and the rest of the events is queued for the reader."""
    agent = Agent(stream_fn=scripted_stream(says("hi")))
    stream = agent.stream("go")
    first = next(stream)
    if way == "wait_for_idle":
        assert agent.wait_for_idle(5)
    elif way == "wait":
        assert stream.run.wait(5)
    elif way == "result":
        stream.run.result(5)
    else:
        with agent:
            pass
    assert stream.run.done()
    assert [first.type, *(event.type for event in stream)] == KINDS


def test_an_abort_ends_the_step() -> None:
    """The reader need not read on for the run to settle."""
    agent = Agent(stream_fn=scripted_stream(says("one", "two")))
    stream = agent.stream("go")
    for event in stream:
        if event.type == "message_update":
            break
    agent.abort()
    assert stream.run.block(5)
    assert [event.type for event in stream][-3:] == ["message_end", "turn_end", "agent_end"]
    with pytest.raises(AgentAbortedError):
        stream.result()


def test_leaving_early_aborts() -> None:
    """Leaving the with block, close(), and dropping the stream after a break: the run is aborted each time."""
    agent = Agent(stream_fn=scripted_stream(*[says("one", "two")] * 3))
    with agent.stream("go") as stream:
        next(stream)
    assert isinstance(stream.run.exception(5), AgentAbortedError)
    stream = agent.stream("go")
    next(stream)
    stream.close()
    assert stream.run.done() and list(stream) == []
    for event in agent.stream("go"):
        if event.type == "message_start":
            break
    gc.collect()
    assert agent.wait_for_idle(5)
    assert agent.messages[-1].stop_reason == "aborted"  # type: ignore[union-attr]


def test_a_failed_run_ends_the_iteration_and_raises_at_result() -> None:
    """The iteration shows the failure as events; the exception comes with the result."""
    agent = Agent(stream_fn=scripted_stream(fails("broken")))
    stream = agent.stream("go")
    assert [event.type for event in stream][-1] == "agent_end"
    with pytest.raises(AgentRunError, match="broken"):
        stream.result()


def make_loop(*turns: Any, **config: Any) -> tuple[AgentContext, AgentLoopConfig, Any]:
    return AgentContext(), AgentLoopConfig(model=Model("m"), **config), scripted_stream(*turns)


def test_agent_loop_gives_the_same_kind_of_stream() -> None:
    """The loop without an agent: events, and the new messages as the result."""
    context, config, stream_fn = make_loop(says("hi"))
    stream = agent_loop([UserMessage("go")], context, config, None, stream_fn)
    assert [event.type for event in stream] == KINDS
    assert [message.role for message in stream.result(5)] == ["user", "assistant"]
    assert context.messages == []


def test_agent_loop_ends_and_raises_when_the_loop_raises() -> None:
    """What a hook raises comes out of result as it is; the iteration just ends."""

    def broken() -> bool:
        raise LookupError("no more")

    context, config, stream_fn = make_loop(says("hi"), should_stop_after_turn=broken)
    stream = agent_loop([UserMessage("go")], context, config, None, stream_fn)
    assert [event.type for event in stream][-1] == "turn_end"
    with pytest.raises(LookupError, match="no more"):
        stream.result(5)


def test_agent_loop_heeds_the_signal_that_it_was_given() -> None:
    """The caller's signal aborts the run."""
    controller = AbortController()
    context, config, stream_fn = make_loop(says("one ", threading.Event(), "two"))
    stream = agent_loop([UserMessage("go")], context, config, controller.signal, stream_fn)
    for event in stream:
        if event.type == "message_update":
            controller.abort("enough")
    with pytest.raises(AgentAbortedError, match="enough"):
        stream.result(5)


@pytest.mark.parametrize(("messages", "text"), [([], "no messages"), (["answer"], "assistant message")])
def test_continue_needs_something_to_answer(messages: list[str], text: str) -> None:
    """It is refused at once, before any thread starts."""
    from agentcore.messages import AssistantMessage

    context, config, stream_fn = make_loop(says("hi"))
    context.messages.extend(AssistantMessage() for _ in messages)
    with pytest.raises(ValueError, match=text):
        agent_loop_continue(context, config, None, stream_fn)


def test_agent_loop_continue_extends_the_context() -> None:
    """New messages are put into the list that was given."""
    context, config, stream_fn = make_loop(says("hi"))
    context.messages.append(UserMessage("go"))
    stream = agent_loop_continue(context, config, None, stream_fn)
    assert [message.role for message in stream.result(5)] == ["assistant"]
    assert [message.role for message in context.messages] == ["user", "assistant"]
    stream.close()


def test_several_readers_share_the_events() -> None:
    """Each event goes to one of them, and all come to their end."""
    agent = Agent(stream_fn=scripted_stream(says(*"abcdefgh")))
    stream = agent.stream("hello")
    taken: list[list[Any]] = [[], [], []]
    readers = [threading.Thread(target=lambda mine=mine: mine.extend(stream)) for mine in taken]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(10)
        assert not reader.is_alive()
    assert sum(map(len, taken)) == len(KINDS) + 7
    assert stream.result(5)


@pytest.mark.parametrize("drop", ["never read", "half read", "read after the end"])
def test_a_stream_that_nobody_holds_any_more_ends_its_run(drop: str) -> None:
    """Its run thread does not wait for ever for a reader that is gone."""
    agent = Agent(stream_fn=scripted_stream(says("a", "b"), says("again")))
    stream = agent.stream("hello")
    run = stream.run
    if drop == "half read":
        next(stream)
        next(stream)
    if drop == "read after the end":
        assert run.wait(5)
        assert [event.type for event in stream] == [*KINDS[:6], *KINDS[5:]]
    del stream
    gc.collect()
    assert run.block(5) or pytest.fail("the run waits for a reader that is gone")
    assert agent.run("again", timeout=5).text == "again"


@pytest.mark.parametrize("when", ["before it is read", "while it is read"])
def test_a_future_of_the_run_ends_the_step(when: str) -> None:
    """Whoever has the Future waits for the run, and need not read."""
    agent = Agent(stream_fn=scripted_stream(says("a", "b")))
    stream = agent.stream("hello")
    if when == "while it is read":
        next(stream)
    assert len(stream.run.future().result(5)) == 2
    assert len(list(stream)) == len(KINDS) + (when == "before it is read")


def test_closing_in_a_listener_aborts_and_says_that_it_cannot_wait() -> None:
    """The run is aborted; what `close` raises in the listener is the listener's own to handle."""
    agent = Agent(stream_fn=scripted_stream(says("a", "b"), says("again")))
    refused: list[str] = []
    made = threading.Event()

    def listen(event: Any) -> None:
        if event.type == "turn_start" and not refused:
            assert made.wait(5)
            try:
                stream.close()
            except RuntimeError as error:
                refused.append(str(error))

    agent.subscribe(listen)
    stream = agent.stream("hello")
    made.set()
    list(stream)
    assert agent.wait_for_idle(5)
    assert "cannot be waited for from inside itself" in refused[0]
    with pytest.raises(AgentAbortedError):
        stream.result(5)
    assert agent.run("again", timeout=5).text == "again"


def test_the_loop_takes_a_text_too() -> None:
    """`agent_loop("hello", …)` is not five messages of one letter each; what is no message is refused at once."""
    config = AgentLoopConfig(model=Model(id="m", api="a", provider="p"))
    stream = agent_loop("hello", AgentContext(), config, stream_fn=scripted_stream(says("hi")))
    assert [event.type for event in stream][:5] == KINDS[:5]
    assert [message.role for message in stream.result(5)] == ["user", "assistant"]
    with pytest.raises(TypeError, match="a prompt is a text"):
        agent_loop(5, AgentContext(), config)  # type: ignore[arg-type]


def test_the_loop_asks_for_what_a_prompt_may_be() -> None:
    """Steering and follow-ups are texts or messages; nothing, None and an empty list mean that there are none."""
    steering: list[Any] = ["a text", None, UserMessage("a message"), []]
    config = AgentLoopConfig(
        model=Model(id="m", api="a", provider="p"),
        get_steering_messages=lambda: steering.pop(0) if steering else None,
        get_follow_up_messages=lambda: [UserMessage("one"), UserMessage("two")] if len(steering) == 2 else [],
    )
    stream = agent_loop("go", AgentContext(), config, stream_fn=scripted_stream(says("x"), says("y"), says("z"), says("end")))
    texts = [message.text for message in stream.result(5)]
    assert texts == ["go", "a text", "x", "one", "two", "y", "a message", "z"]


def test_the_loop_wants_a_model() -> None:
    """A name is refused with the way to a model."""
    with pytest.raises(TypeError, match="model must be a Model, not str: get_model"):
        AgentLoopConfig(model="openai/gpt-5")  # type: ignore[arg-type]
