"""The frame of the wire formats: key, request, retries, hooks, failure, and what never shows."""

from __future__ import annotations

import itertools
import logging
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from agentcore.events import AssistantMessageEvent, RetryEvent
from agentcore.llm import Context, ProviderResponse, StreamOptions, stream
from agentcore.llm.registry import wire_format_names
from agentcore.messages import UserMessage
from agentcore.models import Model
from agentcore.testing import Answer, SseServer, answer, fails, says

KEY = "sk-secret-0123456789abcdef"


def ask(model: Model | None, **options: Any) -> Iterator[AssistantMessageEvent]:
    return stream(model, Context("", [UserMessage("hi")]), StreamOptions(**options))


def message_of(events: Iterable[AssistantMessageEvent]) -> Any:
    *_, last = events
    return last.message  # type: ignore[union-attr]


def error_answer(text: str, status: int, **headers: str) -> Answer:
    return answer({"error": {"message": text}}, status=status, headers=headers)


# --- setup -----------------------------------------------------------------------------------------------------------


def test_no_model_is_an_error_that_names_both_ways() -> None:
    """Without a model the answer is an error that says how to choose one."""
    message = message_of(ask(None))
    assert message.error_message == (
        'no model was chosen: give one, such as Agent(model="openai/gpt-5-mini") or Agent(model=openai_compatible(url, id))'
    )
    assert message.error_kind == "setup"


def test_an_unknown_wire_format_is_an_error_that_names_the_known_ones() -> None:
    """A model of an unknown `api` is refused with the list of those that there are."""
    message = message_of(ask(Model("m", api="telepathy")))
    assert message.error_message == (
        f"no wire format is called 'telepathy': model.api must be one of {', '.join(wire_format_names())}"
    )
    own = ["anthropic-messages", "google-generative-ai", "openai-completions", "openai-responses", "proxy"]
    assert set(own) <= set(wire_format_names())
    assert (message.error_kind, message.error_retryable) == ("setup", False)


def test_a_missing_key_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key nothing is sent, and the text names the variable and the other ways."""
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with SseServer() as server:
        message = message_of(ask(server.model(provider="groq")))
        assert server.requests == []
    assert message.error_message == (
        "no API key for the provider groq: set GROQ_API_KEY, or pass StreamOptions(api_key=…) or Agent(get_api_key=…)"
    )
    assert message.error_kind == "auth"


@pytest.mark.parametrize(
    ("provider", "way_out"),
    [
        ("openai-compatible", "pass openai_compatible(…, api_key=…), StreamOptions(api_key=…) or Agent(get_api_key=…)"),
        ("ollama", "set OLLAMA_API_KEY, or pass StreamOptions(api_key=…) or Agent(get_api_key=…)"),
        ("scripted", "pass StreamOptions(api_key=…) or Agent(get_api_key=…)"),
    ],
)
def test_a_refused_request_without_a_key_says_that_there_was_none(
    provider: str, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be no help to check a key that was not sent; where one was sent, that is what is said."""
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    with SseServer(error_answer("who are you?", 401), repeat=True) as server:
        message = message_of(ask(server.model(provider=provider)))
        with_key = message_of(ask(server.model(provider=provider), api_key="k-0123456789"))
    assert message.error_message == f"401 Unauthorized: who are you? no API key was sent: {way_out}"
    assert with_key.error_message == "401 Unauthorized: who are you? check the API key and what it may be used for"
    assert (message.error_kind, message.error_retryable) == ("auth", False)


def test_a_base_url_without_v1_is_hinted_at() -> None:
    """Most servers that speak OpenAI's format have it below `/v1`."""
    with SseServer(error_answer("no such page", 404), repeat=True) as server:
        bare = message_of(ask(server.model(base_url=server.url)))
        whole = message_of(ask(server.model()))
    end = "and the model's id (asked for /"
    assert bare.error_message == f"404 Not Found: no such page; check base_url, mostly ending in /v1, {end}chat/completions)"
    assert whole.error_message == f"404 Not Found: no such page; check base_url {end}v1/chat/completions)"


def test_a_model_without_an_address_is_an_error_that_says_so() -> None:
    """A model without base_url is refused with the way out."""
    message = message_of(ask(Model("m", provider="local")))
    assert message.error_message == "the model m has no base_url: set Model.base_url, or take a model of the catalogue"


@pytest.mark.parametrize("key", ["sk-with\nline-break", "sk-with-ünicode"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    """A key with a line break or beyond ASCII is an error that does not hold the key."""
    with SseServer() as server:
        message = message_of(ask(server.model(), api_key=key))
        assert server.requests == []
    assert message.error_message == (
        "the header authorization cannot be sent: it must be ASCII text without line breaks, as must API keys"
    )


def test_nothing_is_sent_before_the_first_event_is_asked_for() -> None:
    """A stream that nobody reads makes no request."""
    with SseServer(says("x")) as server:
        events = ask(server.model())
        assert server.requests == []
        next(iter(events))
        assert len(server.requests) == 1
        events.close()  # type: ignore[attr-defined]


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_the_key_goes_to_the_chosen_server_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """C115: a compatible server gets its own key, never OpenAI's from the environment, and one request in all."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789")
    with SseServer(says("x"), repeat=True) as server:
        message_of(ask(server.model(provider="openai-compatible"), api_key="K2-0123"))
        message_of(ask(server.model(provider="openai-compatible")))
        assert [request.headers.get("authorization") for request in server.requests] == ["Bearer K2-0123", None]


def test_headers_of_the_options_win_over_those_of_the_model() -> None:
    """Headers are put together whatever their case; None takes one away."""
    with SseServer(says("x")) as server:
        model = server.model(headers={"X-One": "model", "X-Two": "model"})
        message_of(ask(model, headers={"x-one": "call", "x-two": None, "User-Agent": "mine/1"}))  # type: ignore[dict-item]
        headers = server.requests[0].headers
    assert (headers["x-one"], headers.get("x-two"), headers["user-agent"]) == ("call", None, "mine/1")


def test_extra_fields_and_the_payload_hook_change_the_body() -> None:
    """`extra_body` adds and replaces fields; `on_payload` sees the whole body as plain values and has the last word."""
    seen: list[Any] = []

    def hook(payload: dict[str, Any]) -> dict[str, Any]:
        seen.append(payload["messages"])
        return {**payload, "seed": 7}

    with SseServer(says("x")) as server:
        message_of(ask(server.model(), extra_body={"top_k": 3, "store": True}, on_payload=hook))
        body = server.requests[0].json
    assert (body["top_k"], body["store"], body["seed"]) == (3, True, 7)
    assert seen == [[{"role": "user", "content": "hi"}]]


def test_the_response_hook_sees_status_and_headers() -> None:
    """`on_response` is called when the headers are there."""
    seen: list[ProviderResponse] = []
    with SseServer(answer(says("x"), headers={"X-Request-Id": "r1"})) as server:
        message_of(ask(server.model(), on_response=lambda response, model: seen.append(response)))
    assert [(response.status, response.headers["x-request-id"]) for response in seen] == [(200, "r1")]


def test_a_hook_that_raises_is_a_failed_answer_of_kind_hook() -> None:
    """A hook's exception ends the answer; nothing is sent, nothing is raised."""

    def hook(payload: Any) -> None:
        raise RuntimeError("hook broke")

    with SseServer() as server:
        message = message_of(ask(server.model(), on_payload=hook))
        assert server.requests == []
    assert (message.error_message, message.error_kind, message.error_retryable) == ("RuntimeError: hook broke", "hook", False)


# --- retries ---------------------------------------------------------------------------------------------------------


def test_a_hook_that_returns_no_body_is_told_so() -> None:
    """`on_payload` may return a body or None; anything else is an error of kind hook, and nothing is sent."""
    with SseServer(says("x")) as server:
        message = message_of(ask(server.model(), on_payload=lambda payload: "text"))
        assert message.error_message == (
            "on_payload returned a value of type str: it must return the body, a dict, or None to leave it"
        )
        assert message.error_kind == "hook" and server.requests == []


def test_a_hook_with_too_many_parameters_is_refused_when_it_is_set() -> None:
    """A hook that needs more than there is is a TypeError of `StreamOptions`, not of a run."""
    with pytest.raises(TypeError, match=r"^on_payload gets at most 2 arguments \(payload, model\)"):
        StreamOptions(on_payload=lambda payload, model, more: None)
    StreamOptions(on_payload=lambda payload: None, on_response=lambda response, model: None)


def test_a_body_that_breaks_before_the_answer_begins_is_asked_for_again() -> None:
    """Without an event stream's content type the first bytes decide; if the connection breaks before them, nothing is lost."""
    broken = answer(b"da", cut_at=1, headers={"content-type": "text/plain"})
    with SseServer(broken, says("whole")) as server:
        events = list(ask(server.model()))
        assert [event.type for event in events[:2]] == ["retry", "start"]
        assert message_of(events).text == "whole"


def test_a_failed_request_is_tried_again_visibly_with_an_equal_body() -> None:
    """408, 429 and 5xx are tried again; each pause is an event before the answer begins, and the bodies are equal."""
    with SseServer(error_answer("slow down", 429, **{"retry-after-ms": "5"}), answer("", status=503), says("fine")) as server:
        events = list(ask(server.model()))
        assert len({request.body for request in server.requests}) == 1
    retries = [event for event in events if isinstance(event, RetryEvent)]
    assert [(event.attempt, event.max_retries, event.kind, event.source) for event in retries] == [
        (1, 2, "rate_limit", "request"),
        (2, 2, "server", "request"),
    ]
    assert retries[0].delay == 0.005 and 0.75 <= retries[1].delay <= 1.0
    assert [event.type for event in events][:3] == ["retry", "retry", "start"]
    assert message_of(events).text == "fine"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 425])
def test_a_refused_request_is_not_tried_again(status: int) -> None:
    """A request that the provider refuses is sent once, and its words are in the error."""
    with SseServer(error_answer("no such thing", status)) as server:
        message = message_of(ask(server.model()))
        assert len(server.requests) == 1
    assert str(status) in message.error_message and "no such thing" in message.error_message
    assert message.error_retryable is False


def test_a_quota_error_is_not_tried_again() -> None:
    """C047: an account out of quota is one request and a clear error, although the status is 429."""
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with SseServer(answer(body, status=429)) as server:
        message = message_of(ask(server.model()))
        assert len(server.requests) == 1
    assert message.error_kind == "quota"


def test_a_wait_that_is_too_long_is_named_and_not_waited_for() -> None:
    """A `Retry-After` over the limit ends the request at once, and the error names the wait."""
    with SseServer(error_answer("slow down", 429, **{"retry-after": "120"})) as server:
        begun = time.monotonic()
        message = message_of(ask(server.model()))
        assert time.monotonic() - begun < 1.0
    assert "a wait of 120 s, longer than the 60 s that max_retry_delay_ms allows" in message.error_message
    assert message.error_retryable is False


def test_the_server_decides_whether_to_retry() -> None:
    """`x-should-retry` is obeyed both ways."""
    with SseServer(error_answer("a", 500, **{"x-should-retry": "false"})) as server:
        message_of(ask(server.model()))
        assert len(server.requests) == 1
    with SseServer(error_answer("a", 400, **{"x-should-retry": "true", "retry-after-ms": "1"}), says("x")) as server:
        assert message_of(ask(server.model())).text == "x"


# --- answers that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_json_instead_of_a_stream_is_an_error_with_its_words(framing: Any) -> None:
    """C013: a 200 with JSON is an error with status, content type and message, never an empty success."""
    body = {"error": {"message": "quota exhausted", "code": 429}}
    with SseServer(answer(body, framing=framing)) as server:
        message = message_of(ask(server.model()))
        assert len(server.requests) == 1
    assert message.stop_reason == "error"
    for words in ("200", "application/json", "quota exhausted"):
        assert words in message.error_message


def test_a_page_instead_of_a_stream_is_an_error_with_its_title() -> None:
    """C013: a 200 with HTML (a login page, a proxy) is an error that shows the page's text, capped, and names base_url."""
    page = "<html><head><title>Sign in</title></head><body>" + "<p>blah</p>" * 5000 + "</body></html>"
    with SseServer(answer(page, headers={"content-type": "text/html"})) as server:
        message = message_of(ask(server.model()))
    assert "200 with text/html instead of an event stream: Sign in" in message.error_message
    assert message.error_message.endswith("check base_url")
    assert len(message.error_message) < 1500


def test_a_stream_under_another_content_type_is_read() -> None:
    """A server that sends its stream as plain text is understood."""
    with SseServer(answer(says("x"), headers={"content-type": "text/plain"})) as server:
        assert message_of(ask(server.model())).text == "x"


def test_an_error_inside_the_stream_is_judged_like_a_status() -> None:
    """An overload inside a 200 is a retryable failure of an answer that has begun; its text is kept."""
    with SseServer(says("half") + fails("the engine is overloaded", code="overloaded_error")) as server:
        events = list(ask(server.model()))
        assert len(server.requests) == 1
    message = message_of(events)
    assert events[0].type == "start" and message.text == "half"
    assert (message.error_kind, message.error_retryable) == ("server", True)


def test_a_timeout_that_the_provider_reports_is_told_in_its_words() -> None:
    """An error event about a timeout on the provider's side is no stall of the stream."""
    with SseServer(says("half") + fails("upstream request timed out", code="timeout_error")) as server:
        message = message_of(ask(server.model()))
    assert "upstream request timed out" in message.error_message and "stalled" not in message.error_message
    assert (message.error_kind, message.error_retryable) == ("timeout", True)


@pytest.mark.slow
def test_an_error_body_that_never_ends_is_not_waited_for() -> None:
    """What came of an error's body within five seconds is enough."""
    drip = itertools.chain(['{"error": "no such'], itertools.cycle([" ", 0.5]))
    with SseServer(answer(drip, status=400)) as server:
        begun = time.monotonic()
        message = message_of(ask(server.model()))
        assert 4 < time.monotonic() - begun < 9
    assert "no such" in message.error_message


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_stalled_stream_fails_in_time(framing: Any) -> None:
    """C008: pings keep the connection open, but not the answer; the failure is retryable and names the setting."""
    pings = itertools.chain(['data: {"choices":[{"delta":{"content":"a"}}]}\n\n'], itertools.cycle([": ping\n\n", 0.02]))
    with SseServer(answer(pings, framing=framing)) as server:
        begun = time.monotonic()
        message = message_of(ask(server.model(), stall_timeout=0.3))
        assert 0.25 < time.monotonic() - begun < 2.0
        assert message.error_message == (
            f"127.0.0.1:{server.port} stalled: timed out after 0.3 s without an event, see StreamOptions.stall_timeout"
        )
    assert (message.error_kind, message.error_retryable, message.text) == ("timeout", True, "a")


@pytest.mark.parametrize("stall_timeout", [None, 0])
def test_a_slow_model_is_waited_for_when_the_limit_is_off(stall_timeout: float | None) -> None:
    """C008: None and 0 turn the stall limit off."""
    slow: list[Any] = ['data: {"choices":[{"delta":{"content":"a"}}]}\n\n']
    slow += [": ping\n\n", 0.05] * 8
    slow += ['data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n']
    with SseServer(answer(slow)) as server:
        assert message_of(ask(server.model(), stall_timeout=stall_timeout)).stop_reason == "done"


def test_a_silent_stream_fails_in_time() -> None:
    """A stream that says nothing at all any more is a stall too."""
    with SseServer(answer(['data: {"choices":[{"delta":{"content":"a"}}]}\n\n'], hold_open=True)) as server:
        message = message_of(ask(server.model(), stall_timeout=0.2))
    assert (message.error_kind, message.error_retryable) == ("timeout", True)


# --- latency ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_the_first_delta_arrives_as_it_is_sent(framing: Any) -> None:
    """C005: a delta is there within milliseconds of being sent, also where the body has no length and no chunks."""
    sent: list[float] = []
    late: list[float] = []
    gate = threading.Event()

    def body() -> Iterator[Any]:
        for index in range(12):
            yield lambda: sent.append(time.perf_counter())
            yield f'data: {{"choices":[{{"delta":{{"content":"{index}"}}}}]}}\n\n'
            yield 0.02
        yield 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'

    with SseServer(answer(body(), framing=framing)) as server:
        for event in ask(server.model()):
            if event.type == "text_delta":
                late.append(time.perf_counter() - sent[len(late)])
    gate.set()
    assert len(late) == 12
    assert statistics.median(late) < 0.02


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_a_key_that_the_provider_echoes_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    """C116: a 401 that quotes the header shows no key in the error, the events, or the log at DEBUG."""
    caplog.set_level(logging.DEBUG)
    echo = error_answer(f"Incorrect API key provided: {KEY}. Header: Bearer {KEY}", 401)
    busy = error_answer(f"try later, {KEY}", 503, **{"retry-after-ms": "1"})
    with SseServer(busy, echo) as server:
        events = list(ask(server.model(), api_key=KEY))
    message = message_of(events)
    assert "Incorrect API key provided: ***." in message.error_message
    assert message.error_kind == "auth"
    assert KEY not in repr(events) and KEY not in caplog.text
    assert "503" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        f'data: {{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"{KEY}"}}]}}\n\n',
        f'data: {{"error":{{"message":"bad {KEY}"}}}}\n\n',
        f"data: {KEY} is no JSON\n\n",
        f'data: {{"choices":[{{"delta":"{KEY}"}}]}}\n\n',
    ],
)
def test_a_key_that_a_stream_echoes_is_masked(body: str, caplog: pytest.LogCaptureFixture) -> None:
    """C116: the reason of an end, an error inside a stream, a broken event: none brings the key into error, event or log."""
    caplog.set_level(logging.DEBUG)
    with SseServer(body) as server:
        events = list(ask(server.model(), api_key=KEY))
    assert events[-1].type == "error"
    assert KEY not in repr(events) + caplog.text


def test_a_hook_that_raises_with_the_key_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    """C116: what a hook raises is masked in the error and in the log."""
    caplog.set_level(logging.DEBUG)

    def raise_it(payload: Any) -> None:
        raise RuntimeError(f"no luck with {KEY}")

    with SseServer(says("x")) as server:
        message = message_of(ask(server.model(), api_key=KEY, on_payload=raise_it))
    assert message.error_message == "RuntimeError: no luck with ***"
    assert "no luck with ***" in caplog.text and KEY not in caplog.text


def test_a_key_in_a_header_of_ones_own_is_masked() -> None:
    """Secrets in the model's and the call's own headers are masked like the key."""
    with SseServer(error_answer("no: own-secret-123 / cookie-secret-456", 400)) as server:
        model = server.model(headers={"X-Api-Key": "own-secret-123"})
        message = message_of(ask(model, headers={"Cookie": "cookie-secret-456"}))
    assert message.error_message == "400 Bad Request: no: *** / ***"
    assert "own-secret" not in repr(model)


def test_the_log_shows_requests_but_no_content(caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG the log names model, size, host and status of each request, and nothing of what is said."""
    caplog.set_level(logging.DEBUG, logger="agentcore")
    with SseServer(says("the quick brown fox")) as server:
        message_of(ask(server.model(), api_key=KEY))
    assert "scripted scripted: " in caplog.text and "status 200" in caplog.text
    own = [record.getMessage() for record in caplog.records if record.name == "agentcore"]
    assert not any("quick" in text or "hi" in text.split() for text in own)
