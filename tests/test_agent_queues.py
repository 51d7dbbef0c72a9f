"""Messages that wait: in which turn they come, and that none gets lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentcore.agent import Agent, PendingMessageQueue
from agentcore.errors import AgentRunError
from agentcore.messages import UserMessage
from agentcore.testing import calls, says, scripted_stream
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


def test_a_queue_gives_one_or_all_and_takes_back() -> None:
    """By its mode; messages that were put back come first, in their order."""
    pending = PendingMessageQueue()
    for text in "abc":
        pending.put(UserMessage(text))
    assert texts(pending.drain()) == ["a"]
    pending.mode = "all"
    drained = pending.drain()
    assert texts(drained) == ["b", "c"] and pending.drain() == []
    pending.put(UserMessage("d"))
    pending.put_back(drained)
    assert texts(pending.messages()) == ["b", "c", "d"] and len(pending) == 3
    pending.clear()
    assert not pending.has_items()
    with pytest.raises(ValueError, match="one-at-a-time"):
        pending.mode = "none"  # type: ignore[assignment]


def slow_batch(agent_of: list[Agent], after_first: Any) -> Any:
    """Make three sequential calls of one tool; `after_first` is called in the first one."""
    done: list[int] = []

    @tool
    def slow(number: int) -> str:
        """Work."""
        done.append(number)
        if number == 1:
            after_first(agent_of[0])
        return f"done {number}"

    return slow, done, calls("slow", number=1) + calls("slow", number=2) + calls("slow", number=3)


def test_a_steer_waits_for_the_whole_batch() -> None:
    """C068: all three calls finish, then the steered message is in the next request."""
    agents: list[Agent] = []
    slow, done, turn = slow_batch(agents, lambda agent: agent.steer("use B"))
    stream = scripted_stream(turn, says("B it is"))
    agents.append(Agent(tools=[slow], stream_fn=stream, tool_execution="sequential"))
    agents[0].run("go", timeout=5)
    assert done == [1, 2, 3]
    assert [message.role for message in stream.requests[1]] == ["user", "assistant", *["toolResult"] * 3, "user"]


def test_a_steer_survives_an_abort() -> None:
    """C067: steered during a batch that is aborted then: it is in the next request, never gone."""
    agents: list[Agent] = []

    def steer_and_abort(agent: Agent) -> None:
        agent.steer("use B")
        agent.abort()

    slow, done, turn = slow_batch(agents, steer_and_abort)
    stream = scripted_stream(turn, says("never"), says("hello"))
    agents.append(Agent(tools=[slow], stream_fn=stream, tool_execution="sequential"))
    agents[0].prompt("go").wait(5)
    assert done == [1]
    agents[0].run("hi", timeout=5)
    asked = [message.text for message in stream.requests[-1] if message.role == "user"]
    assert asked == ["go", "use B", "hi"]


def test_a_message_that_could_not_be_delivered_goes_back_to_its_queue() -> None:
    """A listener that raises at a steered message or a follow-up does not make it disappear."""
    for queue_name in ("steer", "follow_up"):
        agent = Agent(stream_fn=scripted_stream(says("ok"), says("fine"), says("fine")))
        agent.steering_mode = agent.follow_up_mode = "all"

        def listener(event: Any) -> None:
            if event.type == "message_start" and getattr(event.message, "text", "") == "second":
                raise ValueError("not that one")

        unsubscribe = agent.subscribe(listener)
        for text in ("first", "second", "third"):
            getattr(agent, queue_name)(text)
        with pytest.raises(AgentRunError, match="not that one"):
            agent.run("go")
        unsubscribe()
        pending = agent.steering_queue if queue_name == "steer" else agent.follow_up_queue
        assert texts(pending.messages()) == ["second", "third"]
        assert "first" in texts(agent.messages) and "second" not in texts(agent.messages)
        agent.run("again")
        asked = texts(message for message in agent.messages if message.role == "user")
        assert asked[-3:] == ["again", "second", "third"]


def test_steering_from_ten_threads_loses_nothing() -> None:
    """Every message that steer has returned for is delivered, once."""
    started, go_on = threading.Event(), threading.Event()
    stream = scripted_stream(says("a", started.set, go_on, "b"), says("done"), says("done"))
    agent = Agent(stream_fn=stream, steering_mode="all")
    run = agent.prompt("go")
    assert started.wait(5)
    threads = [threading.Thread(target=lambda n=n: [agent.steer(f"{n}-{i}") for i in range(20)]) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    go_on.set()
    assert run.wait(5)
    sent = [message.text for message in stream.requests[-1] if message.role == "user"]
    assert sorted(sent) == sorted(["go", *(f"{n}-{i}" for n in range(10) for i in range(20))])
    for n in range(10):
        assert [text for text in sent if text.startswith(f"{n}-")] == [f"{n}-{i}" for i in range(20)]
