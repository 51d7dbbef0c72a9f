"""`resume`: an agent that goes on where a session's file ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentcore
from agentcore import (
    AssistantMessage,
    JsonlSessionStorage,
    Model,
    Session,
    SessionError,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    resume,
    tool,
)
from agentcore.testing import says, scripted_stream

MODEL = Model("m", provider="p")


@tool
def echo(text: str) -> str:
    """Give a text back."""
    return text


@tool
def other(text: str) -> str:
    """Give a text back."""
    return text


def write(path: Path) -> Session:
    session = Session(JsonlSessionStorage.create(path, cwd=str(path.parent)))
    session.append_message(UserMessage("hello"))
    session.append_thinking_level_change("high")
    session.append_active_tools_change(["echo"])
    return session


def test_the_agent_has_what_the_session_has(tmp_path: Path) -> None:
    """Conversation, thinking level, active tools and session id; what it says is stored in the same file."""
    path = tmp_path / "s.jsonl"
    write(path).close()
    stream = scripted_stream(says("hello to you"))
    agent = resume(path, model=MODEL, tools=[echo, other], stream_fn=stream, system_prompt="Be kind.")
    assert [message.text for message in agent.messages] == ["hello"]  # type: ignore[union-attr]
    assert agent.state.thinking_level == "high"
    assert [one.name for one in agent.state.tools] == ["echo"]
    agent.continue_().result(10)
    assert isinstance(agent.session, Session)
    assert stream.options[0].session_id == agent.session.id
    assert stream.contexts[0].system_prompt == "Be kind."
    agent.session.close()
    with Session(JsonlSessionStorage.open(path)) as session:
        assert [message.role for message in session.build_context().messages] == ["user", "assistant"]


def test_unfinished_calls_are_answered_with_an_error(tmp_path: Path) -> None:
    """C037: the last answer has two calls, of which one got its result: the other one's is an error, and nothing is run."""
    path = tmp_path / "s.jsonl"
    with write(path) as session:
        content = [TextContent("on it"), ToolCall("c1", "echo", {"text": "a"}), ToolCall("c2", "echo", {"text": "b"})]
        session.append_message(AssistantMessage(content, "a", "p", "m", stop_reason="toolUse"))
        session.append_message(ToolResultMessage("c1", "echo", [TextContent("a")]))
    stream = scripted_stream(says("I go on"))
    agent = resume(path, model=MODEL, tools=[echo], stream_fn=stream)
    results = [(message.text, message.is_error) for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert results == [("a", False), ("Operation aborted", True)]
    assert agent.run("go on", timeout=10).text == "I go on"
    agent.session.close()  # type: ignore[union-attr]


def test_what_it_does_not_take() -> None:
    """A missing file, and options that the file brings."""
    with pytest.raises(SessionError):
        resume("/nowhere/at/all.jsonl")
    with pytest.raises(TypeError, match=r"resume\(\) takes no messages: they come from the file"):
        resume("x.jsonl", messages=[])
    assert agentcore.resume is resume
