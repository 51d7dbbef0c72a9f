"""Agents on real servers: what a newcomer does first, and failures between the turns of a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import agentcore
from agentcore import Agent, tool
from agentcore.llm import StreamOptions
from agentcore.loop.config import RetryPolicy
from agentcore.messages import Usage
from agentcore.models import ModelCost
from agentcore.testing import SseServer, answer, calls, ends, fails, says

FOUR = pytest.mark.parametrize("api", ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"])
OVERLOADED = {"anthropic-messages": "overloaded_error", "google-generative-ai": "UNAVAILABLE"}


def test_a_newcomer_reaches_a_compatible_server() -> None:
    """`openai_compatible`, a `@tool`, an `Agent`, a prompt: nothing else is needed, no key is asked for, and none is sent."""

    @tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    with SseServer(calls("add", a=19, b=23), says("It is ", "42.") + ends(usage=Usage(input=50, output=5))) as server:
        agent = Agent(model=agentcore.openai_compatible(server.url + "/v1", "llama3.2"), tools=[add], system_prompt="Be brief.")
        pieces: list[str] = []

        def take(event: Any) -> None:
            if event.type == "message_update" and event.assistant_message_event.type == "text_delta":
                pieces.append(event.assistant_message_event.delta)

        agent.subscribe(take)
        assert agent.run("What is 19 + 23?", timeout=20).text == "It is 42."
        assert pieces == ["It is ", "42."]
        assert (agent.usage.input, agent.usage.output) == (50, 5)
        assert all("authorization" not in request.headers for request in server.requests)
        first, second = [request.json for request in server.requests]
    assert first["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 19 + 23?"},
    ]
    function = first["tools"][0]["function"]
    assert (function["name"], function["description"]) == ("add", "Add two numbers.")
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][-1]["content"] == "42"


@FOUR
def test_failures_between_turns_cost_a_pause_and_nothing_else(api: str) -> None:
    """C014, C052: a 503, a tool call, an overload inside the stream after two deltas, an answer: one run.

    The tool runs once, the text is there once, each new try has an equal body, both retries are seen, and usage adds up.
    """
    ran: list[int] = []

    @tool
    def count() -> str:
        """Count."""
        ran.append(1)
        return "1"

    unavailable = answer({"error": {"message": "overloaded"}}, status=503, headers={"retry-after": "0"})
    breaking = says("Hel", "lo ") + fails("overloaded", code=OVERLOADED.get(api, "server_error"), retryable=True)
    called = calls("count") + ends(usage=Usage(input=10, output=5))
    with SseServer(unavailable, called, breaking, says("Hello world") + ends(usage=Usage(input=20, output=7))) as server:
        agent = Agent(model=server.model(api, cost=ModelCost(1, 1)), tools=[count], retry=RetryPolicy(base_delay=0.01))
        seen: list[Any] = []
        agent.subscribe(seen.append)
        assert agent.run("go", timeout=20).text == "Hello world"
        bodies = [request.body for request in server.requests]
    assert ran == [1]
    assert [message.role for message in agent.state.messages] == ["user", "assistant", "toolResult", "assistant"]
    assert bodies[0] == bodies[1] and bodies[2] == bodies[3] and b"Hel" not in bodies[3]
    assert [event.source for event in seen if event.type == "retry"] == ["request", "answer"]
    assert [event.type for event in seen].count("agent_end") == 1
    assert (agent.usage.input, agent.usage.output) == (30, 12)
    assert agent.usage.cost.total == pytest.approx(42 / 1_000_000)


@FOUR
def test_what_an_aborted_answer_has_told_of_its_usage_counts(api: str) -> None:
    """An abort in the middle keeps the text and, where the API has told it by then, what the answer took so far."""
    never = threading.Event()
    with SseServer(says("a", "b", never) + ends(usage=Usage(input=10, output=5))) as server:
        agent = Agent(model=server.model(api, cost=ModelCost(1, 1)))

        def stop(event: Any) -> None:
            if event.type == "message_update" and getattr(event.assistant_message_event, "delta", "") == "b":
                agent.abort()

        agent.subscribe(stop)
        agent.prompt("go").wait(10)
        message = agent.state.messages[-1]
    assert (message.stop_reason, message.text) == ("aborted", "ab")
    assert message.usage.input == (10 if api in ("anthropic-messages", "google-generative-ai") else 0)
    assert agent.usage.input == message.usage.input


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            answer("<html><head><title>404 Not Found</title></head></html>", status=404, headers={"content-type": "text/html"}),
            "404 Not Found: 404 Not Found; check base_url and the model's id (asked for /v1/chat/completions)",
        ),
        (
            answer("<html><title>Sign\n in</title></html>", headers={"content-type": "text/html"}),
            "200 with text/html instead of an event stream: Sign in; check base_url",
        ),
        (
            answer({"error": {"message": "no model\n  'x'"}}, status=404),
            "404 Not Found: no model 'x'; check base_url and the model's id (asked for /v1/chat/completions)",
        ),
        (answer("line one\r\nline two", status=400), "400 Bad Request: line one line two"),
    ],
)
def test_a_refusal_is_one_line_and_the_agent_is_usable_afterwards(broken: Any, text: str) -> None:
    """Pages, wrong addresses and unknown models are one line that says what to do; the next prompt is answered."""
    with SseServer(broken, says("fine")) as server:
        agent = Agent(model=server.model(), stream_options=StreamOptions(max_retries=0))
        with pytest.raises(agentcore.AgentRunError) as caught:
            agent.run("hi", timeout=20)
        assert str(caught.value) == text
        assert agent.run("again", timeout=20).text == "fine"
