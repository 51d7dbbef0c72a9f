"""What went wrong with a request: which sort of failure, whether a new try could help, how long to wait, and a text for people.

A failure is judged where it arises, from what is known there:

- `classify`: an HTTP answer that is no success: its status, headers and body;
- `classify_error`: an error object inside a stream that began well;
- `classify_text`: somebody else's message, where nothing but its text is there.

A code word of a provider (`context_length_exceeded`, `insufficient_quota`) counts wherever it stands in a body. Throttling is
never taken for an overflow, whatever it says of tokens. The texts made here are judged by `classify_text` like the failure that
they came from, so an answer read back from a session file is judged as it was when it failed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from agentcore.errors import ErrorKind
from agentcore.messages import AssistantMessage

MAX_TEXT_CHARS = 4000
"""No more than this is quoted of a provider's answer."""


@dataclass(frozen=True)
class Failure:
    """What became of a request.

    `text` is for people: the status, the provider's own words, the way out. `retry_after` is the wait that the provider asks
    for, in seconds; None where it says nothing. `retryable` is about the failure alone: how often and how long is the
    business of whoever tries again.
    """

    kind: ErrorKind
    retryable: bool
    text: str
    status: int | None = None
    retry_after: float | None = None


# --- the words of the providers --------------------------------------------------------------------------------------


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_QUOTA = _any_of(
    r"insufficient[_ ]quota",
    r"insufficient[_ ](?:balance|credits?|funds)",
    r"billing",
    r"credit balance is too low",
    r"exceeded your current quota",
    r"quota exceeded",
    r"out of (?:budget|credits?)",
    r"usage limit reached",
    r"usagelimiterror",
    r"enable available balance",
    r"payment required",
    r"credits? (?:have been )?exhausted",
)
_THROTTLING = _any_of(
    r"rate.?limit",
    r"too many requests",
    r"throttl",
    r"resource.?exhausted",
    r"tokens per (?:min|day|hour|second)",
    r"requests per (?:min|day|hour|second)",
)
# Code words: nobody writes them by chance.
_OVERFLOW_CODES = _any_of(
    r"context_length_exceeded",
    r"model_context_window_exceeded",
    r"exceed_context_size_error",
    r"context_window_exceeded",
    r"request_too_large",
    r"string_above_max_length",
)
_OVERFLOW = _any_of(
    _OVERFLOW_CODES.pattern,
    r"prompt (?:is )?too long",
    r"input is too long",
    r"exceeds? the context window",
    r"exceeds? (?:the )?(?:model'?s? )?maximum context length (?:of|\()",
    r"exceeds? the model'?s maximum context length",
    r"maximum context length is [\d,]+ tokens?",
    r"input token count.*exceeds? the maximum",
    r"token count of [\d,]+ exceeds? the limit",
    r"maximum prompt length is",
    r"maximum allowed input length",
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    r"longer than the model'?s context length",
    r"exceeds? the available context size",
    r"greater than the context length",
    r"context window exceeds? limit",
    r"exceeded (?:the )?model token limit",
    r"too large for model with [\d,]+ maximum context length",
    r"but the configured context size is",
    r"exceeded (?:the )?(?:max(?:imum)? )?context length",
    r"range of input length should be",
    r"context[_ ]length[_ ]exceeded",
    r"context size (?:has been )?exceeded",
    r"too many tokens",
    r"token limit exceeded",
    r"request entity too large",
    r"payload too large",
    r"content too large",
)
_SERVER = _any_of(
    r"overloaded",
    r"server.?error",
    r"internal.?error",
    r"service.?unavailable",
    r"bad gateway",
    r"gateway time-?out",
    r"status: (?:UNAVAILABLE|INTERNAL|DEADLINE_EXCEEDED)\b",
    r"provider.?returned.?error",
    r"(?:retry your|try your) request",
    r"temporarily unavailable",
    r"engine is currently",
)
_NETWORK = _any_of(
    r"network.?error",
    r"connection.?(?:error|refused|lost|reset|closed|aborted|broken)",
    r"econnreset|econnrefused|epipe|enotfound|eai_again|ehostunreach|enetunreach",
    r"broken pipe",
    r"other side closed",
    r"fetch failed",
    r"getaddrinfo",
    r"upstream.?connect",
    r"reset before headers",
    r"socket hang up",
    r"socket connection was closed",
    r"\bterminated\b",
    r"websocket.?(?:closed|error)",
    r"ended (?:before|without|inside)",
    r"stream is broken|broke off",
    r"no network",
    r"did not get a response",
    r"name or service not known|temporary failure in name resolution",
)
_TIMEOUT = _any_of(r"time[d-]? ?out", r"stalled")
_AUTH = _any_of(
    r"(?:invalid|incorrect|missing|no|expired|malformed)[ _](?:x-)?api[ _-]?key",
    r"api key (?:not valid|not found|expired)",
    r"api_key_invalid",
    r"unauthorized|unauthenticated|forbidden",
    r"invalid (?:bearer )?token",
    r"authentication",
    r"permission",
)
_REFUSAL = _any_of(
    r"content.?filter", r"\brefus(?:ed|al)\b(?! connection)", r"\bsafety\b", r"blocked (?:by|the prompt)|was blocked", r"moderation"
)

# What error types and codes of the providers mean, as an HTTP status.
_STATUS_BY_WORD = {
    "overloaded_error": 529,
    "overloaded": 529,
    "engine_overloaded": 529,
    "api_error": 500,
    "server_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "requests": 429,
    "tokens": 429,
    "insufficient_quota": 429,
    "timeout_error": 504,
    "billing_error": 402,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "cancelled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "out_of_range": 400,
    "internal": 500,
    "unavailable": 503,
    "service_unavailable": 503,
    "unauthenticated": 401,
}

_REASONS = {529: "Overloaded", 524: "Timeout", 499: "Cancelled"}

WAYS_OUT: dict[ErrorKind, str] = {
    "auth": "check the API key and what it may be used for",
    "quota": "check the plan and the billing of the account, or use another model",
    "overflow": "shorten or compact the conversation, or use a model with a larger context window",
}
"""What can be done, at the end of the text of such a failure."""


# --- judging ---------------------------------------------------------------------------------------------------------


def classify(status: int, headers: Mapping[str, str], body: str, reason: str = "", *, now: float | None = None) -> Failure:
    """Judge an HTTP answer that is no success.

    Args:
        status: The HTTP status.
        headers: Its headers, in any case.
        body: The body as text; may be empty, JSON, HTML or anything else.
        reason: The reason phrase of the status line; else the usual one of the status is quoted.
        now: The time in seconds since the epoch, for waits that are given as a date.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    error = _parse(body)
    message = _message_of(error, body)
    kind, retryable = _judge_status(status, body, error)
    wish = lower.get("x-should-retry")
    if wish == "false":
        retryable = False
    elif wish == "true" and kind not in ("quota", "overflow", "auth"):
        retryable = True
    wait = retry_after(status, lower, body, now=now) if retryable else None
    words = reason or _REASONS.get(status) or _phrase(status)
    return Failure(kind, retryable, _say(f"{status} {words}".strip(), message, kind), status, wait)


def classify_error(error: Any, *, now: float | None = None) -> Failure:
    """Judge an error object that came inside a stream: what a provider says under `error`, or the whole event.

    It is treated like the HTTP status that the provider would have sent, where its type or code tells which.
    """
    body = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    parsed = _parse(error) if isinstance(error, str) else error
    message = _message_of(parsed, body)
    status = _status_of(parsed)
    if status is None:
        failure = classify_text(body)
        kind, retryable = failure.kind, failure.retryable
        return Failure(kind, retryable, _say("", message, kind), None, None)
    kind, retryable = _judge_status(status, body, parsed)
    word = next((word for word in _codes_of(parsed) if not word.isdigit()), "")
    said = message if not word or word.lower() in message.lower() else f"{word}: {message}"
    wait = retry_after(status, {}, body, now=now) if retryable else None
    return Failure(kind, retryable, _say(f"{status} {_REASONS.get(status) or _phrase(status)}".strip(), said, kind), status, wait)


def classify_text(text: str | None) -> Failure:
    """Judge a foreign message by its text alone."""
    text = text or ""
    kind, retryable = _judge_text(text)
    return Failure(kind, retryable, text)


def is_retryable(message: AssistantMessage) -> bool:
    """Whether a failed answer is worth another try: as it was judged where it failed, else by its text."""
    if message.stop_reason != "error":
        return False
    if message.error_retryable is not None:
        return message.error_retryable
    return classify_text(message.error_message).retryable


def is_context_overflow(message: AssistantMessage, context_window: int | None = None) -> bool:
    """Whether the context was too large for the model.

    Servers that cut or overrun silently are found by their usage, if `context_window` is given: more input than the window
    holds, or an answer without a single token because the window was full.
    """
    if message.stop_reason == "error" and kind_of(message) == "overflow":
        return True
    if not context_window:
        return False
    read = message.usage.input + message.usage.cache_read
    if message.stop_reason == "done":
        return read > context_window
    return message.stop_reason == "length" and message.usage.output == 0 and read >= 0.99 * context_window


def kind_of(message: AssistantMessage) -> ErrorKind:
    """Return the sort of failure of a failed answer: as it was judged where it failed, else by its text."""
    return message.error_kind or classify_text(message.error_message).kind


def _judge_status(status: int, body: str, error: Any) -> tuple[ErrorKind, bool]:
    if status == 402:
        return "quota", False
    if status == 429:
        return ("quota", False) if _is_quota(body, error) else ("rate_limit", True)
    if status in (401, 403):
        return "auth", False
    if _OVERFLOW_CODES.search(body) and not _is_throttling(body):
        return "overflow", False
    if status == 408:
        return "timeout", True
    if status == 409:
        return "request", True
    if status >= 500:
        if _is_quota(body, error) and "insufficient" in body.lower():
            return "quota", False
        return ("timeout" if status in (504, 524) else "server"), True
    if status == 413:
        # Too large for the limit per minute, or for the model: as it is, the request never gets through.
        is_per_minute = re.search(r"rate.?limit|tokens per|too many requests", body, re.IGNORECASE)
        return ("rate_limit", False) if is_per_minute else ("overflow", False)
    if _QUOTA.search(body):
        return "quota", False
    if _is_throttling(body):
        return "rate_limit", True
    if _OVERFLOW.search(body):
        return "overflow", False
    if _AUTH.search(body) and re.search(r"api.?key|token|credential", body, re.IGNORECASE):
        return "auth", False
    return "request", False


def _is_throttling(body: str) -> bool:
    return bool(_THROTTLING.search(body))


def _is_quota(body: str, error: Any) -> bool:
    if not _QUOTA.search(body):
        return False
    if re.search(r"insufficient_quota|billing_hard_limit", body):
        return True
    # Google words the limit per minute like an exhausted account, but says when to come back.
    return _retry_info(error) is None or "PerDay" in body


_LEADING_STATUS = re.compile(r"\s*(?:error:?\s+|http\s+)?\(?([45]\d\d)\)?(?:\s*[:\-]|\s|$)", re.IGNORECASE)
_INNER_STATUS = re.compile(r"(?:status(?: code)?|code|http|error)\W{1,3}([45]\d\d)\b|\b(429)\b", re.IGNORECASE)
_ANY_SERVER_STATUS = re.compile(r"\b50[0234]\b")
_NO_BODY = re.compile(r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)", re.IGNORECASE)


def _judge_text(text: str) -> tuple[ErrorKind, bool]:
    if not text.strip():
        return "unknown", False
    if _NO_BODY.match(text):
        return "overflow", False
    leading = _LEADING_STATUS.match(text)
    if leading is not None:
        return _judge_status(int(leading.group(1)), text, None)
    inner = _INNER_STATUS.search(text)
    status = int(inner.group(1) or inner.group(2)) if inner else None
    if status is not None and (status in (401, 402, 403, 408, 409, 413, 429) or status >= 500):
        kind, retryable = _judge_status(status, text, None)
        if kind != "server" or not _OVERFLOW.search(text) or _SERVER.search(text):
            return kind, retryable
        return "overflow", False
    if _QUOTA.search(text):
        return "quota", False
    if _THROTTLING.search(text):
        return "rate_limit", True
    if _OVERFLOW_CODES.search(text):
        return "overflow", False
    if re.search(r"service.?unavailable", text, re.IGNORECASE):
        return "server", True
    if _OVERFLOW.search(text):
        return "overflow", False
    if status is not None:
        return _judge_status(status, text, None)
    for pattern, kind, retryable in _BY_WORDS:
        if pattern.search(text):
            return kind, retryable
    if text.strip().upper() in ("UNAVAILABLE", "INTERNAL") or _ANY_SERVER_STATUS.search(text):
        return "server", True
    return "unknown", False


_BY_WORDS: tuple[tuple[re.Pattern[str], ErrorKind, bool], ...] = (
    (_AUTH, "auth", False),
    (_SERVER, "server", True),
    (_NETWORK, "network", True),
    (_TIMEOUT, "timeout", True),
    (_REFUSAL, "refusal", False),
    (_any_of(r"bad request", r"not found", r"invalid.request", r"invalid_argument"), "request", False),
)


# --- texts -----------------------------------------------------------------------------------------------------------


def truncate_error_text(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Cut a text and say how much is missing."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}... [truncated {len(text) - max_chars} chars]"


def _say(status: str, message: str, kind: ErrorKind) -> str:
    said = f"{status}: {message}" if status and message else status or message or "the provider reported an error without a text"
    way_out = WAYS_OUT.get(kind)
    if not way_out:
        return said
    return f"{said.rstrip()}{'' if said.rstrip().endswith(('.', '!', '?')) else ';'} {way_out}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def error_text(body: str) -> str:
    """Return what an error body says to people: the provider's message if it is JSON, the text of a page if it is HTML."""
    return _message_of(_parse(body), body)


def _parse(body: Any) -> Any:
    if not isinstance(body, str):
        return body
    start = body.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        return json.loads(body)
    except ValueError:
        return None


def _message_of(error: Any, body: str) -> str:
    said = next(_messages_in(error), None)
    if said is None:
        return truncate_error_text(_in_one_line(_plain(body)))
    said = _in_one_line(said)
    code = next((word for word in _codes_of(error) if not word.isdigit() and word.lower() not in said.lower()), None)
    return truncate_error_text(f"{said} ({code})" if code else said)


def _in_one_line(text: str) -> str:
    return re.sub(r"\s*[\x00-\x1f\x7f\u2028]+\s*", " ", text).strip()


def _plain(body: str) -> str:
    text = body.strip()
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.IGNORECASE | re.DOTALL)
        text = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
        text = re.sub(r"\s+", " ", text).strip()
    return text


def _messages_in(error: Any) -> Iterator[str]:
    """Go through the places in which providers put their message, the innermost first."""
    if isinstance(error, list):
        for member in error:
            yield from _messages_in(member)
        return
    if not isinstance(error, dict):
        return
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str) and metadata["raw"].strip():
        # OpenRouter hands on what the provider behind it said.
        raw = metadata["raw"]
        outer = error.get("message")
        inner = next(_messages_in(_parse(raw)), raw)
        yield f"{outer}: {inner}" if isinstance(outer, str) and outer else inner
    for key in ("error", "response", "errors", "detail", "message", "msg", "error_message", "error_description"):
        member = error.get(key)
        if isinstance(member, str) and member.strip():
            yield member.strip()
        elif isinstance(member, (dict, list)):
            yield from _messages_in(member)


def _codes_of(error: Any) -> Iterator[str]:
    """Go through the code words of an error object, the most telling first."""
    if isinstance(error, list):
        for member in error:
            yield from _codes_of(member)
        return
    if not isinstance(error, dict):
        return
    inner = error.get("error")
    if isinstance(inner, (dict, list)):
        yield from _codes_of(inner)
    response = error.get("response")
    if isinstance(response, dict):
        yield from _codes_of(response)
    for key in ("code", "status", "type"):
        word = error.get(key)
        if isinstance(word, bool) or word in ("error", "failed", "response.failed"):
            continue
        if isinstance(word, (str, int)) and str(word):
            yield str(word)


def _status_of(error: Any) -> int | None:
    for word in _codes_of(error):
        if re.fullmatch(r"[45]\d\d", word):
            return int(word)
        status = _STATUS_BY_WORD.get(word.lower())
        if status is not None:
            return status
    return None


# --- waits -----------------------------------------------------------------------------------------------------------


def retry_after(status: int, headers: Mapping[str, str], body: str = "", *, now: float | None = None) -> float | None:
    """Return the seconds that a provider asks to wait, never negative; None where it does not say.

    Looked at, in this order: `retry-after-ms`; `retry-after` (seconds or a date); Google's `RetryInfo` in the body; for a 429,
    the reset of the limit that is used up (`x-ratelimit-reset-…`, `anthropic-ratelimit-…-reset`, `ratelimit-reset`), and
    "try again in 6m0s" in the text.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    now = time.time() if now is None else now
    milliseconds = _number(lower.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    given = lower.get("retry-after")
    if given is not None:
        seconds = _number(given)
        if seconds is None:
            seconds = _until(given, now)
        if seconds is not None:
            return max(0.0, seconds)
    wait = _retry_info(_parse(body))
    if wait is None and status == 429:
        wait = _reset(lower, now)
    if wait is None and status == 429:
        said = re.search(r"(?:try|retry)(?: again)?\s+(?:in|after)\s+((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)", body, re.IGNORECASE)
        wait = _duration(said.group(1)) if said else None
    return None if wait is None else max(0.0, wait)


def _number(text: str | None) -> float | None:
    found = re.match(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*(?:s|sec|secs|seconds|ms)?\s*$", text or "", re.IGNORECASE)
    return float(found.group(1)) if found else None


def _until(text: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        pass
    try:
        from datetime import datetime

        return datetime.fromisoformat(text.strip().replace("Z", "+00:00")).timestamp() - now
    except (ValueError, OverflowError):
        return None


def _duration(text: str) -> float | None:
    """Read `1h2m3.5s`, `20ms`, `6m0s`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}[unit] for number, unit in parts)


def _reset(headers: Mapping[str, str], now: float) -> float | None:
    waits = []
    for name, value in headers.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        remaining = headers.get(name.replace("-reset-after", "-remaining").replace("reset", "remaining"))
        if remaining is not None and (_number(remaining) or 0.0) > 0:
            continue  # this limit is not the one that was hit
        if remaining is None and re.search(r"-(?:requests|tokens|input|output)", name):
            continue
        wait = _read_reset(value, now)
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def _read_reset(value: str, now: float) -> float | None:
    number = _number(value) if not value.strip().endswith("ms") else None
    if number is None:
        wait = _duration(value.strip())
        return _until(value, now) if wait is None else wait
    if number > 1e11:
        return number / 1000 - now  # milliseconds since the epoch
    if number > 1e8:
        return number - now  # seconds since the epoch
    return number


def _retry_info(error: Any) -> float | None:
    if isinstance(error, list):
        return next((wait for wait in map(_retry_info, error) if wait is not None), None)
    if not isinstance(error, dict):
        return None
    inner = error.get("error")
    if isinstance(inner, (dict, list)):
        return _retry_info(inner)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return _duration(detail["retryDelay"])
    return None
