"""The wire format `google-generative-ai`: Gemini's `streamGenerateContent`, as server-sent events.

Each event is a whole response with the parts that are new. Text goes on in the same block until a part of another kind comes; a
call comes whole, mostly without an id, so it gets one. The answer ends with the body, after a `finishReason`, which may stand on
every event. A refusal is a reason too, or no candidate at all and a `blockReason`.

The key travels in a header, never in the address. Signatures of thoughts go back with the part that they came with, to the same
model only.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcore.errors import ErrorKind
from agentcore.events import AssistantMessageEvent
from agentcore.llm.assembly import Assembly
from agentcore.llm.failures import classify_error
from agentcore.llm.history import encode_history, is_blank, plain_id, to_json
from agentcore.llm.http import RequestFailed
from agentcore.llm.request import Context, StreamOptions, ToolSpec, widen_options
from agentcore.llm.sse import SseEvent
from agentcore.llm.thinking import answer_limit, requested_level
from agentcore.llm.usage import count_usage, token_count
from agentcore.llm.wire import Answer, Call, WireFormat, WireRequest, join_url, run_wire_format
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
)
from agentcore.models import Model

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_REFUSALS = frozenset(
    (
        "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION", "MODEL_ARMOR",
    )
)  # fmt: skip
_FAILURES = frozenset(
    (
        "OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "FINISH_REASON_UNSPECIFIED", "NO_IMAGE",
        "IMAGE_OTHER", "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE",
    )
)  # fmt: skip
_ANOTHER_TRY_HELPS = frozenset(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"))

_BUDGETS: tuple[tuple[str, dict[str, int]], ...] = (
    ("2.5-pro", {"minimal": 128, "low": 2048, "medium": 8192, "high": 32768}),
    ("2.5-flash-lite", {"minimal": 512, "low": 2048, "medium": 8192, "high": 24576}),
    ("2.5-flash", {"minimal": 128, "low": 2048, "medium": 8192, "high": 24576}),
)
"""Tokens of thinking by level, for the models that count them; the first name that is part of a model's id counts."""

_LEVELS: tuple[tuple[re.Pattern[str], str, dict[str, str]], ...] = (
    (
        re.compile(r"gemini-3(?:\.\d+)?-pro"),
        "LOW",
        {"minimal": "LOW", "low": "LOW", "medium": "HIGH", "high": "HIGH"},
    ),
    (
        re.compile(r"gemini-3(?:\.\d+)?-flash|gemini-flash-(?:lite-)?latest"),
        "MINIMAL",
        {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"},
    ),
    (
        re.compile(r"gemma-?4"),
        "MINIMAL",
        {"minimal": "MINIMAL", "low": "MINIMAL", "medium": "HIGH", "high": "HIGH"},
    ),
)
"""For the models that think by level: what stands for "off", and the service's word for each level."""


@dataclass
class GoogleOptions(StreamOptions):
    """The options of this wire format as the API has them; plain `StreamOptions` are turned into these.

    Args:
        thinking: `{"enabled": bool, "budgetTokens": int, "level": str}`; None leaves it to the model.
    """

    thinking: Mapping[str, Any] | None = None


def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask a model over Gemini's API."""
    return run_wire_format(GoogleGenerativeAI(), model, context, options)


class GoogleGenerativeAI(WireFormat):
    """Builds requests and reads answers of Gemini's API."""

    api = "google-generative-ai"
    terminal = "finishReason"
    takes_key_of_headers = False  # this service has one header for keys, which the key given fills

    # --- the request -------------------------------------------------------------------------------------------------

    def build(self, call: Call) -> WireRequest:
        model, context = call.model, call.context
        options = _own_options(model, context, call.options)
        sends_ids = _sends_call_ids(model)
        body: dict[str, Any] = {
            "contents": encode_history(
                context.messages,
                model,
                lambda messages, start: _encode(messages, model),
                tag=self.api,
                normalize_id=plain_id if sends_ids else None,
            )
        }
        if context.system_prompt:
            body["systemInstruction"] = {"role": "user", "parts": [{"text": context.system_prompt}]}
        if context.tools:
            body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in context.tools]}]
            if options.tool_choice is not None:
                body["toolConfig"] = {"functionCallingConfig": _tool_choice(options.tool_choice)}
        config: dict[str, Any] = {}
        if options.temperature is not None:
            config["temperature"] = options.temperature
        if options.max_tokens is not None:
            config["maxOutputTokens"] = options.max_tokens
        if options.stop:
            config["stopSequences"] = list(options.stop)
        if options.thinking is not None and model.reasoning:
            config["thinkingConfig"] = _thinking_config(model, options.thinking)
        body["generationConfig"] = config
        headers = {"x-goog-api-key": call.key} if call.key else {}
        return WireRequest(_url(model), body, headers)

    # --- the answer --------------------------------------------------------------------------------------------------

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        assembly, model, message = answer.assembly, answer.call.model, answer.message
        current = -1  # the index of the open block
        is_thought = False
        reason: str | None = None
        blocked: str | None = None
        said = ""  # the service's own words about the end
        for event in events:
            data = answer.parse(event)
            if isinstance(data, list):
                data = data[0] if data else None
            if not isinstance(data, dict):
                continue
            if data.get("error"):
                raise RequestFailed(classify_error(data))
            if message.response_id is None and data.get("responseId"):
                message.response_id = data["responseId"]
            usage = data.get("usageMetadata")
            for part in _parts(data):
                text = part.get("text")
                if text is not None:
                    thinks = part.get("thought") is True
                    if current < 0 or thinks is not is_thought:
                        if current >= 0:
                            yield assembly.end(current)
                        opened = assembly.open_thinking() if thinks else assembly.open_text()
                        current, is_thought = opened.content_index, thinks
                        yield opened
                    signature = part.get("thoughtSignature")
                    block: Any = message.content[current]
                    if thinks:
                        if signature:
                            block.thinking_signature = signature
                        yield assembly.add_thinking(current, text)
                    else:
                        if signature:
                            block.text_signature = signature
                        yield assembly.add_text(current, text)
                elif isinstance(part.get("functionCall"), dict) and part["functionCall"].get("name"):
                    if current >= 0:
                        yield assembly.end(current)
                        current = -1
                    yield from _call(assembly, part)
            candidate = (data.get("candidates") or [None])[0]
            if isinstance(candidate, dict) and candidate.get("finishReason"):
                reason = candidate["finishReason"]
                said = candidate.get("finishMessage") or said
                if stop_reason_of(reason) == "error" and reason not in _REFUSALS and reason not in _FAILURES:
                    yield answer.fail(f"the answer ended for a reason that is not known: {reason}", kind="protocol")
                    return
            feedback = data.get("promptFeedback")
            if isinstance(feedback, dict) and feedback.get("blockReason"):
                blocked = feedback["blockReason"]
                said = feedback.get("blockReasonMessage") or said
            if isinstance(usage, dict):
                message.usage = _count(model, usage)
        if reason is None and blocked is None:
            return  # cut off, or aborted: the frame says so
        if current >= 0:
            yield assembly.end(current)
        yield _finish(answer, reason, blocked, said)


# --- reading ---------------------------------------------------------------------------------------------------------


def _parts(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    candidates = data.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    content = first.get("content") if isinstance(first, dict) else None
    parts = content.get("parts") if isinstance(content, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            yield part


def _call(assembly: Assembly, part: Mapping[str, Any]) -> Iterator[AssistantMessageEvent]:
    call = part["functionCall"]
    id = call.get("id")
    if not id or any(earlier.id == id for earlier in assembly.message.tool_calls):
        id = f"call_{uuid.uuid4().hex[:24]}"
    opened = assembly.open_call(id, call["name"], part.get("thoughtSignature"))
    index = opened.content_index
    delta = assembly.add_arguments(index, to_json(call.get("args") or {}))
    yield opened
    yield delta
    yield assembly.end(index)


def _finish(answer: Answer, reason: str | None, blocked: str | None, said: str) -> AssistantMessageEvent:
    tail = f": {said}" if said else ""
    if blocked is not None:
        return answer.fail(f"the service blocked the prompt ({blocked}){tail}", kind="refusal")
    assert reason is not None
    stop = stop_reason_of(reason)
    if stop == "error":
        kind: ErrorKind = "refusal" if reason in _REFUSALS else "protocol"
        text = f"the service stopped the answer ({reason}){tail}"
        return answer.fail(text, kind=kind, retryable=reason in _ANOTHER_TRY_HELPS)
    if stop == "done" and answer.message.tool_calls:
        stop = "toolUse"
    return answer.finish(stop)


def stop_reason_of(reason: str) -> StopReason:
    """Return what a `finishReason` means."""
    if reason == "STOP":
        return "done"
    return "length" if reason == "MAX_TOKENS" else "error"


def _count(model: Model, usage: Mapping[str, Any]) -> Any:
    cached = token_count(usage, "cachedContentTokenCount")
    thoughts = token_count(usage, "thoughtsTokenCount")
    return count_usage(
        model,
        input=token_count(usage, "promptTokenCount") - cached,
        output=token_count(usage, "candidatesTokenCount") + thoughts,
        cache_read=cached,
        total=token_count(usage, "totalTokenCount"),
        reasoning=thoughts,
    )


# --- options ---------------------------------------------------------------------------------------------------------


def _own_options(model: Model, context: Context, options: StreamOptions) -> GoogleOptions:
    if isinstance(options, GoogleOptions):
        return options
    own = widen_options(options, GoogleOptions)
    own.max_tokens = answer_limit(model, context, options)
    level = requested_level(model, options)
    if level is None:
        own.thinking = {"enabled": False}
        return own
    for pattern, _, words in _LEVELS:
        if pattern.search(model.id):
            own.thinking = {"enabled": True, "level": words.get(level, words["high"])}
            return own
    budget = (options.thinking_budgets or {}).get(level)
    if budget is None:
        budget = next((budgets.get(level) for name, budgets in _BUDGETS if name in model.id), -1)  # -1: as the model likes
    own.thinking = {"enabled": True} if budget is None else {"enabled": True, "budgetTokens": budget}
    return own


def _thinking_config(model: Model, thinking: Mapping[str, Any]) -> dict[str, Any]:
    if not thinking.get("enabled"):
        for pattern, off, _ in _LEVELS:
            if pattern.search(model.id):
                return {"thinkingLevel": off}  # these models cannot be kept from thinking
        return {"thinkingBudget": 0}
    config: dict[str, Any] = {"includeThoughts": True}
    if thinking.get("level") is not None:
        config["thinkingLevel"] = thinking["level"]
    elif thinking.get("budgetTokens") is not None:
        config["thinkingBudget"] = thinking["budgetTokens"]
    return config


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, str):
        return choice
    word = {"auto": "AUTO", "none": "NONE", "any": "ANY", "required": "ANY"}.get(choice)
    return {"mode": word} if word is not None else {"mode": "ANY", "allowedFunctionNames": [choice]}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


def _url(model: Model) -> str:
    name = model.id if model.id.startswith(("models/", "tunedModels/")) else f"models/{model.id}"
    return join_url(model, f"/{name}:streamGenerateContent", query="alt=sse", vendor="google", vendor_url=DEFAULT_BASE_URL)


def _sends_call_ids(model: Model) -> bool:
    return model.id.startswith(("claude-", "gpt-oss-"))  # models of others that are served over this API


# --- messages --------------------------------------------------------------------------------------------------------

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def _encode(messages: Sequence[Message], model: Model) -> list[str]:
    """Write messages; results that follow each other share one turn."""
    turns: list[dict[str, Any]] = []
    open_results: list[dict[str, Any]] | None = None
    for message in messages:
        if isinstance(message, ToolResultMessage):
            part, images = _result(message, model)
            if open_results is None:
                open_results = []
                turns.append({"role": "user", "parts": open_results})
            open_results.append(part)
            if images:
                turns.append({"role": "user", "parts": [{"text": "Tool result image:"}, *images]})
                open_results = None
            continue
        open_results = None
        if isinstance(message, AssistantMessage):
            parts = _assistant_parts(message, model)
            if parts:
                turns.append({"role": "model", "parts": parts})
        elif message.content:
            turns.append({"role": "user", "parts": [_part(block) for block in message.content]})
    return [to_json(turn) for turn in turns]


def _part(block: TextContent | ImageContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"text": block.text}
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _assistant_parts(message: AssistantMessage, model: Model) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in message.content:
        part: dict[str, Any]
        if isinstance(block, TextContent):
            if is_blank(block.text):
                continue
            part, signature = {"text": block.text}, block.text_signature
        elif isinstance(block, ThinkingContent):
            if is_blank(block.thinking):
                continue
            part, signature = {"text": block.thinking, "thought": True}, block.thinking_signature
        else:
            part, signature = {"functionCall": _function_call(block, model)}, block.thought_signature
        if signature and len(signature) % 4 == 0 and _BASE64.fullmatch(signature):
            part["thoughtSignature"] = signature
        parts.append(part)
    return parts


def _function_call(block: ToolCall, model: Model) -> dict[str, Any]:
    call = {"name": block.name, "args": block.arguments or {}}
    return {"id": block.id, **call} if _sends_call_ids(model) else call


def _result(message: ToolResultMessage, model: Model) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the part with a result, and the images that go into a turn of their own."""
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    images = [_part(block) for block in message.content if isinstance(block, ImageContent)]
    answer: dict[str, Any] = {
        "name": message.tool_name,
        "response": {"error" if message.is_error else "output": text or ("(see attached image)" if images else "")},
    }
    if images and model.id.startswith("gemini-3"):
        answer["parts"], images = images, []
    if _sends_call_ids(model):
        answer["id"] = message.tool_call_id
    return {"functionResponse": answer}, images
