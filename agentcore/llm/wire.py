"""The frame of every wire format: key, request, retries, abort, failure → `ErrorEvent`.

A wire format is a class with an `api`, and two methods; all else is done here, the same way for all of them:

    class ChatCompletions(WireFormat):
        api = "openai-completions"
        terminal = "finish_reason"                             what a complete stream has, for the error text

        def build(self, call: Call) -> WireRequest: …          the URL, headers and body of the request
        def read(self, events, answer): …                      events of the stream → our events

    def stream(model, context, options):                       what the registry looks for in the module
        return run_wire_format(ChatCompletions(), model, context, options)

`build` gets a `Call` (model, context, options, key) and returns a `WireRequest`. Its headers are those of the format, the key's
among them (`call.key` is None only where the headers of the model or the options bring their own, or none is needed). The
frame adds `model.headers`, then `options.headers` (None takes one away), `options.extra_body`, and the content type. The body is a
dict that may hold `history.JsonPieces`; the frame writes it, and gives `on_payload` a plain one. To refuse a request, raise
`setup_failure("…")`.

`read` is a generator. It gets an iterator of events with `event` (the name) and `data` (text), and an `Answer`: `answer.assembly`
makes our events, `answer.parse(event)` reads the JSON of one. It yields what the assembly returns, and ends with
`yield answer.finish(stop_reason)` once the terminal event came. After the terminal event, stop asking for events.

- The answer is complete but something may follow (the usage): `answer.expect_end()`.
- The events are at their end: close blocks that should be closed, and return. Without a `finish` that is a broken stream
  (or an abort: the iterator ends quietly then), and the frame says so.
- The service reports an error inside the stream: `raise RequestFailed(failures.classify_error(…))`.
- An answer that the model or a filter refused: `yield answer.fail(text, kind="refusal")`.
- A broken connection, a stall, a torn event raise out of the iterator; nothing needs to be caught.

The `StartEvent` is the border of the two retries: everything before it is retried here (`llm/retry.py`), nothing after it.

    run thread                                              thread that calls abort()
    key, build, post ──── waits for headers ────┐
    StartEvent, read ──── waits for events  ────┼── shut ◄── SocketGuard.shut()
    pause before a retry: signal.wait ──────────┘
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urljoin

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.errors import ErrorKind
from agentcore.events import AssistantMessageEvent, DoneEvent, ErrorEvent, RetryEvent
from agentcore.llm.assembly import Assembly
from agentcore.llm.connections import SocketGuard
from agentcore.llm.failures import WAYS_OUT, Failure, classify, classify_error, truncate_error_text
from agentcore.llm.failures import error_text as failure_text
from agentcore.llm.history import plain_body, write_body
from agentcore.llm.http import HttpAnswer, ReadTimedOut, RequestAborted, RequestFailed, login_of, origin_of, post, secrets_of
from agentcore.llm.keys import (
    WITHOUT_KEY,
    brings_own_key,
    find_key,
    key_was_missing_text,
    mask,
    missing_key_text,
    secrets_in,
)
from agentcore.llm.request import Context, ProviderResponse, StreamOptions
from agentcore.llm.retry import make_final, pause_before_retry
from agentcore.llm.sse import EventStream, SseEvent, StalledStream
from agentcore.messages import StopReason
from agentcore.models import Model

logger = logging.getLogger("agentcore")

MAX_ERROR_BYTES = 65536
"""So much is read of a body that is an error."""


@dataclass(frozen=True)
class Call:
    """What is asked of a wire format. `key` is None where no key is needed, or a header brings one."""

    model: Model
    context: Context
    options: StreamOptions
    key: str | None = field(default=None, repr=False)


@dataclass
class WireRequest:
    """One POST. `state` is whatever `build` wants `read` to know."""

    url: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    state: Any = None


class WireFormat:
    """The base of the wire formats; see the module's text."""

    api: ClassVar[str]
    terminal: ClassVar[str] = "terminal event"
    needs_key: ClassVar[bool] = True
    takes_key_of_headers: ClassVar[bool] = True
    """Whether a header of the caller's that carries a key will do in place of one."""

    def build(self, call: Call) -> WireRequest:
        """Make the request."""
        raise NotImplementedError

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        """Turn the events of the stream into ours."""
        raise NotImplementedError


class Answer:
    """What `read` works with: the call, the assembly of the message, `state` of the request, and the ways to end.

    `expect_end()` says that the answer is complete, though something may follow: it is waited for, but only for a moment.
    """

    def __init__(self, call: Call, assembly: Assembly, expect_end: Callable[[], None] = lambda: None) -> None:
        self.call = call
        self.expect_end = expect_end
        self.assembly = assembly
        self.message = assembly.message
        self.state: Any = None

    def parse(self, event: SseEvent) -> Any:
        """Return the JSON of an event.

        Raises:
            RequestFailed: It is no JSON: the stream is broken (retryable).
        """
        try:
            return json.loads(event.data)
        except ValueError:
            raise broken_event(event) from None

    def finish(self, stop_reason: StopReason) -> DoneEvent:
        """End a good answer."""
        return self.assembly.finish(stop_reason)

    def fail(self, text: str, *, kind: ErrorKind, retryable: bool = False) -> ErrorEvent:
        """End a failed answer, keeping what was streamed."""
        return self.assembly.fail(text, kind=kind, retryable=retryable)


def join_url(model: Model, path: str, *, query: str = "", vendor: str = "", vendor_url: str = "") -> str:
    """Return the address of a request: the model's base URL with a path added; its query stays at the end.

    A model of `vendor`, or of a provider that has no name, may do without a base URL: `vendor_url` counts then. A model of
    anybody else may not, since its key would go to the wrong house.

    Raises:
        RequestFailed: The model has no base URL.
    """
    address = model.base_url or (vendor_url if model.provider in ("", vendor) else "")
    if not address:
        raise setup_failure(f"the model {model.id} has no base_url: set Model.base_url, or take a model of the catalogue")
    base, _, own_query = address.partition("#")[0].partition("?")
    asked = "&".join(filter(None, (query, own_query)))
    return base.rstrip("/") + path + ("?" + asked if asked else "")


def broken_event(event: SseEvent) -> RequestFailed:
    """Return the failure of an event that is no JSON."""
    shown = truncate_error_text(event.data, 200)
    return RequestFailed(Failure("protocol", True, f"the stream is broken: an event is not JSON: {shown}"))


def setup_failure(text: str, kind: ErrorKind = "setup") -> RequestFailed:
    """Return the failure of a request that cannot be made; `text` says what to do."""
    return RequestFailed(Failure(kind, False, text))


def run_wire_format(format: WireFormat, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask a model over a wire format. Never raises; all that goes wrong is an `ErrorEvent`.

    Threads:
        Runs on the thread that reads. Setting `options.signal` from any thread ends it within milliseconds.
    """
    exchange = _Exchange(format, model, context, options)
    try:
        yield from exchange.events()
    except RequestAborted:
        yield exchange.assembly.abort()
    except RequestFailed as error:
        yield exchange.fail(error.failure)
    except Exception as error:
        # A hook that raised, a value without a JSON form, or a fault of ours: the run must end as a failed answer all the same.
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("request failed: %s", mask("".join(traceback.format_exception(error)), exchange.secrets))
        yield exchange.fail(Failure(exchange.kind_of_exception, False, f"{type(error).__name__}: {error}"))
    finally:
        exchange.close()
        exchange.detach()


class _Exchange:
    """One call of a wire format: its tries, and the end."""

    def __init__(self, format: WireFormat, model: Model, context: Context, options: StreamOptions) -> None:
        self.format = format
        self.model = model
        self.context = context
        self.options = options
        self.signal: AbortSignal | None = options.signal
        self.assembly = Assembly(model)
        self.secrets: list[str] = []
        self.kind_of_exception: ErrorKind = "setup"
        self._sends_key = False
        self._guard: SocketGuard | None = None
        self._http: HttpAnswer | None = None
        self._remove_callback = self.signal.on_abort(self._shut) if self.signal is not None else None

    def events(self) -> Iterator[AssistantMessageEvent]:
        self._heed()
        call = Call(self.model, self.context, self.options, self._find_key())
        if call.key:
            self.secrets = [call.key]
        request = self.format.build(call)
        headers = self._headers(request)
        self._sends_key = brings_own_key(headers)
        self.secrets = secrets_in(headers) + self.secrets + secrets_of(request.url)
        body = self._body(request)
        attempt = 1
        while True:
            try:
                http = self._open(request.url, headers, body)
                read = self._check_is_stream(http)
                break
            except RequestFailed as error:
                failure = error.failure
            options = self.options
            pause = pause_before_retry(
                failure, attempt, max_retries=options.max_retries, max_retry_delay_ms=options.max_retry_delay_ms
            )
            if pause is None:
                raise RequestFailed(failure)
            text = mask(failure.text, self.secrets)
            logger.debug("request failed, try %d of %d follows in %.1f s: %s", attempt, options.max_retries, pause, text)
            yield RetryEvent(attempt, options.max_retries, pause, text, failure.kind, "request")
            self._pause(pause)
            attempt += 1
        yield from self._read(http, read, request, call)

    # --- before the request ------------------------------------------------------------------------------------------

    def _find_key(self) -> str | None:
        model, options = self.model, self.options
        key = find_key(model, options.api_key)
        if key or not self.format.needs_key or model.provider in WITHOUT_KEY:
            return key
        if self.format.takes_key_of_headers and brings_own_key(_merge({}, model.headers, options.headers)):
            return None
        raise setup_failure(missing_key_text(model), "auth")

    def _headers(self, request: WireRequest) -> dict[str, str]:
        headers = {"content-type": "application/json", "user-agent": _user_agent(), "accept": "text/event-stream"}
        headers.update(login_of(request.url))
        merged = _merge({**headers, **request.headers}, self.model.headers, self.options.headers)
        for name, value in merged.items():
            if not isinstance(value, str) or not value.isprintable() or not value.isascii():
                raise setup_failure(
                    f"the header {name} cannot be sent: it must be ASCII text without line breaks, as must API keys"
                )
        return merged

    def _body(self, request: WireRequest) -> bytes:
        payload = request.body
        if self.options.extra_body:
            payload = {**payload, **self.options.extra_body}
        if self.options.on_payload is not None:
            payload = plain_body(payload)
            self.kind_of_exception = "hook"
            changed = fit_callback(self.options.on_payload, ("payload", "model"), what="on_payload")(payload, self.model)
            self.kind_of_exception = "setup"
            if changed is not None:
                if not isinstance(changed, Mapping):
                    what = type(changed).__name__
                    text = f"on_payload returned a value of type {what}: it must return the body, a dict, or None to leave it"
                    raise setup_failure(text, "hook")
                payload = dict(changed)
        return write_body(payload)

    # --- the request -------------------------------------------------------------------------------------------------

    def _open(self, url: str, headers: dict[str, str], body: bytes) -> HttpAnswer:
        """Send the request and look at the head of the answer.

        Raises:
            RequestFailed: No answer, or one that is no success.
        """
        options = self.options
        started = time.monotonic()
        self.close()
        http = post(
            url,
            headers,
            body,
            connect_timeout=options.connect_timeout or None,
            timeout=options.timeout or None,
            signal=self.signal,
            on_guard=self._set_guard,
        )
        self._http = http
        took = (time.monotonic() - started) * 1000
        asked = f"{self.model.provider} {self.model.id}: {len(body)} bytes to {http.host}"
        logger.debug("%s, status %d after %.0f ms", asked, http.status, took)
        if options.on_response is not None:
            self.kind_of_exception = "hook"
            on_response = fit_callback(options.on_response, ("response", "model"), what="on_response")
            on_response(ProviderResponse(http.status, dict(http.headers)), self.model)
        self.kind_of_exception = "protocol"
        if 200 <= http.status < 300:
            return http
        raise RequestFailed(self._refusal(http, url))

    def _refusal(self, http: HttpAnswer, url: str) -> Failure:
        text = http.read_text(MAX_ERROR_BYTES)
        self._heed()
        self.close()
        if 300 <= http.status < 400:
            place = origin_of(urljoin(url, http.headers.get("location", "")))
            where = f"redirects to {place}" if place != origin_of(url) else "redirects to another path"
            return Failure("setup", False, f"{http.status}: {http.host} {where}: set base_url to where the API is")
        failure = classify(http.status, http.headers, text, http.reason)
        if http.status == 401 and not self._sends_key:
            text = f"{failure.text.removesuffix(WAYS_OUT['auth'])}{key_was_missing_text(self.model)}"
            return Failure(failure.kind, failure.retryable, text, http.status)
        if http.status in (404, 405) and failure.kind == "request":
            path = url.partition("?")[0].split("/", 3)[-1]
            hint = "" if self.model.api != "openai-completions" or re.search(r"(^|/)v\d", path) else ", mostly ending in /v1,"
            text = f"{failure.text}; check base_url{hint} and the model's id (asked for /{path})"
            return Failure("request", failure.retryable, text, http.status)
        return failure

    def _set_guard(self, guard: SocketGuard) -> None:
        self._guard = guard
        if self.signal is not None and self.signal.aborted:
            guard.shut()

    def _shut(self, reason: object) -> None:
        guard = self._guard
        if guard is not None:
            guard.shut()

    # --- the answer --------------------------------------------------------------------------------------------------

    def _read(
        self, http: HttpAnswer, read: Callable[[], bytes], request: WireRequest, call: Call
    ) -> Iterator[AssistantMessageEvent]:
        yield self.assembly.start()
        options = self.options
        events = EventStream(read, http.set_timeout, options.stall_timeout)
        answer = Answer(call, self.assembly, events.expect_end)
        answer.state = request.state
        last: AssistantMessageEvent | None = None
        try:
            for event in self.format.read(iter(events), answer):
                if type(event) is DoneEvent or type(event) is ErrorEvent:
                    last = event
                    break
                yield event
        except (StalledStream, ReadTimedOut):
            self._heed()
            raise self._stalled(http) from None
        except (RequestFailed, RequestAborted):
            raise
        except Exception as error:
            # A value of another type than the API has, most likely. Whatever it is, what came is kept.
            logger.debug("an event could not be read: %s", "".join(traceback.format_exception(error)))
            text = f"{http.host} sent an event that {self.format.api} does not have ({type(error).__name__}): check Model.api"
            raise RequestFailed(Failure("protocol", False, text)) from error
        # A body that an abort shut looks like a good end, so the signal decides, before anything else.
        self._heed()
        if last is None:
            where = "inside an event" if events.is_torn else f"without its {self.format.terminal}"
            raise RequestFailed(Failure("protocol", True, f"the stream of {http.host} ended {where}: the answer is not complete"))
        if type(last) is ErrorEvent:
            last.message.error_message = mask(last.message.error_message or "", self.secrets)
        http.drain()
        self.close()
        yield last

    def _stalled(self, http: HttpAnswer) -> RequestFailed:
        limit = self.options.stall_timeout or 0
        text = f"{http.host} stalled: timed out after {limit:g} s without an event, see StreamOptions.stall_timeout"
        return RequestFailed(Failure("timeout", True, text))

    def _check_is_stream(self, http: HttpAnswer) -> Callable[[], bytes]:
        """Return what reads the body; refuse a body that is no event stream, with its text."""
        content_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type == "text/event-stream":
            return http.read
        # Some servers send a good stream under another name: the first bytes decide.
        http.set_timeout(self.options.stall_timeout or None)
        head = b""
        while len(head.strip()) < 6 and (got := http.read()):
            head += got
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith((b"data:", b"event:", b"id:", b"retry:", b":")):
            pieces = iter((head,))
            return lambda: next(pieces, b"") or http.read()
        self._heed()
        text = (head + http.read_text(MAX_ERROR_BYTES).encode()).decode("utf-8", "replace")
        self._heed()
        said = failure_text(text) or "an empty body"
        what = f"{http.status} with {content_type or 'no content type'} instead of an event stream"
        judged = classify_error(text).kind if start[:1] in (b"{", b"[") else "protocol"
        kind: ErrorKind = "protocol" if judged in ("unknown", "server") else judged
        raise RequestFailed(Failure(kind, False, f"{what}: {truncate_error_text(said, 1000)}; check base_url", http.status))

    # --- the end -----------------------------------------------------------------------------------------------------

    def fail(self, failure: Failure) -> ErrorEvent:
        """Return the last event of a failed call; an abort that came meanwhile counts more."""
        if self.signal is not None and self.signal.aborted:
            return self.assembly.abort()
        failure = make_final(failure, self.options.max_retry_delay_ms)
        text = mask(failure.text, self.secrets)
        logger.debug("%s %s failed (%s): %s", self.model.provider, self.model.id, failure.kind, text)
        return self.assembly.fail(text, kind=failure.kind, retryable=failure.retryable)

    def close(self) -> None:
        """Give the connection back, or close it if the answer was not read to its end."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def detach(self) -> None:
        """Stop listening to the abort signal."""
        remove, self._remove_callback = self._remove_callback, None
        if remove is not None:
            remove()

    def _heed(self) -> None:
        if self.signal is not None and self.signal.aborted:
            raise RequestAborted

    def _pause(self, seconds: float) -> None:
        if self.signal is None:
            time.sleep(seconds)
        elif self.signal.wait(seconds):
            raise RequestAborted


def _merge(base: Mapping[str, str], *more: Mapping[str, str | None] | None) -> dict[str, str]:
    """Put headers together whatever their case; later ones win, None takes one away."""
    merged = {name.lower(): value for name, value in base.items()}
    for headers in more:
        for name, value in (headers or {}).items():
            if value is None:
                merged.pop(name.lower(), None)
            else:
                merged[name.lower()] = value
    return merged


_agent: str | None = None


def _user_agent() -> str:
    global _agent
    if _agent is None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            _agent = f"agentcore/{version('agentcore-sync')}"
        except PackageNotFoundError:  # run from a folder, without being installed
            _agent = "agentcore"
    return _agent
