"""The four hooks for what is built on top of an agent: before and after a run, before a turn's request, after a failed answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentcore import (
    AbortSignal,
    Agent,
    AgentAbortedError,
    AgentContext,
    AgentRunError,
    AssistantMessage,
    Model,
    RetryPolicy,
    UserMessage,
    tool,
)
from agentcore.testing import calls, fails, says, scripted_stream
from agentcore.testing.stream import ScriptedStream

MODEL = Model("m", provider="p")


@tool
def echo(text: str) -> str:
    """Give a text back."""
    return text


def make(*turns: Any) -> tuple[Agent, ScriptedStream]:
    stream = scripted_stream(*turns)
    return Agent(model=MODEL, stream_fn=stream, tools=[echo], retry=None), stream


def events_of(agent: Agent) -> list[str]:
    told: list[str] = []
    agent.subscribe(lambda event: told.append(event.type))
    return told


def test_before_run_may_change_the_prompt_and_the_settings() -> None:
    """It runs on the run thread before anything is told; what it sets holds for the run that begins."""
    agent, stream = make(says("ok"))
    told = events_of(agent)
    seen: list[Any] = []

    def before_run(prompts: list[Any], signal: AbortSignal) -> list[Any]:
        seen.extend((list(told), signal.aborted))
        agent.state.system_prompt = "Changed."
        return [UserMessage("first"), *prompts]

    agent.before_run = before_run
    agent.run("go", timeout=10)
    assert seen == [[], False]
    assert [message.text for message in stream.requests[0]] == ["first", "go"]
    assert stream.contexts[0].system_prompt == "Changed."


def test_what_before_run_raises_comes_out_of_the_run() -> None:
    """Nothing was told, asked or noted; the agent is idle, and `after_run` has been called."""
    agent, stream = make(says("ok"))
    told = events_of(agent)
    ended: list[bool] = []

    def refuse(prompts: Any) -> None:
        raise ValueError("not today")

    agent.before_run = refuse
    agent.after_run = lambda: ended.append(agent.active_run is None)
    with pytest.raises(ValueError, match="not today"):
        agent.run("go", timeout=10)
    assert (told, stream.requests, agent.messages, ended) == ([], [], [], [True])


def test_after_run_is_called_before_anybody_who_waits_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """When `result` returns it has run; what it raises is logged, and does not fail the run."""
    agent, _ = make(says("ok"))
    called: list[bool] = []

    def after_run() -> None:
        called.append(True)
        raise ValueError("too late")

    agent.after_run = after_run
    assert agent.run("go", timeout=10).text == "ok"
    assert called == [True]
    assert "a hook after a run raised" in caplog.text


def test_before_request_comes_once_a_turn_with_all_its_messages() -> None:
    """It may change the context in place; a new try of the same answer does not ask again."""
    agent, stream = make(calls("echo", text="a"), [says("x"), fails("broke off", retryable=True)], says("ok"))
    agent.retry = RetryPolicy(max_retries=1, base_delay=0.0)
    counts: list[int] = []

    def before_request(context: AgentContext) -> None:
        counts.append(len(context.messages))
        context.messages = [*context.messages, UserMessage("reminder")]

    agent.before_request = before_request
    agent.run("go", timeout=10)
    assert counts == [1, 4]
    assert [len(request) for request in stream.requests] == [2, 5, 5]


def recovery(outcome: Any) -> tuple[list[str], Callable[..., Any]]:
    asked: list[str] = []

    def recover(message: AssistantMessage, context: AgentContext) -> Any:
        asked.append(message.error_message or "")

        def mend(signal: AbortSignal) -> bool:
            context.messages = context.messages[-1:]
            return bool(outcome(signal) if callable(outcome) else outcome)

        return mend

    return asked, recover


def test_a_failed_answer_is_asked_for_once_more_after_recovery() -> None:
    """The failed answer is told and leaves the transcript; the next request is made of the changed context."""
    agent, stream = make(says("one"), fails("too large", kind="overflow"), says("two"))
    told: list[tuple[str, Any]] = []
    agent.subscribe(lambda event: told.append((event.message.role, event.message.text)) if event.type == "message_end" else None)
    agent.run("a", timeout=10)
    asked, agent.recover = recovery(True)
    assert agent.run("b", timeout=10).text == "two"
    assert asked == ["too large"]
    assert [len(request) for request in stream.requests] == [1, 3, 1]
    assert told == [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", ""), ("assistant", "two")]
    assert [message.role for message in agent.messages] == ["user", "assistant", "user", "assistant"]


def test_recovery_is_tried_once_for_an_answer() -> None:
    """A second failure is final, and is in the transcript."""
    agent, stream = make(fails("too large", kind="overflow"), fails("still too large", kind="overflow"))
    asked, agent.recover = recovery(True)
    with pytest.raises(AgentRunError, match="still too large"):
        agent.run("go", timeout=10)
    assert asked == ["too large"]
    assert len(stream.requests) == 2
    assert [getattr(message, "error_message", None) for message in agent.messages] == [None, "still too large"]


def test_a_recovery_that_fails_leaves_the_failure() -> None:
    """The answer is told again, this time for good, with the same error and kind."""
    agent, stream = make(fails("too large", kind="overflow"))
    told = events_of(agent)
    _, agent.recover = recovery(False)
    with pytest.raises(AgentRunError, match="too large") as caught:
        agent.run("go", timeout=10)
    assert caught.value.kind == "overflow"
    assert len(stream.requests) == 1
    assert told.count("message_end") == 3
    assert len(agent.messages) == 2


def test_an_abort_during_recovery_ends_the_run_as_aborted() -> None:
    """The last answer says so."""
    agent, _ = make(fails("too large", kind="overflow"))

    def abort(signal: AbortSignal) -> bool:
        agent.abort()
        return False

    _, agent.recover = recovery(abort)
    with pytest.raises(AgentAbortedError):
        agent.run("go", timeout=10)
    assert agent.messages[-1].stop_reason == "aborted"  # type: ignore[union-attr]


def test_hooks_that_need_too_much_are_refused_when_set() -> None:
    """A `TypeError` at once, not in the run; None takes a hook away."""
    agent, _ = make(says("ok"))
    with pytest.raises(TypeError, match="before_run gets at most 2 arguments"):
        agent.before_run = lambda a, b, c: None
    agent.before_run = lambda: None
    assert agent.before_run is not None
    agent.before_run = None
    assert agent.run("go", timeout=10).text == "ok"
