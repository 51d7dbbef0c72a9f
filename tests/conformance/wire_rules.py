"""Where all wire formats differ from the recordings on purpose, by kind: what a case holds decides, never its name.

Two sorts, both used by `test_providers.py`:

- `RULES` say what of a recording is replaced, and by what: a value that follows from the case's input and the recording. All the
  rest of the case is compared as it was recorded.
- `PLAIN_FORMS` are for input that the reference stumbles over and we read (a last event without its blank line, a call without
  an index): they write the same input in the plain form, and the outcome must be exactly that of the plain form. What a plain
  form gives is recorded in cases of its own.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agentcore.llm.history import short_hash

BROKEN = {"retryable": True, "overflow": False}
FINAL = {"retryable": False, "overflow": False}
ERROR = {"type": "error", "reason": "error"}
ANSWER_KEYS = ("events", "partials", "partial_usage", "message", "error_message", "classified", "service_text")
COMPLETIONS, ANTHROPIC, RESPONSES, GOOGLE, PROXY = (
    "openai-completions",
    "anthropic-messages",
    "openai-responses",
    "google-generative-ai",
    "proxy",
)


@dataclass
class Case:
    """A case as the rules see it: its input written out, and what is expected so far, which they change."""

    api: str
    given: dict[str, Any]
    expected: dict[str, Any]
    text: str | None
    """The recorded error text."""
    reasons: list[str] = field(default_factory=list)
    """Why something was changed, for the output of a test that fails."""

    @property
    def answer(self) -> dict[str, Any]:
        """The response that the outcome comes from: the last one that the recorded exchange got."""
        count = self.expected.get("request_count") or len(self.expected.get("requests") or (0,)) or 1
        responses: list[dict[str, Any]] = self.given["responses"]
        return responses[min(count, len(responses)) - 1]

    @property
    def body(self) -> str:
        """The text of that response."""
        return text_of(self.answer)

    @property
    def bodies(self) -> Iterator[dict[str, Any]]:
        """The bodies of the requests that are expected."""
        return (request["body"] for request in self.expected.get("requests") or () if isinstance(request.get("body"), dict))

    @property
    def message(self) -> dict[str, Any]:
        """The final message that is expected."""
        return self.expected.get("message") or {}

    @property
    def is_failure(self) -> bool:
        """Whether a failed answer is expected."""
        return bool(self.expected.get("error_message"))

    def fail(self, *, classified: dict[str, bool] | None = None) -> None:
        """Expect the answer to fail where a good end was recorded: the last event is an error, the rest stays."""
        events = self.expected.get("events")
        if events is not None:
            if events and events[-1]["type"] == "done":
                events.pop()
            events.append(ERROR)
        self.expected["message"] = {**self.message, "stopReason": "error"}
        self.expected["error_message"] = True
        if classified is not None:
            self.expected["classified"] = classified

    def stop(self, reason: str) -> None:
        """Expect a good end with this stop reason."""
        for event in (self.expected.get("events") or [{}])[-1:]:
            if event.get("type") in ("done", "error"):
                event.update(type="done", reason=reason)
        self.message["stopReason"] = reason
        for key in ("error_message", "classified", "service_text"):
            self.expected.pop(key, None)


# --- reading what a case holds ---------------------------------------------------------------------------------------


def text_of(response: dict[str, Any]) -> str:
    """Return the body of a response as a text."""
    if "body_base64" in response:
        return base64.b64decode(response["body_base64"]).decode("utf-8", "replace")
    return str(response.get("body") or "")


def blocks(body: str) -> list[str]:
    """Return the events of a body as they stand."""
    return [block for block in re.sub(r"\r\n?", "\n", body.removeprefix("\ufeff")).split("\n\n") if block.strip()]


def data_of(block: str) -> str:
    """Return the data of an event."""
    lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
    return "\n".join(lines)


def values(body: str) -> list[Any]:
    """Return the JSON of the events of a body; what is none is left out."""
    found = []
    for block in blocks(body):
        try:
            found.append(json.loads(data_of(block) or block))
        except ValueError:
            continue
    return [value for value in found if isinstance(value, dict)]


def is_stream(response: dict[str, Any]) -> bool:
    """Whether a response is a good one and an event stream, to judge by its beginning."""
    if response.get("status", 200) != 200:
        return False
    kind = (response.get("headers") or {}).get("content-type", "text/event-stream")
    start = text_of(response).removeprefix("\ufeff").lstrip()
    return str(kind).startswith("text/event-stream") or start.startswith(("data:", "event:", "id:", "retry:", ":"))


def deep(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with a change made to each of its members, the innermost first."""
    if isinstance(value, dict):
        value = {key: deep(member, change) for key, member in value.items()}
    elif isinstance(value, list):
        value = [deep(member, change) for member in value]
    return change(value)


# --- requests --------------------------------------------------------------------------------------------------------


def one_wording(case: Case) -> bool:
    def say(value: Any) -> Any:
        return "Operation aborted" if value == "No result provided" else value

    before = {key: case.expected[key] for key in ("requests",) if key in case.expected}
    after = deep(before, say)
    case.expected.update(after)
    return bool(before != after)


def no_empty_tools(case: Case) -> bool:
    empty = [body for body in case.bodies if body.get("tools") == []]
    for body in empty:
        del body["tools"]
    return bool(empty)


def one_id_each(case: Case) -> bool:
    """Where two different ids of the transcript were made one, ours adds a hash of the id to the second."""
    originals = [
        block["id"]
        for message in (case.given.get("context") or {}).get("messages") or ()
        if message["role"] == "assistant" and message.get("stopReason") not in ("error", "aborted")
        for block in message.get("content") or ()
        if isinstance(block, dict) and block.get("type") == "toolCall"
    ]
    is_changed = False
    for body in case.bodies:
        calls: list[dict[str, Any]] = []
        results: list[tuple[dict[str, Any], str]] = []

        def find(value: Any, calls: Any = calls, results: Any = results) -> Any:
            if isinstance(value, dict):
                if value.get("type") in ("tool_use", "function") and "id" in value:
                    calls.append(value)
                results += [(value, key) for key in ("tool_use_id", "tool_call_id") if key in value]
            return value

        body.update(deep(body, find))
        if len(calls) != len(originals) or len(results) != len(originals):
            continue
        owners: dict[str, str] = {}
        for call, (result, key), original in zip(calls, results, originals, strict=True):
            if owners.setdefault(call["id"], original) != original and result[key] == call["id"]:
                suffix = "_" + short_hash(original)[:8]
                call["id"] = result[key] = call["id"][: 64 - len(suffix)] + suffix
                is_changed = True
    return is_changed


def no_room_to_think(case: Case) -> bool:
    is_changed = False
    for body in case.bodies:
        budget = (body.get("thinking") or {}).get("budget_tokens")
        if case.given.get("via") == "streamSimple" and budget is not None and not 1024 <= budget < body["max_tokens"]:
            body["thinking"], is_changed = {"type": "disabled"}, True
    return is_changed


def no_thinking(case: Case) -> bool:
    limit = (case.given.get("options") or {}).get("maxTokens")
    if case.given.get("via") != "streamSimple" or limit is None or case.given["model"].get("reasoning"):
        return False
    raised = [body for body in case.bodies if body.get("max_tokens", 0) > limit]
    for body in raised:
        body["max_tokens"] = limit
    return bool(raised)


# --- answers ---------------------------------------------------------------------------------------------------------


def good_answer_has_no_error(case: Case) -> bool:
    if case.message.get("stopReason") not in ("stop", "toolUse", "length") or not case.is_failure:
        return False
    for key in ("error_message", "classified", "service_text"):
        case.expected.pop(key, None)
    return True


def objects_only(case: Case) -> bool:
    def fix(value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") == "toolCall" and not isinstance(value.get("arguments", {}), dict):
            return {**value, "arguments": {}}
        return value

    before = {key: case.expected[key] for key in ("events", "partials", "message") if key in case.expected}
    after = deep(before, fix)
    case.expected.update(after)
    return bool(before != after)


def no_undefined(case: Case) -> bool:
    before = {key: case.expected[key] for key in ("events", "partials", "message") if key in case.expected}
    after = deep(before, lambda value: re.sub(r"\|undefined$", "", value) if isinstance(value, str) else value)
    case.expected.update(after)
    return bool(before != after)


def every_call_has_an_id(case: Case) -> bool:
    def name(value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") == "toolCall" and value.get("id") == "":
            return {**value, "id": f"<generated id for {value.get('name') or 'nothing'}>"}
        return value

    before = {key: case.expected[key] for key in ("events", "message") if key in case.expected}
    after = deep(before, name)
    case.expected.update(after)
    return bool(before != after)


def keeps_arguments(case: Case) -> bool:
    """What came with the start of a call, and was not followed by pieces, is what the call was recorded without."""
    whole: dict[Any, Any] = {}
    for value in values(case.body):
        if value.get("type") == "content_block_start" and (value.get("content_block") or {}).get("type") == "tool_use":
            whole[value.get("index")] = value["content_block"]
        elif value.get("type") == "content_block_delta":
            whole.pop(value.get("index"), None)
    inputs = {block["id"]: block["input"] for block in whole.values() if block.get("input")}

    def fill(value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") == "toolCall" and value.get("arguments") == {}:
            return {**value, "arguments": inputs.get(value["id"], {})}
        return value

    before = {key: case.expected[key] for key in ("events", "message") if key in case.expected}
    after = deep(before, fill)
    case.expected.update(after)
    return bool(before != after)


def calls_mean_tool_use(case: Case) -> bool:
    content = case.message.get("content") or ()
    if case.message.get("stopReason") != "stop" or not any(block and block.get("type") == "toolCall" for block in content):
        return False
    case.stop("toolUse")
    return True


def finish_reason_counts(case: Case) -> bool:
    """Gemini's calls do not make a good end of a bad one."""
    candidates = [one for value in values(case.body) for one in (value.get("candidates") or ())[:1] if isinstance(one, dict)]
    reason = next((one["finishReason"] for one in reversed(candidates) if one.get("finishReason")), None)
    is_blocked = any((value.get("promptFeedback") or {}).get("blockReason") for value in values(case.body))
    if is_blocked and not case.is_failure:
        case.fail(classified=FINAL)
    elif case.message.get("stopReason") == "toolUse" and reason == "MAX_TOKENS":
        case.stop("length")
    elif case.message.get("stopReason") == "toolUse" and reason not in ("STOP", None):
        case.fail(classified={**FINAL, "retryable": str(reason).startswith("MALFORMED")})
    elif case.is_failure and str(reason).startswith("MALFORMED"):
        case.expected["classified"] = BROKEN
    else:
        return False
    return True


def filter_is_a_refusal(case: Case) -> bool:
    last = [value for value in values(case.body) if value.get("type") in ("response.incomplete", "response.completed")][-1:]
    details = (last[0].get("response") or {}).get("incomplete_details") if last else None
    if case.message.get("stopReason") != "length" or (details or {}).get("reason") != "content_filter":
        return False
    case.fail(classified=FINAL)
    return True


def end_mark_is_an_end(case: Case) -> bool:
    found = values(case.body)
    has_reason = any((choice or {}).get("finish_reason") for value in found for choice in value.get("choices") or ())
    is_cut = bool(case.answer.get("cut")) or any(value.get("error") for value in found)
    marks = [data_of(block).strip() for block in blocks(case.body)]
    content = case.message.get("content")
    if not is_stream(case.answer) or not case.is_failure or has_reason or is_cut or "[DONE]" not in marks or not content:
        return False
    if case.message.get("stopReason") != "error":
        return False
    case.stop("toolUse" if any(block.get("type") == "toolCall" for block in content) else "stop")
    return True


def terminal_event_is_needed(case: Case) -> bool:
    """A stream that only stops is broken off; what was open in it stays open."""
    if case.is_failure or not is_stream(case.answer):
        return False
    events = case.expected.get("events")
    found = values(case.body)
    if case.api == ANTHROPIC:
        has_end = any(value.get("type") == "message_stop" for value in found)
    elif case.api == GOOGLE:
        feedback = [value.get("promptFeedback") for value in found]
        has_end = any((one or {}).get("finishReason") for value in found for one in value.get("candidates") or ())
        has_end = has_end or any((one or {}).get("blockReason") for one in feedback)
        if not has_end and events and len(events) > 1 and events[-2]["type"] in ("text_end", "thinking_end"):
            del events[-2]
            for key in ("partials", "partial_usage"):
                if key in case.expected:
                    del case.expected[key][-2]
    else:
        has_end = any(value.get("type") in ("done", "error") for value in found)
    if has_end:
        return False
    errors = [value["error"] for value in found if isinstance(value.get("error"), dict)]
    if case.message:
        case.fail(classified=like_its_status(errors[0]) if errors else BROKEN)
        if errors:
            case.expected["service_text"] = [error["message"] for error in errors if error.get("message")]
        return True
    if events is not None and not events:
        events.append({"type": "start"})
    case.expected["message"] = {"content": content_of(events or [])}
    case.fail(classified=BROKEN)
    return True


def content_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks that events tell of."""
    made: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, _, moment = event["type"].partition("_")
        if kind == "toolcall" and moment == "end":
            made[event["contentIndex"]] = event["toolCall"]
        elif kind in ("text", "thinking"):
            block = made.setdefault(event["contentIndex"], {"type": kind, kind: ""})
            block[kind] = event["content"] if moment == "end" else block[kind] + event.get("delta", "")
    return [block for _, block in sorted(made.items())]


def starts(case: Case) -> bool:
    events = case.expected.get("events")
    if not events or events[0]["type"] != "done":
        return False
    events.insert(0, {"type": "start"})
    for key in ("partials", "partial_usage"):
        if key in case.expected:
            case.expected[key].insert(0, [] if key == "partials" else {})
    return True


def no_holes(case: Case) -> bool:
    """Of the events, those before the gap; a failed answer with the blocks so far."""
    events = case.expected.get("events") or []
    count = 0
    for index, event in enumerate(events):
        if not event["type"].endswith("_start"):
            continue
        if event["contentIndex"] > count:
            del events[index:]
            content = [block for block in case.message.get("content") or () if block][:count]
            case.expected["message"] = {"stopReason": "error", "content": content}
            case.fail(classified=FINAL)
            return True
        count = max(count, event["contentIndex"] + 1)
    return False


def usage_adds_up(case: Case) -> bool:
    """No number is negative, and no more came from a cache than was read."""
    usage = case.message.get("usage")
    if not isinstance(usage, dict):
        return False
    prices = case.given["model"].get("cost") or {}
    if usage.get("input", 0) < 0:
        usage["input"] = 0
    elif case.api == COMPLETIONS:
        counted = [value["usage"] for value in values(case.body) if isinstance(value.get("usage"), dict)]
        read = counted[-1].get("prompt_tokens") if counted else None
        if not isinstance(read, int) or usage.get("cacheRead", 0) <= read or prices.get("tiers"):
            return False
        usage["cacheRead"] = read
        usage["totalTokens"] = usage["input"] + usage["output"] + read + usage["cacheWrite"]
        usage["cost"]["cacheRead"] = prices.get("cacheRead", 0) / 1_000_000 * read
    else:
        return False
    cost = usage["cost"]
    cost["input"] = prices.get("input", 0) / 1_000_000 * usage["input"]
    cost["total"] = cost["input"] + cost["output"] + cost["cacheRead"] + cost["cacheWrite"]
    return True


# --- failures --------------------------------------------------------------------------------------------------------

_STATUS_OF_WORD = {
    "server_error": 500,
    "api_error": 500,
    "internal_server_error": 500,
    "internal": 500,
    "unavailable": 503,
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
}


def status_of(error: Any) -> int | None:
    """Return the HTTP status that an error object inside a stream stands for."""
    if not isinstance(error, dict):
        return None
    for key in ("code", "status", "type"):
        word = error.get(key)
        if re.fullmatch(r"[45]\d\d", str(word)):
            return int(str(word))
        if str(word).lower() in _STATUS_OF_WORD:
            return _STATUS_OF_WORD[str(word).lower()]
    return None


def like_its_status(error: Any) -> dict[str, bool]:
    """Return how an answer with this HTTP status is judged."""
    status = status_of(error) or 0
    return {**FINAL, "retryable": status >= 500 or status in (408, 409, 429)}


def error_in_stream(case: Case) -> bool:
    if not case.is_failure or "classified" not in case.expected or not is_stream(case.answer):
        return False
    for value in values(case.body):
        response = value.get("response")
        error = value.get("error") or (response.get("error") if isinstance(response, dict) else None)
        if status_of(error) is not None and "quota" not in json.dumps(error) and "context_length" not in json.dumps(error):
            case.expected["classified"] = like_its_status(error)
            return True
    return False


def broken_stream(case: Case) -> bool:
    if not case.is_failure or "classified" not in case.expected or not is_stream(case.answer):
        return False
    if case.message.get("stopReason") == "aborted":
        return False
    if case.answer.get("cut"):
        case.expected["classified"] = BROKEN
        return True
    for block in blocks(case.body):
        data = data_of(block)
        if not data.strip() or (data.strip() == "[DONE]" and case.api != PROXY):
            continue
        if case.api in (COMPLETIONS, ANTHROPIC) and "event: error" in block:
            return False  # a server that says so in plain words
        try:
            json.loads(data, strict=False)
        except ValueError:
            if '"type":' in data and re.search(r"\\[^\"\\/bfnrtu]", data):
                continue  # a bad escape, which is mended
            case.expected["classified"] = BROKEN
            return True
        if isinstance(json.loads(data, strict=False), dict) and json.loads(data, strict=False).get("error"):
            return False
    return False


def no_guess_at_an_overflow(case: Case) -> bool:
    if not re.match(r"400 status code \(no body\)", case.text or "") or not case.is_failure:
        return False
    case.expected["classified"] = FINAL
    return True


def no_event_stream(case: Case) -> bool:
    if is_stream(case.answer) or case.answer.get("status", 200) != 200 or not case.body.strip():
        return False
    case.expected["message"] = {**case.message, "content": []}
    case.expected["events"] = []
    case.fail(classified=FINAL)
    found = re.findall(r'"message"\s*:\s*"((?:[^"\\]|\\.){1,200})"', case.body)
    case.expected["service_text"] = sorted(set(found))
    return True


def _number(text: Any) -> float:
    return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", str(text)) else 0.0


def long_wait(case: Case) -> bool:
    options = case.given.get("options") or {}
    headers = {name.lower(): value for name, value in (case.answer.get("headers") or {}).items()}
    limit = options.get("maxRetryDelayMs")
    limit = 60_000 if limit is None else limit
    asked = headers.get("retry-after-ms")
    wait = _number(asked) if asked is not None else _number(headers.get("retry-after")) * 1000
    is_forbidden = headers.get("x-should-retry") == "false"
    if not case.is_failure or "classified" not in case.expected or not (is_forbidden or (limit and wait > limit)):
        return False
    case.expected["classified"] = {**FINAL, "overflow": case.expected["classified"]["overflow"]}
    return True


def proxy_status(case: Case) -> bool:
    if not case.is_failure or case.answer.get("status", 200) < 500:
        return False
    case.expected["classified"] = BROKEN
    return True


ALL = (COMPLETIONS, ANTHROPIC, RESPONSES, GOOGLE, PROXY)
RULES: tuple[tuple[str, tuple[str, ...], Callable[[Case], bool]], ...] = (
    # requests
    ("a call without a result is answered in one wording everywhere", ALL, one_wording),
    ("an empty list of tools is refused by some servers, so it is never sent (C038)", ALL, no_empty_tools),
    ("two different call ids never become one (C035)", ALL, one_id_each),
    ("less room than the least budget of the API means no thinking", (ANTHROPIC,), no_room_to_think),
    ("a limit is not raised by a budget that is not sent", (ANTHROPIC,), no_thinking),
    # answers
    ("what is no event stream is an error with its text, before an answer begins (C013)", ALL, no_event_stream),
    ("a good answer has no error text", ALL, good_answer_has_no_error),
    ("arguments are an object: what is none is `{}`, and such a call is not run (C053)", ALL, objects_only),
    ("an id that is not there is left out", (RESPONSES,), no_undefined),
    ("a call without an id gets one", (COMPLETIONS,), every_call_has_an_id),
    ("arguments that came whole with the start are kept", (ANTHROPIC,), keeps_arguments),
    ("a reason to stop counts, also with calls; a blocked prompt is an error (C040)", (GOOGLE,), finish_reason_counts),
    ("an answer that a filter stopped is a refusal, not one that reached its limit", (RESPONSES,), filter_is_a_refusal),
    (
        "`[DONE]` is an end, also without a finish_reason: real servers leave out one or the other",
        (COMPLETIONS,),
        end_mark_is_an_end,
    ),
    (
        "a stream without its terminal event is an error, never a finished answer",
        (ANTHROPIC, GOOGLE, PROXY),
        terminal_event_is_needed,
    ),
    ("every stream that is a success begins with a start event", (PROXY,), starts),
    ("a block that leaves a gap is refused", (PROXY,), no_holes),
    ("an answer with calls wants them made, whatever the word for its end", ALL, calls_mean_tool_use),
    ("no more came from a cache than was read, and nothing is negative", (COMPLETIONS, GOOGLE), usage_adds_up),
    # how a failure is judged
    ("an error inside a stream is treated like the HTTP status that it stands for", ALL, error_in_stream),
    ("a torn or broken event is a broken stream, worth another try", ALL, broken_stream),
    ("an answer without a message is no sign of an overflow", ALL, no_guess_at_an_overflow),
    ("a wait that is too long, or a server's no, is retried by nobody", ALL, long_wait),
    ("a 5xx is a failure of the server", (PROXY,), proxy_status),
)


def apply_rules(case: Case) -> None:
    """Put our values in the place of recorded ones."""
    for reason, apis, rule in RULES:
        if case.api in apis and rule(case):
            case.reasons.append(reason)


# --- plain forms -----------------------------------------------------------------------------------------------------


def _ends(body: str) -> str:
    """Give a last event that is all there its blank line."""
    if not body.strip() or body.endswith(("\n\n", "\r\n\r\n", "\r\r")) or "\r" in body:
        return body
    last = data_of(blocks(body)[-1])
    try:
        is_whole = last.strip() == "[DONE]" or isinstance(json.loads(last), dict)
    except ValueError:
        return body
    return body.rstrip("\n") + "\n\n" if is_whole else body


def _one_blank(body: str) -> str:
    return re.sub(r"(?m)^data:[ \t]{2,}\[DONE\][ \t]*$", "data: [DONE]", body)


def _no_empty_events(body: str) -> str:
    found = body.split("\n\n")
    return "\n\n".join(
        block for block in found if not block or data_of(block) or not re.search(r"(?m)^(?:data:|event: error)", block)
    )


def _blank_after_colon(body: str) -> str:
    return re.sub(r"(?m)^data:(?! )", "data: ", body)


def _nothing_after(kinds: tuple[str, ...]) -> Callable[[str], str]:
    def cut(body: str) -> str:
        if "\r" in body:
            return body
        kept = []
        for block in body.split("\n\n"):
            kept.append(block)
            found = values(block)
            if found and found[0].get("type") in kinds:
                return "\n\n".join(kept) + "\n\n"
        return body

    return cut


def _named(body: str) -> str:
    """Give events without a name the one that their JSON has."""
    if "\r" in body:
        return body
    made = []
    for block in body.split("\n\n"):
        found = values(block)
        has_name = re.search(r"(?m)^event:", block)
        made.append(f"event: {found[0]['type']}\n{block}" if found and found[0].get("type") and not has_name else block)
    return "\n\n".join(made)


def _each_value(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    """Make a form out of a change to the JSON of the events, which says by something true that it changed it."""

    def form(body: str) -> str:
        if "\r" in body:
            return body
        made = []
        for block in body.split("\n\n"):
            found = values(block)
            if found and change(found[0]):
                lines = [line for line in block.split("\n") if not line.startswith("data:")]
                block = "\n".join([*lines, "data: " + json.dumps(found[0])])
            made.append(block)
        return "\n\n".join(made)

    return form


def _start_has_usage(value: dict[str, Any]) -> bool:
    message = value.get("message")
    if value.get("type") != "message_start" or not isinstance(message, dict) or message.get("usage"):
        return False
    message["usage"] = {"input_tokens": 0, "output_tokens": 0}
    return True


def _deltas(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in value.get("choices") or () if isinstance((choice or {}).get("delta"), dict)]


def _refusal_is_text(value: dict[str, Any]) -> bool:
    changed = [delta for delta in _deltas(value) if delta.get("refusal") and not delta.get("content")]
    for delta in changed:
        delta["content"] = delta.pop("refusal")
    return bool(changed)


def _details_are_thinking(value: dict[str, Any]) -> bool:
    is_changed = False
    for delta in _deltas(value):
        details = [one for one in delta.get("reasoning_details") or () if isinstance(one, dict)]
        text = "".join(one.get("text") or one.get("summary") or "" for one in details)
        if text and not any(delta.get(name) for name in ("reasoning_content", "reasoning", "reasoning_text")):
            delta["reasoning"], is_changed = text, True
    return is_changed


def _numbered_calls(body: str) -> str:
    """Number the pieces of calls: one without index and id goes on with the last, a new id behind a whole call is a new one."""
    last: list[Any] = [None]
    seen: dict[Any, tuple[str, str]] = {}  # the server's number → id and arguments so far
    numbers: dict[Any, int] = {}

    def number(value: dict[str, Any]) -> bool:
        is_changed = False
        for delta in _deltas(value):
            for piece in delta.get("tool_calls") or ():
                if not isinstance(piece, dict):
                    continue
                function = piece.get("function") or {}
                place, id, text = piece.get("index"), piece.get("id") or "", function.get("arguments") or ""
                if place is None:
                    if not id and not function.get("name") and last[0] is not None:
                        piece["id"], is_changed = last[0], True
                    last[0] = piece.get("id")
                    continue
                known, so_far = seen.get(place, ("", ""))
                if id and known and id != known and _is_whole(so_far):
                    numbers[place], so_far = 1000 + len(numbers), ""
                seen[place] = (id or known, so_far + text)
                if place in numbers:
                    piece["index"], is_changed = numbers[place], True
        return is_changed

    return _each_value(number)(body)


def _is_whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _finished_items_have_text(body: str) -> str:
    """Give the finished item of a message the text that was streamed, where it has none."""
    streamed: dict[Any, str] = {}

    def fill(value: dict[str, Any]) -> bool:
        place = value.get("output_index")
        if value.get("type") == "response.output_text.delta":
            streamed[place] = streamed.get(place, "") + value["delta"]
        item = value.get("item") or {}
        if value.get("type") != "response.output_item.done" or item.get("type") != "message" or not streamed.get(place):
            return False
        if any(part.get("text") or part.get("refusal") for part in item.get("content") or ()):
            return False
        item["content"] = [{"type": "output_text", "text": streamed[place], "annotations": []}]
        return True

    return _each_value(fill)(body)


BODY_FORMS: tuple[tuple[str, tuple[str, ...], Callable[[str], str]], ...] = (
    ("a last event that only lacks its line ends is whole", (COMPLETIONS, GOOGLE, PROXY), _ends),
    ("blanks around the end mark do not count", (COMPLETIONS,), _one_blank),
    ("an event without data is none, as the standard of server-sent events has it", (COMPLETIONS, ANTHROPIC), _no_empty_events),
    ("the blank after the colon may be missing, as the standard has it", (PROXY,), _blank_after_colon),
    ("message_stop is the end; what comes after it belongs to nobody", (ANTHROPIC,), _nothing_after(("message_stop",))),
    (
        "the terminal event is the end; what comes after it belongs to nobody",
        (RESPONSES,),
        _nothing_after(("response.completed", "response.incomplete", "response.failed")),
    ),
    ("what comes after the last event belongs to nobody", (PROXY,), _nothing_after(("done", "error"))),
    ("what an event is stands in its JSON; real vendors leave out its name", (ANTHROPIC,), _named),
    ("a start without usage counts zero", (ANTHROPIC,), _each_value(_start_has_usage)),
    ("a refusal is shown as text", (COMPLETIONS,), _each_value(_refusal_is_text)),
    ("the text of reasoning details is thinking, where no other field has it", (COMPLETIONS,), _each_value(_details_are_thinking)),
    ("a piece of a call belongs where it says, else to the last one (C022)", (COMPLETIONS,), _numbered_calls),
    ("what was streamed stays where the finished item is silent", (RESPONSES,), _finished_items_have_text),
)


def _plain_context(api: str, given: dict[str, Any]) -> tuple[str, list[Any]] | None:
    messages = (given.get("context") or {}).get("messages") or []
    made = copy.deepcopy(messages)
    for message in made:
        if message.get("content") is None:
            message["content"] = []
        if api == RESPONSES and message["role"] == "assistant" and isinstance(message["content"], list):
            message["content"] = [block for block in message["content"] if not _has_foreign_signature(block)]
    if made != messages:
        return "what an answer holds that cannot be read is left out, and the rest is sent", made
    paired = pair(messages)
    return None if paired == messages else ("every call has one result, right behind it, and no result is without its call", paired)


def _has_foreign_signature(block: dict[str, Any]) -> bool:
    signature = block.get("thinkingSignature") if block.get("type") == "thinking" else None
    if not signature:
        return False
    try:
        json.loads(signature)
    except ValueError:
        return True
    return False


def pair(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without failed answers, each result behind its call, in the order of the calls, and no others.

    Calls without a result are left without one.
    """
    paired: list[Any] = []
    waiting: dict[str, list[Any]] = {}
    for message in messages:
        if message["role"] == "toolResult":
            place = waiting.pop(message["toolCallId"], None)
            if place is not None:
                place.append(message)
        elif message["role"] != "assistant" or message.get("stopReason") not in ("error", "aborted"):
            paired.append([message])
            for block in message.get("content") or () if message["role"] == "assistant" else ():
                if block.get("type") == "toolCall":
                    waiting[block["id"]] = []
                    paired.append(waiting[block["id"]])
    return [message for slot in paired for message in slot]


def plain_form(api: str, given: dict[str, Any], recorded: dict[str, Any]) -> tuple[list[str], dict[str, Any], bool] | None:
    """Return the reasons, the input in its plain form, and whether its requests are ours too; None where it is plain already."""
    context = _plain_context(api, given)
    if context is not None and (recorded.get("requests") == [] or context[0].startswith("every call")):
        failed = [message for message in given["context"]["messages"] if message.get("stopReason") in ("error", "aborted")]
        is_only_failed = context[1] == [message for message in given["context"]["messages"] if message not in failed]
        if not is_only_failed:
            return [context[0]], {**given, "context": {**given["context"], "messages": context[1]}}, True
    responses = copy.deepcopy(given["responses"])
    reasons = []
    for response in responses:
        body = response.get("body")
        if not is_stream(response) or not isinstance(body, str) or response.get("cut"):
            continue
        if api == ANTHROPIC and _is_cut_in_a_line_end(body, response):
            response.pop("split_at", None)
            response.pop("chunk_size", None)
            reasons.append("a CRLF is one line end, also where the network tore it apart")
        for reason, apis, form in BODY_FORMS:
            if api in apis and response["body"] != (plain := form(response["body"])):
                response["body"] = plain
                reasons.append(reason)
    if api == GOOGLE:
        while len(responses) > 1 and responses[0].get("status", 200) in (408, 409, 429, 500, 502, 503, 504):
            if len(given["responses"]) - len(responses) >= (given.get("options") or {}).get("maxRetries", 0):
                break
            del responses[0]
            reasons.append("requests are retried in all wire formats")
    return (reasons, {**given, "responses": responses}, False) if reasons else None


def _is_cut_in_a_line_end(body: str, response: dict[str, Any]) -> bool:
    raw = body.encode("utf-8", "surrogatepass")
    cuts = response.get("split_at") or range(response.get("chunk_size") or len(raw) + 1, len(raw), response.get("chunk_size") or 1)
    return any(raw[cut - 1 : cut + 1] == b"\r\n" for cut in cuts)
