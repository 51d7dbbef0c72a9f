"""What may be set on an agent after it was made, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentcore
from agentcore.agent import Agent, AgentState
from agentcore.loop import RetryPolicy
from agentcore.models import Model
from agentcore.session import JsonlSessionRepo, MemorySessionStorage, Session
from agentcore.testing import says, scripted_stream
from agentcore.tools.agent_tool import ToolExecutionMode
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons

MODEL = Model(id="m", api="a", provider="p")


@tool
def echo(text: str = "") -> str:
    """Say it again."""
    return text


def test_settings_of_the_state_may_be_set_on_the_agent_itself() -> None:
    """They hold from the next run on, just as if they had been set on `state`."""
    stream = scripted_stream(says("yes"))
    agent: Any = Agent(stream_fn=stream)
    agent.system_prompt, agent.model, agent.tools, agent.thinking_level = "new", MODEL, [echo], "high"
    agent.messages = [agentcore.UserMessage("before")]
    state = agent.state
    assert (state.system_prompt, state.model, state.tools, state.thinking_level) == ("new", MODEL, [echo], "high")
    assert (agent.system_prompt, agent.model, agent.tools, agent.thinking_level) == ("new", MODEL, [echo], "high")
    agent.run("now")
    assert stream.contexts[0].system_prompt == "new"
    assert [message.text for message in stream.requests[0]] == ["before", "now"]
    assert (stream.models[0], stream.options[0].reasoning) == (MODEL, "high")


def test_settings_of_the_loop_may_be_set_too() -> None:
    """Also those that are arguments alone elsewhere: `session_id`, `max_tool_workers`, …"""
    stream = scripted_stream(says("yes"))
    agent: Any = Agent(stream_fn=stream)
    agent.session_id, agent.max_tool_workers, agent.tool_grace, agent.retry = "s1", 4, 0.5, RetryPolicy(1)
    agent.tool_execution = "sequential"
    assert agent.tool_execution is ToolExecutionMode.SEQUENTIAL
    agent.run("hi")
    assert stream.options[0].session_id == "s1"


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("modl", "x", AttributeError, "an Agent has no attribute 'modl' to set: did you mean model"),
        ("sytem_prompt", "x", AttributeError, "did you mean system_prompt"),
        ("colour", "x", AttributeError, "an Agent has no attribute 'colour' to set: make a subclass for attributes of your own"),
        ("thinking_level", "very", ValueError, "unknown thinking level 'very'"),
        ("tool_execution", "x", ValueError, "tool_execution must be 'sequential' or 'parallel', not 'x'"),
        ("max_tool_workers", 0, ValueError, "max_tool_workers must be 1 or more, not 0"),
        ("tool_grace", -1, ValueError, "tool_grace is in seconds and must be 0 or more, not -1"),
        ("retry", 3, TypeError, "retry must be a RetryPolicy"),
        ("stream_options", {}, TypeError, "stream_options must be StreamOptions"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_way_out(name: str, value: Any, error: type[Exception], text: str) -> None:
    """A misspelt name above all: it would be ignored in silence."""
    with pytest.raises(error, match=text):
        setattr(Agent(), name, value)


def test_the_state_refuses_names_that_it_does_not_have() -> None:
    """As the agent does."""
    with pytest.raises(AttributeError, match="modl"):
        AgentState().modl = "x"  # type: ignore[attr-defined]


def test_a_subclass_may_have_attributes_of_its_own() -> None:
    """Only the class itself is strict."""

    class Named(Agent):
        pass

    named: Any = Named()
    named.title = "planner"
    assert named.title == "planner"


def test_settings_without_their_names_are_refused_with_an_example() -> None:
    """In place of a count of positional arguments; the signature is the one that is written down."""
    make: Any = Agent
    with pytest.raises(TypeError, match=r"keyword arguments alone, not a dict as such: Agent\(\*\*settings\)"):
        make({"model": None})
    with pytest.raises(TypeError, match=r"not a str as such: Agent\(model='provider/id'"):
        make("openai/gpt-5-mini")


def test_print_events_itself_is_no_listener() -> None:
    """`subscribe(print_events)` would print nothing."""
    with pytest.raises(TypeError, match=r"subscribe\(print_events\(\)\), with the parentheses"):
        Agent().subscribe(agentcore.print_events)
    listener: Any = agentcore.print_events
    with pytest.raises(TypeError, match=r"print_events takes a file, not AgentStartEvent: subscribe\(print_events\(\)\)"):
        listener(agentcore.AgentStartEvent())


# --- a session that was moved ----------------------------------------------------------------------------------------


def test_a_session_that_was_moved_brings_its_conversation_with_the_next_run() -> None:
    """What the model sees is the branch on which the answer is stored."""
    session = Session(MemorySessionStorage())
    stream = scripted_stream(says("one"), says("two"), says("three"))
    agent = Agent(session=session, stream_fn=stream)
    agent.run("first")
    here = session.get_leaf_id()
    agent.run("second")
    session.move_to(here)
    agent.run("third")
    assert [message.text for message in stream.requests[2]] == ["first", "one", "third"]
    assert [message.text for message in agent.messages] == ["first", "one", "third", "three"]
    assert [message.text for message in session.build_context().messages] == ["first", "one", "third", "three"]


def test_what_another_writer_appended_is_part_of_the_next_run() -> None:
    """Also in `continue_`, whose checks see what the session has by then; a label changes nothing."""
    session = Session(MemorySessionStorage())
    stream = scripted_stream(says("one"), says("two"))
    agent = Agent(session=session, stream_fn=stream)
    agent.run("first")
    session.append_label(session.append_message(agentcore.UserMessage("from elsewhere")), "here")
    agent.continue_().result(10)
    assert [message.text for message in stream.requests[1]] == ["first", "one", "from elsewhere"]


def test_what_is_appended_during_a_run_is_part_of_the_next_one() -> None:
    """The answer is stored behind it, so the leaf alone would not show it."""
    session = Session(MemorySessionStorage())
    stream = scripted_stream(says("one"), says("two"), says("three"))
    agent = Agent(session=session, stream_fn=stream)

    def add(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "user" and event.message.text == "first":
            session.append_message(agentcore.UserMessage("from elsewhere"))

    agent.subscribe(add)
    agent.run("first")
    assert [message.text for message in agent.messages] == ["first", "one"]
    agent.run("second")
    assert [message.text for message in stream.requests[1]] == ["first", "from elsewhere", "one", "second"]
    session.build_context = None  # type: ignore[assignment, method-assign]
    agent.run("third")
    assert len(stream.requests[2]) == 6


def test_a_session_that_cannot_be_moved_is_read_once() -> None:
    """A session needs two methods; without `get_leaf_id` the transcript of the agent is what holds."""

    class Plain:
        count_read = 0

        def append_message(self, message: Any) -> str:
            return "1"

        def build_context(self) -> Any:
            self.count_read += 1
            return Session(MemorySessionStorage()).build_context()

    plain = Plain()
    agent = Agent(session=plain, stream_fn=scripted_stream(says("one"), says("two")))
    agent.run("first")
    agent.run("second")
    assert (plain.count_read, len(agent.messages)) == (1, 4)


def test_a_session_that_nobody_moved_is_not_read_again() -> None:
    """The transcript of the agent holds, also where the user has changed it; one look at the leaf is what a run costs."""
    session = Session(MemorySessionStorage())
    agent = Agent(session=session, stream_fn=scripted_stream(says("one"), says("two")))
    agent.run("first")
    agent.messages = []
    session.build_context = None  # type: ignore[assignment, method-assign]
    agent.run("second")
    assert [message.text for message in agent.messages] == ["second", "two"]


def test_sessions_and_streams_show_which_they_are(tmp_path: Path) -> None:
    """In a debugger, say: where, and how many entries; whose stream, and whether it is read."""
    session = Session(MemorySessionStorage())
    with Agent(session=session, stream_fn=scripted_stream(says("one"))).stream("hi") as stream:
        assert repr(stream).startswith("<RunStream open of <Run agentcore-run-")
        for _ in stream:
            pass
    assert repr(stream).startswith("<RunStream read or left of <Run ")
    assert repr(session) == f"<Session {session.id} in memory, 2 entries>"
    with JsonlSessionRepo(str(tmp_path)).create(cwd=".") as stored:
        assert repr(stored) == f"<Session {stored.id} in {stored.metadata.path}, 0 entries>"


def test_what_is_no_session_is_refused() -> None:
    """With the two ways to get one."""
    with pytest.raises(TypeError, match=r"session must be a Session, not str: resume\(path\) opens a file"):
        Agent(session="chat.jsonl")  # type: ignore[arg-type]
