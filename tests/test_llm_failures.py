"""How a failed request is judged and worded."""

from __future__ import annotations

import json

import pytest

from agentcore.llm.failures import classify, classify_error, classify_text, error_text, retry_after

NOW = 1_767_323_045.678  # Fri, 02 Jan 2026 03:04:05.678 GMT


def body(message: str, **more: object) -> str:
    return json.dumps({"error": {"message": message, **more}})


@pytest.mark.parametrize(
    ("status", "text", "kind", "retryable"),
    [
        (400, body("bad"), "request", False),
        (401, body("invalid token"), "auth", False),
        (402, body("pay"), "quota", False),
        (403, body("no"), "auth", False),
        (404, body("The model `x` does not exist", code="model_not_found"), "request", False),
        (408, "", "timeout", True),
        (409, "", "request", True),
        (413, '{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}', "overflow", False),
        (413, body("Request too large on tokens per minute (TPM)", code="rate_limit_exceeded"), "rate_limit", False),
        (422, "", "request", False),
        (425, "", "request", False),
        (429, body("Too many tokens, please wait before trying again"), "rate_limit", True),
        (429, "", "rate_limit", True),
        (500, body("The server had an error"), "server", True),
        (503, "<html><title>503 Service Temporarily Unavailable</title></html>", "server", True),
        (504, "", "timeout", True),
        (529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "server", True),
        (600, "", "server", True),
        (400, body("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT"), "auth", False),
        (400, body("Your credit balance is too low to access the API"), "quota", False),
        (400, "", "request", False),
    ],
)
def test_the_status_tells_the_kind(status: int, text: str, kind: str, retryable: bool) -> None:
    """Each HTTP status gives its kind and whether another try could help."""
    failure = classify(status, {}, text)
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, status)


@pytest.mark.parametrize(
    "text",
    [
        '{"error":{"message":"x","type":"insufficient_quota"}}',
        '{"error":{"message":"x","code":"insufficient_quota"}}',
        '{"message":"Request failed","details":[{"reason":["insufficient_quota"]}]}',
    ],
)
def test_an_exhausted_account_is_not_a_rate_limit(text: str) -> None:
    """C047: a 429 with `insufficient_quota` anywhere in its body is a quota error, not worth a retry."""
    failure = classify(429, {"x-should-retry": "true"}, text)
    assert (failure.kind, failure.retryable) == ("quota", False)


def test_throttling_that_speaks_of_tokens_is_no_overflow() -> None:
    """C049: a 429 about too many tokens is a rate limit; a 401 about a token is a bad key."""
    assert classify(429, {}, "Too many tokens, please wait before trying again").kind == "rate_limit"
    assert classify(429, {}, body("slow", code="context_length_exceeded")).kind == "rate_limit"
    assert classify(401, {}, "invalid token").kind == "auth"
    assert classify(400, {}, '{"message":"ThrottlingException: Too many tokens"}').kind == "rate_limit"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, body("prompt too long; exceeded max context length 8192")),
        (413, '{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'),
        (400, body("Requested token count exceeds the model's maximum context length of 131072 tokens.")),
        (400, body("Input length 9000 exceeds the maximum allowed input length of 8,192 tokens.")),
        (400, body("Input length (265330) exceeds model's maximum context length (262144).")),
        (400, body("Prompt has 9,000 tokens, but the configured context size is 8,192 tokens")),
        (400, body("the request exceeds the available context size, try increasing it", type="exceed_context_size_error")),
        (400, body("anything", code="context_length_exceeded")),
        (500, '{"detail":{"inner":["context_length_exceeded"]}}'),
    ],
)
def test_an_overflow_is_recognised_in_every_wording(status: int, text: str) -> None:
    """C050: each wording of a too large context gives the overflow kind, and is not retried as it is."""
    failure = classify(status, {}, text)
    assert (failure.kind, failure.retryable) == ("overflow", False)


def test_a_window_exceeded_finish_reason_is_an_overflow() -> None:
    """C050: the finish reason `model_context_window_exceeded`, as a text, is an overflow."""
    assert classify_text("the provider stopped with model_context_window_exceeded").kind == "overflow"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (body("Wrong key", type="invalid_request_error"), "Wrong key (invalid_request_error)"),
        ('{"error":"model \'x\' not found"}', "model 'x' not found"),
        ('{"object":"error","message":"too long","code":400}', "too long"),
        ('{"detail":[{"loc":["body"],"msg":"Field required"}]}', "Field required"),
        ('{"detail":"Not Found"}', "Not Found"),
        ('[{"error":{"code":429,"message":"Slow","status":"RESOURCE_EXHAUSTED"}}]', "Slow (RESOURCE_EXHAUSTED)"),
        (
            body("Provider returned error", code=429, metadata={"raw": '{"error":{"message":"upstream busy"}}'}),
            "Provider returned error: upstream busy",
        ),
        ("<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>", "502 Bad Gateway"),
        ("<p>Log <b>in</b> first</p>", "Log in first"),
        ("  plain words ", "plain words"),
        ("", ""),
        ("{broken", "{broken"),
    ],
)
def test_the_message_is_found_in_the_body(text: str, said: str) -> None:
    """What people read is the provider's own message, wherever its JSON keeps it."""
    assert error_text(text) == said


def test_the_text_has_status_message_and_way_out() -> None:
    """An error text names the status and the provider's words, and says what to do where that is known."""
    assert classify(401, {}, body("Incorrect API key provided")).text == (
        "401 Unauthorized: Incorrect API key provided; check the API key and what it may be used for"
    )
    assert classify(503, {}, "", "Busy").text == "503 Busy"
    assert len(classify(500, {}, "x" * 100_000).text) < 4100


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("text", ["", body("It broke."), body("no", code="insufficient_quota"), body("prompt is too long: 9 > 8")])
def test_a_text_read_back_is_judged_alike(status: int, text: str) -> None:
    """`classify_text` of a failure's own text says the same as the failure."""
    failure = classify(status, {}, text)
    again = classify_text(failure.text)
    assert (again.kind, again.retryable) == (failure.kind, failure.retryable)


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "status"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "server", True, 529),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}}, "rate_limit", True, 429),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "Bad"}}, "request", False, 400),
        ({"error": {"code": 503, "message": "The model is overloaded", "status": "UNAVAILABLE"}}, "server", True, 503),
        ({"code": "rate_limit_exceeded", "message": "Slow down"}, "rate_limit", True, 429),
        ({"code": "server_error", "message": "It broke."}, "server", True, 500),
        ({"code": "insufficient_quota", "message": "No money"}, "quota", False, 429),
        ({"code": "context_length_exceeded", "message": "Too long"}, "overflow", False, 400),
        ({"error": {"message": "Provider returned error", "code": 502}}, "server", True, 502),
        ("Overloaded", "server", True, None),
    ],
)
def test_an_error_inside_a_stream_is_treated_like_its_status(error: object, kind: str, retryable: bool, status: int | None) -> None:
    """C014: an error event in a 200 stream is judged like the HTTP status that stands for it."""
    failure = classify_error(error)
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, status)


@pytest.mark.parametrize(
    ("headers", "text", "wait"),
    [
        ({"Retry-After": "3"}, "", 3.0),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"retry-after": "2s"}, "", 2.0),
        ({"retry-after-ms": "7", "retry-after": "2"}, "", 0.007),
        ({"retry-after-ms": "soon", "retry-after": "2"}, "", 2.0),
        ({"retry-after-ms": "-5"}, "", 0.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}, "", 9.322),
        ({"retry-after": "Fri, 02 Jan 2026 03:03:55 GMT"}, "", 0.0),
        ({"retry-after": "soon"}, "", None),
        ({}, "", None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2.5s"}, "", 62.5),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, "", 0.02),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767323055678"}, "", 10.0),
        ({"x-ratelimit-reset": "1767323055"}, "", 9.322),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "12"}, "", 12.0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-01-02T03:04:15Z",
                "anthropic-ratelimit-tokens-remaining": "100",
                "anthropic-ratelimit-tokens-reset": "2026-01-02T04:04:15Z",
            },
            "",
            9.322,
        ),
        (
            {},
            body("slow", details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "32.5s"}]),
            32.5,
        ),
        ({}, body("Rate limit reached. Please try again in 6m0s."), 360.0),
        ({}, body("Rate limit reached. Please try again in 20ms. Visit"), 0.02),
    ],
)
def test_the_wait_is_read_wherever_a_vendor_puts_it(headers: dict[str, str], text: str, wait: float | None) -> None:
    """Seconds, dates, milliseconds, the reset of the limit that was hit, Google's RetryInfo, and words."""
    found = retry_after(429, headers, text, now=NOW)
    assert found == (None if wait is None else pytest.approx(wait, abs=0.002))


def test_a_limit_per_minute_is_not_an_exhausted_account() -> None:
    """Google words a limit per minute like an empty account; what says when to come back is retried, a limit per day is not."""
    words = "You exceeded your current quota, please check your plan and billing details."
    retry_info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}
    minute = classify(429, {}, body(words, status="RESOURCE_EXHAUSTED", details=[retry_info]))
    assert (minute.kind, minute.retryable, minute.retry_after) == ("rate_limit", True, 2.0)
    day = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}
    assert classify(429, {}, body(words, details=[retry_info, day])).kind == "quota"
    assert classify(429, {}, body(words)).kind == "quota"


def test_the_server_may_ask_for_another_try_or_forbid_it() -> None:
    """`x-should-retry` overrides what the status says."""
    assert classify(500, {"x-should-retry": "false"}, "").retryable is False
    assert classify(400, {"X-Should-Retry": "true"}, "").retryable is True
    assert classify(400, {"x-should-retry": "yes"}, "").retryable is False
