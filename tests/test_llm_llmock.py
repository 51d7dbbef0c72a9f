"""A server that breaks its answers on purpose and grades its client finds nothing to complain about.

`llmock` runs in a process of its own; each test scripts the next faults over HTTP, runs an agent against it, and asks for the
verdict.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore import Agent, AgentRunError, Model, RetryEvent, RetryPolicy, StreamOptions, tool
from agentcore.messages import ToolResultMessage

pytest.importorskip("llmock", reason="llmock is not installed: pip install llmock==0.2.2 (extra `test`)")

WORDS = " ".join(f"word{number}" for number in range(300))
APIS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "/anthropic",
    "google-generative-ai": "/gemini/v1beta",
}
IDS = {"google-generative-ai": "gemini-2.5-flash", "anthropic-messages": "claude-sonnet-4-5"}
OVERFLOWS = {
    "openai-completions": ("This model's maximum context length is 128 tokens.", "context_length_exceeded"),
    "openai-responses": ("Your input exceeds the context window of this model.", "context_length_exceeded"),
    "anthropic-messages": ("prompt is too long: 210000 tokens > 200000 maximum", None),
    "google-generative-ai": ("The input token count (9) exceeds the maximum number of tokens allowed (8).", None),
}


class Mock:
    """The server, and one agent that talks to it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, payload: Any = None) -> Any:
        body = None if payload is None else json.dumps(payload).encode()
        request = urllib.request.Request(f"{self.url}/_llmock/{path}", body, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def script(self, *behaviors: dict[str, Any]) -> None:
        """Forget all that was, and queue faults; every answer has 300 words."""
        self.ask("POST", "reset")
        self.ask("POST", "scenario", {"behaviors": [*behaviors, {"type": "reply", "text": WORDS, "times": None}]})

    def requests(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "requests")["requests"])

    def findings(self) -> list[str]:
        return [finding["code"] for finding in self.ask("GET", "verdict")["findings"]]

    def agent(self, api: str, **settings: Any) -> Agent:
        model = Model(
            IDS.get(api, "gpt-4o"),
            api=api,
            provider="mock",
            base_url=self.url + APIS[api],
            context_window=100_000,
            max_tokens=4_000,
        )
        options = StreamOptions(api_key="test-key", stall_timeout=1, max_retries=settings.pop("max_retries", 2))
        return Agent(model=model, retry=RetryPolicy(max_retries=3, base_delay=0.1), stream_options=options, **settings)


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from llmock.cli import app; app()", "serve", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Mock(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                server.ask("GET", "scenario")
                break
            except OSError:
                assert process.poll() is None, "llmock did not start"
                assert time.monotonic() < deadline, "llmock did not answer in 30 s"
                time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def failed(agent: Agent) -> AgentRunError:
    """Run an agent that must fail; return the error."""
    with pytest.raises(AgentRunError) as caught:
        agent.prompt("hi").result(60)
    return caught.value


def all_apis(name: str, values: list[Any], quick: tuple[Any, ...] = ()) -> Any:
    """Parametrise over all APIs and values; only the quick values are part of the quick suite."""
    params = [
        pytest.param(api, value, id=f"{api}-{value}", marks=() if value in quick else (pytest.mark.slow,))
        for api in APIS
        for value in values
    ]
    return pytest.mark.parametrize(("api", name), params)


KINDS = {400: "request", 401: "auth", 402: "quota", 403: "auth", 404: "request", 413: "overflow", 422: "request", 425: "request"}


@all_apis("status", list(KINDS), quick=(400, 413))
def test_a_refused_request_is_final(mock: Mock, api: str, status: int) -> None:
    """Client errors: one request, failed with its kind."""
    mock.script({"type": "fail", "status": status})
    error = failed(mock.agent(api))
    assert (error.kind, len(mock.requests()), mock.findings()) == (KINDS[status], 1, [])


@pytest.mark.parametrize("api", APIS)
def test_an_overflow_is_final_and_known_as_one(mock: Mock, api: str) -> None:
    """The provider's own words for a full context window give the kind `overflow`, after one request."""
    message, code = OVERFLOWS[api]
    mock.script({"type": "fail", "status": 400, "message": message, **({"code": code} if code else {})})
    error = failed(mock.agent(api))
    assert (error.kind, len(mock.requests()), mock.findings()) == ("overflow", 1, [])


@all_apis("status", [408, 409, 429, 500, 501, 502, 503, 504, 529])
def test_a_passing_failure_is_retried(mock: Mock, api: str, status: int) -> None:
    """408, 409, 429 and every 5xx, once: two requests, answered."""
    mock.script({"type": "fail", "status": status, "retry_after": 0.1} if status != 408 else {"type": "fail", "status": status})
    assert mock.agent(api).prompt("hi").result(60)[-1].text == WORDS
    assert (len(mock.requests()), mock.findings()) == (2, [])


@pytest.mark.parametrize("api", APIS)
def test_a_rate_limit_is_waited_for(mock: Mock, api: str) -> None:
    """Two 429 that ask for 0.3 s: three requests, answered, each retry an event that a listener sees."""
    mock.script({"type": "fail", "status": 429, "retry_after": 0.3, "times": 2})
    agent = mock.agent(api)
    retries: list[RetryEvent] = []
    agent.subscribe(lambda event: retries.append(event) if isinstance(event, RetryEvent) else None)
    assert agent.prompt("hi").result(60)[-1].text == WORDS
    assert (len(mock.requests()), mock.findings()) == (3, [])
    assert [(event.attempt, event.kind, event.delay) for event in retries] == [(1, "rate_limit", 0.3), (2, "rate_limit", 0.3)]


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
def test_pauses_grow(mock: Mock, api: str) -> None:
    """Two 408 that ask for nothing: three requests, the second pause longer than the first by more than a tenth."""
    mock.script({"type": "fail", "status": 408, "times": 2})
    agent = mock.agent(api)
    delays: list[float] = []
    agent.subscribe(lambda event: delays.append(event.delay) if isinstance(event, RetryEvent) else None)
    assert agent.prompt("hi").result(60)[-1].text == WORDS
    assert (len(mock.requests()), mock.findings()) == (3, [])
    assert delays[1] > delays[0] * 1.1


@all_apis("status", [503, 408])
def test_an_outage_is_survived(mock: Mock, api: str, status: int) -> None:
    """While nothing works a run fails after a few requests; afterwards the next prompt is answered."""
    mock.script({"type": "fail", "status": status, "times": None})
    agent = mock.agent(api)
    error = failed(agent)
    assert error.kind == ("server" if status == 503 else "timeout")
    assert 2 <= len(mock.requests()) <= 10
    assert mock.findings() == []
    mock.script()
    assert agent.prompt("again").result(60)[-1].text == WORDS


FAULTS = [f"{kind}-{chunks}" for kind in ("disconnect", "truncate", "malformed") for chunks in (0, 1, 4)]


@all_apis("fault", FAULTS, quick=("disconnect-1", "truncate-4", "malformed-1"))
def test_a_broken_stream_is_asked_for_again(mock: Mock, api: str, fault: str) -> None:
    """Cut, ended early or broken after 0, 1 and 4 chunks: two equal requests, and the text is there once."""
    kind, _, chunks = fault.partition("-")
    mock.script({"type": "stream_fault", "kind": kind, "after_chunks": int(chunks)})
    agent = mock.agent(api)
    agent.prompt("hi").result(60)
    assert [message.text for message in agent.messages] == ["hi", WORDS]
    requests = mock.requests()
    assert len(requests) == 2
    assert requests[0]["fingerprint"] == requests[1]["fingerprint"] if "fingerprint" in requests[0] else True
    assert mock.findings() == []


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
def test_a_stall_is_cut_short(mock: Mock, api: str) -> None:
    """A stream that is silent for 5 s is given up after the stall limit of 1 s, and asked for again."""
    mock.script({"type": "stream_fault", "kind": "stall", "after_chunks": 1, "stall_seconds": 5})
    agent = mock.agent(api)
    started = time.monotonic()
    agent.prompt("hi").result(60)
    assert time.monotonic() - started < 3
    assert [message.text for message in agent.messages] == ["hi", WORDS]
    assert (len(mock.requests()), mock.findings()) == (2, [])


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("type", ["delay", "slow_first_token"])
def test_slowness_is_no_failure(mock: Mock, api: str, type: str) -> None:
    """A server that takes half a second is waited for: one request."""
    mock.script({"type": type, "seconds": 0.5})
    assert mock.agent(api).prompt("hi").result(60)[-1].text == WORDS
    assert (len(mock.requests()), mock.findings()) == (1, [])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_a_broken_call_is_answered_and_not_run(mock: Mock, api: str, kind: str) -> None:
    """The tool does not run; the model gets an error result, and then answers."""
    runs: list[str] = []

    @tool
    def get_weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: Where.
        """
        runs.append(city)
        return "sunny"

    mock.ask("POST", "reset")
    call = {"type": "reply", "tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris in the spring"}}]}
    mock.ask("POST", "scenario", {"behaviors": [{"type": "tool_fault", "kind": kind}, call, {"type": "reply", "text": WORDS}]})
    agent = mock.agent(api, tools=[get_weather])
    agent.prompt("weather?").result(60)
    assert runs == []
    assert [message.role for message in agent.messages] == ["user", "assistant", "toolResult", "assistant"]
    result = agent.messages[2]
    assert isinstance(result, ToolResultMessage) and result.is_error
    assert agent.messages[-1].text == WORDS
    assert mock.findings() == []


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("why", ["quota", "too long a wait"])
def test_what_no_retry_can_help_is_final(mock: Mock, api: str, why: str) -> None:
    """An exhausted account and a wait of two minutes: one request, and by design the one warning that says so."""
    if why == "quota":
        mock.script({"type": "fail", "status": 429, "message": "You exceeded your current quota (insufficient_quota)."})
    else:
        mock.script({"type": "fail", "status": 429, "retry_after": 120})
    error = failed(mock.agent(api))
    assert error.kind == ("quota" if why == "quota" else "rate_limit")
    assert ("120" in str(error)) == (why != "quota")
    assert (len(mock.requests()), mock.findings()) == (1, ["gave_up"])
