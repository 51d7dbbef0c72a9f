"""Conversations that move from provider to provider: whatever they hold, each request is valid for the API that gets it."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from agentcore.llm.anthropic_messages import AnthropicMessages
from agentcore.llm.google_generative_ai import GoogleGenerativeAI
from agentcore.llm.history import write_body
from agentcore.llm.openai_completions import ChatCompletions
from agentcore.llm.openai_responses import OpenAIResponses
from agentcore.llm.request import Context, StreamOptions
from agentcore.llm.wire import Call, WireFormat
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.models import Model
from agentcore.tools.agent_tool import AgentTool

FORMATS: dict[str, WireFormat] = {
    "openai-completions": ChatCompletions(),
    "openai-responses": OpenAIResponses(),
    "anthropic-messages": AnthropicMessages(),
    "google-generative-ai": GoogleGenerativeAI(),
}


def model(id: str, provider: str, api: str, base_url: str, *, thinks: bool = False, sees: bool = False) -> Model:
    return Model(id, api=api, provider=provider, base_url=base_url, reasoning=thinks, input=["text", "image"] if sees else ["text"])


MODELS = [
    model("gpt-5", "openai", "openai-responses", "https://api.openai.com/v1", thinks=True, sees=True),
    model("gpt-5-mini", "openai", "openai-responses", "https://api.openai.com/v1", thinks=True, sees=True),
    model("gpt-4o", "openai", "openai-completions", "https://api.openai.com/v1", sees=True),
    model("thinker", "other", "openai-responses", "https://other.example/v1", thinks=True),
    model("claude-sonnet-4-5", "anthropic", "anthropic-messages", "https://api.anthropic.com", thinks=True, sees=True),
    model("gemini-2.5-pro", "google", "google-generative-ai", "https://google.example/v1beta", thinks=True),
    model("gemini-3-pro", "google", "google-generative-ai", "https://google.example/v1beta", thinks=True, sees=True),
    model("mistral-small", "mistral", "openai-completions", "https://api.mistral.ai/v1"),
    model("deepseek-reasoner", "deepseek", "openai-completions", "https://api.deepseek.com", thinks=True),
    model("llama3", "ollama", "openai-completions", "http://localhost:11434/v1"),
]
TEXTS = ["hello", "", "   ", "\n", "é ☃ \U0001f600", "half \ud83d pair", "\udf78", "a\x00b", "</thinking>", "x" * 50]
TOOLS = [
    AgentTool(name, name, f"Tool {name}.", {"type": "object", "properties": {"path": {"type": "string"}}}, lambda *given: "")
    for name in ("read", "ls")
]


# --- conversations ---------------------------------------------------------------------------------------------------


class Writer:
    """Writes conversations as they really come about: each answer by one of the models, with ids as its provider makes them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made = 0

    def call_id(self, source: Model) -> str:
        pick, self.made = self.random, self.made + 1
        if source.api == "openai-responses":
            return f"call_{self.made:024d}|fc_{pick.randrange(16 ** pick.choice([8, 50])):x}" + pick.choice(["", "_"])
        if source.api == "anthropic-messages":
            return f"toolu_{self.made:024d}"
        if source.api == "google-generative-ai":
            return pick.choice([f"call_{self.made:x}", f"read-{self.made}.0"])
        if source.provider == "mistral":
            return f"m{self.made:08d}"
        if source.provider == "ollama":  # compatible servers: numbered from 0 in each answer, dots, colons, long ones
            return pick.choice(
                ["call_0", "call_1", f"functions.read:{self.made}", "é" * 70 + str(self.made), "f" * 80 + str(self.made)]
            )
        return f"call_{self.made}"

    def content(self, *, images: bool = True) -> list[TextContent | ImageContent]:
        blocks: list[TextContent | ImageContent] = []
        for _ in range(self.random.randrange(3)):
            with_image = images and self.random.random() < 0.3
            blocks.append(ImageContent("aGk=", "image/png") if with_image else TextContent(self.random.choice(TEXTS)))
        return blocks

    def block(self, source: Model) -> TextContent | ThinkingContent | ToolCall:
        pick, self.made = self.random, self.made + 1
        kind = pick.random()
        is_responses = source.api == "openai-responses"
        if kind < 0.35:
            signature = json.dumps({"v": 1, "id": f"msg_{self.made}" + "0" * pick.choice([0, 70])}) if is_responses else None
            return TextContent(pick.choice(TEXTS), signature)
        if kind < 0.6:
            item = {"type": "reasoning", "id": f"rs_{self.made}", "summary": [], "encrypted_content": "zz"}
            signatures = {
                "openai-responses": [json.dumps(item), None],
                "openai-completions": [None, "reasoning_content", "reasoning"],
                "anthropic-messages": ["c2ln", None, ""],
                "google-generative-ai": ["c2ln", None],
            }
            signature = pick.choice(signatures[source.api])
            is_redacted = source.api == "anthropic-messages" and bool(signature) and pick.random() < 0.2
            return ThinkingContent(pick.choice(TEXTS), signature, is_redacted or None)
        arguments = pick.choice([{}, {"path": pick.choice(TEXTS)}, {"n": float("nan")}])
        return ToolCall(self.call_id(source), pick.choice(["read", "ls"]), arguments, thought_signature=pick.choice([None, "c2ln"]))

    def answer(self) -> AssistantMessage:
        source = self.random.choice(MODELS)
        blocks = [self.block(source) for _ in range(self.random.randrange(5))]
        calls = [block.id for block in blocks if isinstance(block, ToolCall)]
        blocks = [block for block in blocks if not isinstance(block, ToolCall) or calls.count(block.id) == 1]
        stop: Any = self.random.choice(["done", "done", "length", "error", "aborted"])
        if stop == "done" and any(isinstance(block, ToolCall) for block in blocks):
            stop = "toolUse"
        return AssistantMessage(blocks, api=source.api, provider=source.provider, model=source.id, stop_reason=stop)

    def conversation(self) -> list[Message]:
        messages: list[Message] = []
        for _ in range(self.random.randrange(1, 7)):
            messages.append(UserMessage([TextContent("q"), *self.content()]))
            for _ in range(self.random.randrange(3)):
                answer = self.answer()
                messages.append(answer)
                calls = answer.tool_calls
                self.random.shuffle(calls)
                for call in calls:
                    if self.random.random() < 0.75:  # else an orphan
                        is_error = self.random.random() < 0.2
                        messages.append(ToolResultMessage(call.id, call.name, self.content(), is_error=is_error))
                if not calls:
                    break
        return messages


def request_body(target: Model, messages: list[Message], tools: Any) -> Any:
    context = Context("Be kind.", messages, tools)
    request = FORMATS[target.api].build(Call(target, context, StreamOptions(reasoning="low"), "k"))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(write_body(request.body).decode("utf-8"), parse_constant=refuse)


# --- what each API insists on ----------------------------------------------------------------------------------------


def check_texts(value: Any) -> None:
    if isinstance(value, str):
        assert not re.search("[\ud800-\udfff]", value)
    elif isinstance(value, (dict, list)):
        for member in [*value, *value.values()] if isinstance(value, dict) else value:
            check_texts(member)


def check_anthropic(body: Any, target: Model) -> None:
    messages = body["messages"]
    assert messages[0]["role"] == "user"
    used: list[str] = []
    waiting: list[str] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert [block["type"] for block in blocks[: len(results)]] == ["tool_result"] * len(results)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert message["role"] == ("assistant" if waiting else message["role"])
        used += waiting
        for block in blocks:
            kind = block["type"]
            inner = block["content"] if kind == "tool_result" and isinstance(block["content"], list) else []
            assert all(part["text"].strip() for part in (block, *inner) if part["type"] == "text")
            assert kind != "thinking" or block["signature"]
            assert kind != "redacted_thinking" or block["data"]
            assert kind != "tool_use" or re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"])
    assert not waiting
    assert len(set(used)) == len(used)


def check_chat(body: Any, target: Model) -> None:
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            assert message["content"] and isinstance(message["content"], str)
            continue
        assert not waiting
        if message["role"] == "assistant":
            calls = message.get("tool_calls")
            assert calls or (calls is None and message["content"])
            waiting = [call["id"] for call in calls or ()]
            assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls or ())
        else:
            assert message["role"] in ("user", "system", "developer")
            assert message["content"] not in (None, [])
        assert len(set(waiting)) == len(waiting)
        rule = {"mistral": r"[a-zA-Z0-9]{9}", "openai": r".{1,40}"}.get(target.provider, r".+")
        assert all(re.fullmatch(rule, id) for id in waiting)
    assert not waiting
    assert "image" in target.input or "image_url" not in json.dumps(body)


def check_responses(body: Any, target: Model) -> None:
    waiting: list[str] = []
    item_ids: list[str] = []
    for item in body["input"]:
        kind = item.get("type")
        if kind == "function_call":
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"])
            assert isinstance(json.loads(item["arguments"]), dict)
            assert item["call_id"] not in waiting
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            waiting.remove(item["call_id"])
            assert item["output"]
        elif kind not in ("message", "reasoning"):
            assert not waiting and item["content"] and item["role"] in ("user", "system", "developer")
        if "id" in item:
            assert len(item["id"]) <= 64 and item["id"].startswith(
                {"function_call": "fc_", "message": "msg_"}.get(str(kind), "rs_")
            )
            item_ids.append(item["id"])
        assert kind != "reasoning" or item["encrypted_content"]
    assert not waiting
    assert len(set(item_ids)) == len(item_ids)


def check_google(body: Any, target: Model) -> None:
    waiting: list[str] = []
    for turn in body["contents"]:
        assert turn["parts"]
        results = [part["functionResponse"]["name"] for part in turn["parts"] if "functionResponse" in part]
        assert sorted(results) == sorted(waiting)
        waiting = [part["functionCall"]["name"] for part in turn["parts"] if "functionCall" in part]
        assert turn["role"] == ("model" if waiting else "user" if results else turn["role"])
    assert not waiting


CHECKS: dict[str, Callable[[Any, Model], None]] = {
    "openai-completions": check_chat,
    "openai-responses": check_responses,
    "anthropic-messages": check_anthropic,
    "google-generative-ai": check_google,
}


def check_conversation(seed: int) -> None:
    writer = Writer(seed)
    messages = writer.conversation()
    before = repr(messages)
    growing: list[Message] = []
    for message in messages:
        growing.append(message)
        if message.role != "user" and writer.random.random() < 0.7:
            continue
        target = writer.random.choice(MODELS)
        tools = writer.random.choice([None, [], TOOLS])
        body = request_body(target, growing, tools)
        check_texts(body)
        CHECKS[target.api](body, target)
        assert ("tools" in body) is bool(tools)
        # What earlier requests wrote of the same messages is taken over; written anew, it is the same.
        assert request_body(target, copy.deepcopy(growing), tools) == body
    assert repr(messages) == before


def test_each_request_is_valid_for_its_api() -> None:
    """C032, C034, C035, C037, C038, C094: thinking, calls, images, aborted answers and orphans, over ten models of four APIs.

    Roles and results stand where the API wants them, ids are of its alphabet, no thinking goes unsigned, no list is empty, every
    text can be written. The transcript stays as it is, and what was encoded before is what would be encoded now.
    """
    for seed in range(150):
        check_conversation(seed)


@pytest.mark.slow
def test_each_request_of_many_conversations_is_valid_for_its_api() -> None:
    """The same for thousands of conversations."""
    for seed in range(1000, 4000):
        check_conversation(seed)


def test_calls_that_share_an_id_get_one_each_where_the_api_wants_it() -> None:
    """C035, C074: a server that numbers the calls of each answer from 0, then Anthropic, which takes no id twice."""
    messages: list[Message] = []
    for number in range(3):
        call = ToolCall("call_0", "read", {"path": str(number)})
        answer = AssistantMessage([call], api="openai-completions", provider="ollama", model="llama3", stop_reason="toolUse")
        messages += [UserMessage("q"), answer, ToolResultMessage("call_0", "read", [TextContent(str(number))])]
    body = request_body(MODELS[4], messages, TOOLS)
    calls = [block["id"] for turn in body["messages"] for block in turn["content"] if "input" in block]
    results = [
        (block["tool_use_id"], block["content"]) for turn in body["messages"] for block in turn["content"] if "is_error" in block
    ]
    assert calls == ["call_0", "call_0_2", "call_0_3"]
    assert results == [("call_0", "0"), ("call_0_2", "1"), ("call_0_3", "2")]


def test_a_result_of_an_answer_that_is_left_out_goes_to_no_other_call() -> None:
    """C034, C074: an aborted answer goes with its results, also where an earlier call of the same id is still open."""
    kept = AssistantMessage([ToolCall("call_0", "ls", {})], api="x", provider="x", model="x", stop_reason="toolUse")
    aborted = AssistantMessage([ToolCall("call_0", "read", {})], api="x", provider="x", model="x", stop_reason="aborted")
    messages = [UserMessage("q"), kept, aborted, ToolResultMessage("call_0", "read", [TextContent("of the aborted one")])]
    body = request_body(MODELS[5], messages, TOOLS)
    assert body["contents"][-1]["parts"] == [{"functionResponse": {"name": "ls", "response": {"error": "Operation aborted"}}}]
