"""Requests and answers of the wire formats are as recorded, but for listed differences.

A case starts a server on the loopback, asks a model through `agentcore.llm.stream`, reads the stream to its end and compares what
was sent and what came back. Where we differ on purpose, `wire_rules.py` says so by kind. Beside each file of cases stands
`differences_<api>.py` with

    DIFFERENCES: dict[str, Difference]           what is no rule, by case name; places are those of the result, see `Outcome`
    adapt(given, model, options) -> Context|None what only this API has: turns a case's `options` into ours (optional)
    normalize_body(body) -> body                 applied to recorded and own bodies alike (optional)
    is_left_out(case) -> bool                    further cases for special services (optional)

Error texts are compared by the rule for ports that word their own: there is one, it holds the service's own message where the
recorded one does, and it is classified (`classified.retryable`, `classified.overflow`) like the recorded one.
"""

from __future__ import annotations

import base64
import copy
import importlib
import json
import re
import socket
import threading
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.codec import decode, decode_tagged, encode
from agentcore.events import DoneEvent, ErrorEvent, RetryEvent
from agentcore.llm import Context, StreamOptions, stream
from agentcore.llm.failures import classify_text
from agentcore.models import Model
from agentcore.testing import Answer, SseServer
from tests.conformance import wire_rules
from tests.conformance.cases import HERE, case_params, check, expand, put_tokens, with_difference

APIS = {
    "openai-completions": "providers/openai_completions.json",
    "anthropic-messages": "providers/anthropic_messages.json",
    "openai-responses": "providers/openai_responses.json",
    "google-generative-ai": "providers/google_generative_ai.json",
    "proxy": "proxy.json",
}
# Headers that belong to an HTTP library or to the recorded SDKs, on both sides.
NOT_COUNTED = re.compile(
    r"host|connection|content-length|accept|accept-encoding|transfer-encoding|anthropic-dangerous-direct-browser-access"
    r"|x-stainless-.*|x-goog-api-client"
)
DEFAULT_MESSAGES = [{"role": "user", "content": "hi", "timestamp": 1}]


class Tool:
    """A tool as a wire format sees it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.name, self.description, self.parameters = raw["name"], raw["description"], raw["parameters"]


def extras(api: str) -> Any:
    """Return the module with the differences of an API."""
    return importlib.import_module(f"tests.conformance.differences_{api.replace('-', '_')}")


def is_special(case: dict[str, Any]) -> bool:
    """Whether a case is about a service that the library does not have, told by what it uses."""
    given = case["input"]
    context = given.get("context") or {}
    compat = (given.get("model") or {}).get("compat") or {}
    return (
        "oauth" in case["name"].lower()
        or (given.get("model") or {}).get("provider") == "github-copilot"
        or any(key in compat for key in ("supportsOpenAIGrammarTools", "supportsGrammarTools", "deferredToolsMode"))
        or any(tool.get("constrainedSampling") for tool in context.get("tools") or ())
        or any(message.get("addedToolNames") for message in context.get("messages") or ())
    )


def all_params() -> list[Any]:
    """Return the cases of all APIs that have a module of differences."""
    params: list[Any] = []
    for api, file in APIS.items():
        try:
            module = extras(api)
        except ModuleNotFoundError:
            continue
        left_out = getattr(module, "is_left_out", lambda case: False)
        for param in case_params(file, lambda case, left_out=left_out: not is_special(case) and not left_out(case)):  # type: ignore[misc]
            params.append(pytest.param(api, *param.values, id=f"{api}: {param.id}"))
    return params


@pytest.mark.parametrize(("api", "case"), all_params())
def test_a_wire_format_behaves_as_recorded(api: str, case: dict[str, Any]) -> None:
    """Requests, events and the final message of a case are the recorded ones."""
    module = extras(api)
    given = expand(case["input"])
    outcome = Outcome(api, given, module)
    outcome.play()
    expected, reasons = our_expectation(case, given, outcome)
    for reason in reasons:
        print("we differ here:", reason)
    expected = with_difference(expected, module.DIFFERENCES.get(case["name"]))
    check(expected, outcome.result(expected))


def our_expectation(case: dict[str, Any], given: dict[str, Any], outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """Return the recording with our values where a rule has others, and the reasons."""
    recorded = outcome.expectation(case)
    ruled = wire_rules.Case(outcome.api, given, copy.deepcopy(recorded), outcome.recorded_text)
    wire_rules.apply_rules(ruled)
    plain = wire_rules.plain_form(outcome.api, given, recorded)
    if plain is None:
        return ruled.expected, ruled.reasons
    reasons, plain_input, has_own_requests = plain
    other = Outcome(outcome.api, plain_input, outcome.module)
    other.play()
    expected = dict(ruled.expected)
    expected.update(other.whole_result(recorded, given, has_own_requests=has_own_requests))
    if "request_count" in expected:
        expected["request_count"] = other.request_count + len(given["responses"]) - len(plain_input["responses"])
    return expected, [*ruled.reasons, *reasons]


@pytest.mark.parametrize("api", APIS)
def test_the_listed_differences_are_cases(api: str) -> None:
    """A list of differences names nothing that is not there."""
    cases = json.loads((HERE / "functions" / APIS[api]).read_text("utf-8"))
    assert set(extras(api).DIFFERENCES) <= {case["name"] for case in cases}


def test_every_rule_is_needed() -> None:
    """A rule that no recorded case calls for any more is noticed."""
    seen: set[str] = set()
    for api, file in APIS.items():
        for case in json.loads((HERE / "functions" / file).read_text("utf-8")):
            given = expand(case["input"])
            outcome = Outcome(api, given, extras(api))
            ruled = wire_rules.Case(api, given, outcome.expectation(case), outcome.recorded_text)
            wire_rules.apply_rules(ruled)
            plain = wire_rules.plain_form(api, given, case.get("expected", {}))
            seen.update(ruled.reasons, plain[0] if plain else ())
    unused = {reason for reason, _, _ in (*wire_rules.RULES, *wire_rules.BODY_FORMS)} - seen
    assert not unused


class Outcome:
    """One exchange, and what is compared of it.

    - `requests`: method, path, headers, body; `request_count`
    - `events`, `partials`, `partial_usage`, `message`, `on_response`: as recorded
    - `error_message`: whether there is one; `service_text`: whether it holds the service's message
    - `classified`: `retryable`, `overflow` of a failed answer
    """

    def __init__(self, api: str, given: dict[str, Any], module: Any) -> None:
        self.api = api
        self.given = given
        self.module = module
        self.events: list[Any] = []
        self.recorded_events: list[dict[str, Any]] = []
        self.partials: list[Any] = []
        self.partial_usage: list[Any] = []
        self.seen_response: dict[str, Any] | None = None
        self.tokens: dict[str, str] = {}
        self.recorded_text: str | None = None

    # --- playing -----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        with SseServer(*map(to_answer, self.given["responses"]), repeat=True) as server:
            self.server = server
            url = refused_url() if self.given.get("refused") else server.url
            raw = put_tokens({"model": self.given["model"], "options": self.given.get("options") or {}}, {"<SERVER>": url})
            self.tokens = {url: "<SERVER>"}
            self.raw_options = raw["options"]
            if self.raw_options.get("apiKey"):
                self.tokens[self.raw_options["apiKey"]] = "<API_KEY>"
            if self.raw_options.get("authToken"):
                self.tokens[self.raw_options["authToken"]] = "<AUTH_TOKEN>"
            model: Model = decode(Model, raw["model"])
            context = self.context()
            controller = AbortController()
            options = self.options(controller, raw["options"])
            adapt = getattr(self.module, "adapt", None)
            if adapt is not None:
                adapt({**self.given, **raw, "server": url}, model, options)
            with aborting(controller, self.given.get("abort")) as note:
                for event in stream(model, context, options):
                    self.record(event)
                    note(event.type)
            server.close()

    def context(self) -> Context:
        raw = self.given.get("context") or {"messages": DEFAULT_MESSAGES}
        tools = raw.get("tools")
        return Context(
            raw.get("systemPrompt") or "",
            [to_message(message) for message in raw.get("messages") or []],
            None if tools is None else [Tool(tool) for tool in tools],
        )

    def options(self, controller: AbortController, raw: dict[str, Any]) -> StreamOptions:
        options = StreamOptions(
            signal=controller.signal,
            api_key=raw.get("apiKey"),
            reasoning=raw.get("reasoning"),
            thinking_budgets=raw.get("thinkingBudgets"),
            temperature=raw.get("temperature"),
            max_tokens=raw.get("maxTokens"),
            session_id=raw.get("sessionId"),
            cache_retention=raw.get("cacheRetention"),
            metadata=raw.get("metadata"),
            headers=raw.get("headers"),
            tool_choice=raw.get("toolChoice"),
            max_retries=raw.get("maxRetries") or 0,
            max_retry_delay_ms=raw.get("maxRetryDelayMs"),
            stall_timeout=20,
        )
        if raw.get("timeoutMs") is not None:
            options.timeout = raw["timeoutMs"] / 1000
        hook = self.given.get("on_payload")
        if hook is not None:
            options.on_payload = lambda payload: {**payload, **hook["set"]} if "set" in hook else hook.get("replace")
        name = self.given.get("record_on_response")
        if name is not None:
            options.on_response = lambda response: self.see(response, name)
        return options

    def see(self, response: Any, name: str) -> None:
        self.seen_response = {"status": response.status, "header": response.headers.get(name.lower())}

    def record(self, event: Any) -> None:
        if isinstance(event, RetryEvent):
            return
        self.events.append(event)
        raw: dict[str, Any] = {"type": event.type}
        for name, key in (("content_index", "contentIndex"), ("delta", "delta"), ("content", "content"), ("tool_call", "toolCall")):
            if hasattr(event, name):
                raw[key] = encode(getattr(event, name))
        partial = getattr(event, "partial", None)
        if isinstance(event, (DoneEvent, ErrorEvent)):
            raw["reason"] = "stop" if event.reason == "done" else event.reason
            partial = event.message
        assert partial is not None
        self.recorded_events.append(json.loads(json.dumps(raw)))
        self.partials.append(json.loads(json.dumps(encode(partial.content))))
        self.partial_usage.append(json.loads(json.dumps(encode(partial.usage))))

    # --- comparing ---------------------------------------------------------------------------------------------------

    def expectation(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return what is expected, in the form of `result`."""
        error = case.get("error")
        if error is not None:
            assert error.get("thrown_at_call"), "an error of a provider case is thrown at the call"
            self.recorded_text = error["message"]
            return self.failed({"requests": [], "message": {"stopReason": "error"}}, error["message"])
        expected = json.loads(json.dumps(case["expected"]))
        if "requests" in expected:
            for request in expected["requests"]:
                request["headers"] = counted(request["headers"])
                request["body"] = self.normalize(request.get("body"))
        else:
            expected.setdefault("request_count", 1)
        for key in ("no_terminal_event",):
            expected.pop(key, None)
        message = expected.get("message")
        text = message.pop("errorMessage", None) if isinstance(message, dict) else None
        self.recorded_text = text
        return self.failed(expected, text, "text" in case.get("tags", ()))

    def failed(self, expected: dict[str, Any], text: str | None, is_library_text: bool = False) -> dict[str, Any]:
        """Add what is expected of the error text: that there is one, what it holds, how it is classified."""
        if text is None:
            return expected
        expected["error_message"] = True
        if (expected.get("message") or {}).get("stopReason") == "aborted":
            return expected
        judged = classify_text(text)
        expected["classified"] = {"retryable": judged.retryable, "overflow": judged.kind == "overflow"}
        if not is_library_text:
            expected["service_text"] = [words for words in self.service_texts() if words in text]
        return expected

    def service_texts(self) -> list[str]:
        found: list[str] = []
        for response in self.given["responses"]:
            body = response.get("body")
            if isinstance(body, str):
                found += re.findall(r'"message"\s*:\s*"((?:[^"\\]|\\.){1,200})"', body)
        return sorted(set(found))

    def result(self, expected: dict[str, Any]) -> dict[str, Any]:
        """Return what happened, as far as the expectation has it."""
        ours: dict[str, Any] = {}
        message = self.events[-1].message
        self.name_made_up_ids(expected)
        if "requests" in expected:
            ours["requests"] = [self.request(request, index, expected) for index, request in enumerate(self.server.requests)]
        if "request_count" in expected:
            ours["request_count"] = len(self.server.requests)
        for key, value in (
            ("events", self.recorded_events),
            ("partials", self.partials),
            ("partial_usage", self.partial_usage),
            ("on_response", self.seen_response),
        ):
            if key in expected:
                ours[key] = value
        if "message" in expected:
            encoded = encode(message)
            encoded.pop("errorMessage", None)
            wanted = expected["message"]
            ours["message"] = encoded if wanted is None or "role" in wanted else {key: encoded.get(key) for key in wanted}
        if "error_message" in expected:
            ours["error_message"] = bool(message.error_message)
        if "classified" in expected:
            ours["classified"] = {"retryable": bool(message.error_retryable), "overflow": message.error_kind == "overflow"}
        if "service_text" in expected:
            ours["service_text"] = [words for words in expected["service_text"] if words in (message.error_message or "")]
        tokenized: dict[str, Any] = put_tokens(ours, self.tokens)
        return tokenized

    @property
    def request_count(self) -> int:
        """How many requests came."""
        return len(self.server.requests)

    def whole_result(self, recorded: dict[str, Any], given: dict[str, Any], *, has_own_requests: bool) -> dict[str, Any]:
        """Return what another form of a case's input came to, as far as that form decides it, to be expected of the case itself."""
        wanted: dict[str, Any] = {key: [] for key in wire_rules.ANSWER_KEYS if key in recorded}
        wanted.update({"message": None} if "message" in recorded else {}, error_message=True, classified={})
        if has_own_requests:
            wanted["requests"] = [{"headers": {}}]
        ours = self.result(wanted)
        for block in self.events[-1].message.content:
            if re.fullmatch(r"call_[0-9a-f]{24}", getattr(block, "id", "")):
                ours = put_tokens(ours, {block.id: f"<generated id for {block.name or 'nothing'}>"})
        if isinstance(ours.get("message"), dict):
            ours["message"]["timestamp"] = "<time-ms>"
            if any("reasoning_details" in str(response.get("body")) for response in given["responses"]):
                for block in ours["message"]["content"]:
                    block.pop("thinkingSignature", None)
        return ours

    def request(self, request: Any, index: int, expected: dict[str, Any]) -> dict[str, Any]:
        wanted = expected["requests"][index] if index < len(expected["requests"]) else {"headers": {}}
        headers = counted(request.headers)
        if "user-agent" not in wanted["headers"]:
            headers.pop("user-agent", None)
        ours = {"method": request.method, "path": request.path, "headers": headers}
        if "body" in wanted or request.body:
            ours["body"] = self.normalize(request.json)
        return ours

    def normalize(self, body: Any) -> Any:
        normalize = getattr(self.module, "normalize_body", None)
        return body if normalize is None else normalize(body)

    def name_made_up_ids(self, expected: dict[str, Any]) -> None:
        """Give the ids that were made up the names that the recording has for them; each must be one of its own."""
        recorded = (expected.get("message") or {}).get("content") or []
        seen: set[str] = set()
        for block, other in zip(recorded, self.events[-1].message.content, strict=False):
            if str(block.get("id", "")).startswith("<generated id for "):
                assert other.id and other.id not in seen, "a made-up id must be unique"
                seen.add(other.id)
                self.tokens[other.id] = block["id"]


def counted(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers that are compared."""
    return {name: value for name, value in headers.items() if not NOT_COUNTED.fullmatch(name)}


def to_message(raw: dict[str, Any]) -> Any:
    """Make a message; a content of null is one without blocks."""
    return decode_tagged({**raw, "content": raw.get("content") if raw.get("content") is not None else []})


def to_answer(raw: dict[str, Any]) -> Answer:
    """Make a scripted answer of a case's response."""
    body = base64.b64decode(raw["body_base64"]) if "body_base64" in raw else (raw.get("body") or "")
    cuts = raw.get("chunk_size") or raw.get("split_at")
    return Answer(
        body,
        status=raw.get("status", 200),
        reason=raw.get("reason"),
        headers=raw.get("headers") or {},
        chunk_size=raw.get("chunk_size"),
        split_at=raw.get("split_at"),
        pause=0.001 if cuts else 0.0,
        cut=bool(raw.get("cut")),
        hold_open=bool(raw.get("hold_open")),
        never=bool(raw.get("never")),
    )


def refused_url() -> str:
    """Return an address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


class aborting:
    """Aborts as a case says; entered, it gives a function that is told the type of each event."""

    def __init__(self, controller: AbortController, rule: dict[str, Any] | None) -> None:
        self.controller = controller
        self.rule = rule or {}
        self.timers: list[threading.Timer] = []
        self.seen = 0

    def __enter__(self) -> Any:
        if self.rule.get("before"):
            self.controller.abort()
        if self.rule.get("after_ms") is not None:
            self.later(self.rule["after_ms"] / 1000)
        return self.note

    def note(self, type: str) -> None:
        after = self.rule.get("after")
        if after is not None and type == after["event"]:
            self.seen += 1
            if self.seen == after.get("count", 1):
                self.later(0.005)

    def later(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self.controller.abort)
        self.timers.append(timer)
        timer.start()

    def __exit__(self, *exc_info: object) -> None:
        for timer in self.timers:
            timer.cancel()
            timer.join(5)
