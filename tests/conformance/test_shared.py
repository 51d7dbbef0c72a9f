"""The functions that the wire formats share (`providers/shared.json`), against the recorded reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcore.codec import camel_case, decode, decode_tagged, encode
from agentcore.llm.failures import classify, classify_text, truncate_error_text
from agentcore.llm.google_generative_ai import stop_reason_of
from agentcore.llm.history import fit_history, plain_id, sanitize_surrogates, short_hash
from agentcore.llm.openai_responses import clamp_cache_key
from agentcore.llm.request import Context
from agentcore.llm.thinking import adjust_max_tokens, clamp_max_tokens, clamp_thinking_level, supported_thinking_levels
from agentcore.llm.usage import calculate_cost
from agentcore.messages import Usage
from agentcore.models import Model
from tests.conformance.cases import case_params, check, expand

RECORDED_ABORT = "No result provided"
ABORTED = "Operation aborted"


def apart(given: dict[str, Any], recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return recorded messages in which ids differ where those of the transcript do: the second of two has a hash."""
    calls = [
        block["id"]
        for message in given["messages"]
        if message["role"] == "assistant" and message.get("stopReason") not in ("error", "aborted")
        for block in message.get("content") or ()
        if block["type"] == "toolCall"
    ]
    blocks = [block for message in recorded if message["role"] == "assistant" for block in message["content"]]
    blocks = [block for block in blocks if block["type"] == "toolCall"]
    if len(calls) != len(blocks):
        return recorded
    owners: dict[str, str] = {}
    names: dict[str, str] = {}
    for block, original in zip(blocks, calls, strict=True):
        if owners.setdefault(block["id"], original) != original:
            suffix = "_" + short_hash(original)[:8]
            names[original] = block["id"][: 64 - len(suffix)] + suffix
    results = iter([message["toolCallId"] for message in given["messages"] if message["role"] == "toolResult"])
    made: list[dict[str, Any]] = []
    rest = list(calls)
    for message in recorded:
        if message["role"] == "assistant":
            content = [
                {**block, "id": names.get(rest.pop(0), block["id"])} if block["type"] == "toolCall" else block
                for block in message["content"]
            ]
            message = {**message, "content": content}
        elif message["role"] == "toolResult" and message["content"] != [{"type": "text", "text": RECORDED_ABORT}]:
            original = next(results)
            message = {**message, "toolCallId": names.get(original, message["toolCallId"])}
        made.append(message)
    return made


def paired(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return recorded messages as ours are: every call has exactly one result, and no result is without its call.

    - The results stand right behind their call's answer, in the order of the calls; a result without a call before it, or a second
      one, is left out.
    - A made-up result has one wording everywhere, and goes where a real one follows later.
    - Custom messages are none here: they are turned into user messages before a wire format sees them.
    """
    slots: list[list[dict[str, Any]]] = []
    made_up: dict[int, dict[str, Any]] = {}
    waiting: dict[str, int] = {}  # call id → the slot of its result
    for message in recorded:
        if message["role"] == "toolResult":
            is_made_up = message["isError"] and message["content"] == [{"type": "text", "text": RECORDED_ABORT}]
            slot = waiting.get(message["toolCallId"])
            if slot is None:
                continue
            if is_made_up:
                made_up[slot] = {**message, "content": [{"type": "text", "text": ABORTED}]}
            elif not slots[slot]:
                slots[slot].append(message)
        elif message["role"] != "custom":
            slots.append([message])
            for block in message["content"] if message["role"] == "assistant" else ():
                if block["type"] == "toolCall":
                    waiting[block["id"]] = len(slots)
                    slots.append([])
    return [message for index, slot in enumerate(slots) for message in slot or [made_up[index]] if message]


NOT_OURS = ("grammarJsonDelta", "splitDeferredTools", "copilotHeaders")
"""Left out: grammar and deferred tools and Copilot's headers, which this library does not have."""

OF_ITS_OWN = "normalizeProviderError"


def _model(raw: dict[str, Any]) -> Model:
    return decode(Model, {"id": "m", **raw})


def _user_blocks(message: Any) -> Any:
    """A string content is the same as one text block."""
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        return {**message, "content": [{"type": "text", "text": message["content"]}]}
    return message


def _transform(given: dict[str, Any]) -> Any:
    messages = [decode_tagged(raw) for raw in given["messages"] if raw["role"] != "custom"]
    before = [encode(message) for message in messages]
    normalize = plain_id if given.get("normalize") == "anthropic" else None
    fitted = fit_history(messages, _model(given["model"]), normalize)
    assert [encode(message) for message in messages] == before, "the transcript itself was changed"
    return [encode(message) for message in fitted]


def _ours(given: dict[str, Any]) -> Any:
    name = given["fn"]
    if name == "transformMessages":
        return _transform(given)
    if name == "shortHash":
        return short_hash(given["text"])
    if name == "sanitizeSurrogates":
        return sanitize_surrogates(given["text"])
    if name == "clampOpenAIPromptCacheKey":
        return clamp_cache_key(given["key"])
    if name == "calculateCost":
        return encode(calculate_cost(_model(given["model"]).cost, decode(Usage, given["usage"])))
    if name == "getSupportedThinkingLevels":
        return supported_thinking_levels(_model(given["model"]))
    if name == "clampThinkingLevel":
        return clamp_thinking_level(_model(given["model"]), given["level"])
    if name == "adjustMaxTokensForThinking":
        limit, budget = adjust_max_tokens(
            given.get("baseMaxTokens"), given["modelMaxTokens"], given["level"], given.get("customBudgets")
        )
        return {"maxTokens": limit, "thinkingBudget": budget}
    if name == "clampMaxTokensToContext":
        context = given["context"]
        messages = [decode_tagged(raw) for raw in context["messages"]]
        return clamp_max_tokens(_model(given["model"]), Context(context.get("systemPrompt", ""), messages), given["maxTokens"])
    if name == "truncateErrorText":
        return truncate_error_text(given["text"], given["maxChars"])
    assert name == "googleMapStopReasonString", f"no such function: {camel_case(name)}"
    reason = stop_reason_of(given["reason"])
    return "stop" if reason == "done" else reason


@pytest.mark.parametrize(
    "case", case_params("providers/shared.json", lambda case: case["input"]["fn"] not in (*NOT_OURS, OF_ITS_OWN))
)
def test_shared_functions_do_as_recorded(case: dict[str, Any]) -> None:
    """Fitting a transcript, hashes, costs, thinking levels and limits give what the reference gives."""
    expected = case["expected"]
    if case["input"]["fn"] == "transformMessages":
        expected = [_user_blocks(message) for message in paired(apart(expand(case["input"]), expected))]
    check(expected, _ours(expand(case["input"])))


@pytest.mark.parametrize("case", case_params("providers/shared.json", lambda case: case["input"]["fn"] == OF_ITS_OWN))
def test_an_error_says_what_the_provider_said(case: dict[str, Any]) -> None:
    """Where the reference shows a status and a body, ours has the status and the provider's own words, cut where it cuts them.

    The reference reads the error objects of its clients; ours come as a status and a body.
    """
    error = expand(case["input"]["error"])
    status = next((error[key] for key in ("statusCode", "status") if key in error), None) if isinstance(error, dict) else None
    if status is None:
        said = error["message"] if isinstance(error, dict) and "message" in error else json.dumps(error)
        assert (said.strip('"') in classify_text(said).text) or said == "null"
        return
    body = error.get("body", error.get("error"))
    text = classify(status, {}, body if isinstance(body, str) else json.dumps(body) if body else "").text
    assert text.startswith(str(status))
    if isinstance(body, dict) and "message" in body:
        assert body["message"] in text
    elif isinstance(body, str) and body.strip():
        assert truncate_error_text(body.strip()) in text
