"""What hooks raise: which one it was is in the log, what it says goes where it is read."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agentcore.agent import Agent
from agentcore.errors import AgentRunError
from agentcore.loop.config import error_text
from agentcore.testing import calls, says, scripted_stream
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons


@tool
def echo(text: str = "") -> str:
    """Say it again."""
    return text


def broken(*_: Any) -> Any:
    raise AttributeError("no such thing")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "agentcore" and record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    "hook",
    [
        "convert_to_llm",
        "transform_context",
        "get_api_key",
        "prepare_next_turn",
        "prepare_next_turn_with_context",
        "should_stop_after_turn",
    ],
)
def test_a_hook_that_ends_the_run_is_named_in_the_log(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """The error text is what the hook said; `__cause__` is the exception itself."""
    settings: dict[str, Any] = {hook: broken}
    with pytest.raises(AgentRunError) as caught:
        Agent(stream_fn=scripted_stream(says("yes")), **settings).run("hi")
    assert (str(caught.value), caught.value.kind) == ("no such thing", "hook")
    assert isinstance(caught.value.__cause__, AttributeError)
    assert warnings(caplog) == [f"{hook} raised AttributeError: no such thing"]


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call"])
def test_a_hook_around_a_call_is_named_in_the_log_too(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only the model reads what it raised; a value that it should not return is told in the same way."""
    settings: dict[str, Any] = {hook: broken}
    agent: Any = Agent(tools=[echo], stream_fn=scripted_stream(calls("echo"), says("a"), calls("echo"), says("b")), **settings)
    agent.run("hi")
    assert (agent.messages[2].text, agent.messages[2].is_error) == ("no such thing", True)
    assert warnings(caplog) == [f"{hook} raised AttributeError: no such thing"]
    caplog.clear()
    setattr(agent, hook, lambda: False)
    agent.run("hi")
    (said,) = warnings(caplog)
    assert f"{hook} returned a value of type bool" in said


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (AssertionError(), "AssertionError"),
        (ValueError("  "), "ValueError"),
        (ValueError("too long"), "too long"),
        (OSError(2, "No such file", "a.txt"), "[Errno 2] No such file: 'a.txt'"),
    ],
)
def test_an_exception_that_says_nothing_by_itself_is_named(error: Exception, text: str) -> None:
    """`'k'` alone tells a model nothing; what says something stays as it is."""

    @tool
    def fails() -> str:
        """Fail."""
        raise error

    agent: Any = Agent(tools=[fails], stream_fn=scripted_stream(calls("fails"), says("so")))
    agent.run("hi")
    assert (error_text(error), agent.messages[2].text) == (text, text)
