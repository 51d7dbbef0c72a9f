"""How servers bend the wire formats, and how much models think: tables of data, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.llm.compat import Compat, compat_of
from agentcore.llm.request import Context, StreamOptions
from agentcore.llm.thinking import (
    adjust_max_tokens,
    answer_limit,
    clamp_thinking_level,
    estimate_request_tokens,
    requested_level,
    supported_thinking_levels,
)
from agentcore.messages import AssistantMessage, ImageContent, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from agentcore.models import Model


def test_nothing_is_known_of_an_unknown_server() -> None:
    """A server that is not in the table is taken for one like the API's own vendor."""
    assert compat_of(Model("m", provider="custom", base_url="https://llm.example/v1")) == Compat()


@pytest.mark.parametrize(
    ("provider", "base_url", "expected"),
    [
        ("ollama", "", {"supports_store": False, "supports_developer_role": False, "max_tokens_field": "max_tokens"}),
        ("custom", "http://localhost:11434/v1", {"supports_developer_role": False, "max_tokens_field": "max_tokens"}),
        ("vllm", "", {"supports_store": False}),
        ("llama.cpp", "", {"supports_developer_role": False}),
        ("custom", "http://127.0.0.1:1234/v1", {"supports_store": False}),
        ("openrouter", "", {"thinking_format": "openrouter", "supports_developer_role": False}),
        ("custom", "https://openrouter.ai/api/v1", {"thinking_format": "openrouter"}),
        ("groq", "https://api.groq.com/openai/v1", {"supports_reasoning_effort": True}),
        ("deepseek", "https://api.deepseek.com/v1", {"thinking_format": "deepseek", "max_tokens_field": "max_tokens"}),
        ("custom", "https://api.mistral.ai/v1", {"supports_store": False, "short_call_ids": True}),
        ("xai", "https://api.x.ai/v1", {"supports_reasoning_effort": False, "supports_store": False}),
        ("custom", "https://me.openai.azure.com/openai/v1", {"key_header": "api-key", "supports_item_ids": True}),
        ("openai", "https://api.openai.com/v1", {"supports_item_ids": True, "key_header": "authorization"}),
    ],
)
def test_a_known_server_has_its_switches(provider: str, base_url: str, expected: dict[str, Any]) -> None:
    """By the name of the provider or by its address."""
    compat = compat_of(Model("m", provider=provider, base_url=base_url))
    assert {name: getattr(compat, name) for name in expected} == expected


def test_switches_may_depend_on_the_model() -> None:
    """Claude behind OpenRouter gets cache marks as Anthropic has them; other models there do not."""
    assert compat_of(Model("anthropic/claude-x", provider="openrouter")).cache_control_format == "anthropic"
    assert compat_of(Model("meta/llama", provider="openrouter")).cache_control_format is None


def test_a_model_has_the_last_word() -> None:
    """`Model.compat` overrides the table, in the reference's spelling or in ours; keys of others are passed over."""
    model = Model("m", provider="ollama", compat={"supportsStore": True, "max_tokens_field": "n_predict", "somethingElse": 1})
    compat = compat_of(model)
    assert (compat.supports_store, compat.max_tokens_field, compat.supports_developer_role) == (True, "n_predict", False)


def test_a_level_becomes_the_nearest_one_that_a_model_has() -> None:
    """The next higher level, else the next lower one; a model that cannot think has only `off`."""
    model = Model("m", reasoning=True, thinking_level_map={"off": None, "minimal": None, "max": "max"})
    assert supported_thinking_levels(model) == ["low", "medium", "high", "max"]
    asked = ["off", "minimal", "low", "xhigh", "max"]
    assert [clamp_thinking_level(model, level) for level in asked] == ["low", "low", "low", "max", "max"]
    assert clamp_thinking_level(Model("m"), "high") == "off"


def test_no_thinking_is_asked_for_where_none_is_wanted() -> None:
    """None and `off` ask for none, and neither does a level at a model that cannot think."""
    thinking, plain = Model("m", reasoning=True), Model("m")
    assert [requested_level(thinking, StreamOptions(reasoning=level)) for level in (None, "off", "low")] == [None, None, "low"]
    assert requested_level(plain, StreamOptions(reasoning="high")) is None


def test_a_budget_comes_on_top_of_the_answer() -> None:
    """The caller's limit is for the answer; both together stay within the model's limit, and the answer keeps some of it."""
    assert adjust_max_tokens(1000, 64000, "medium") == (9192, 8192)
    assert adjust_max_tokens(None, 8000, "high") == (8000, 6976)
    assert adjust_max_tokens(1000, 64000, "low", {"low": 5000}) == (6000, 5000)


def test_the_limit_fits_into_the_window() -> None:
    """What the context leaves of the window bounds the answer; an unknown window or limit bounds nothing."""
    context = Context("", [UserMessage("x" * 8000)])
    small = Model("m", context_window=10_000, max_tokens=8_000)
    assert answer_limit(small, context, StreamOptions()) == 3904
    assert answer_limit(small, context, StreamOptions(max_tokens=50)) == 50
    assert answer_limit(Model("m"), context, StreamOptions()) is None
    assert answer_limit(Model("m", max_tokens=7), context, StreamOptions()) == 7


def test_a_request_is_estimated_from_the_last_count() -> None:
    """What the last answer was counted to hold, and a guess for what came after it; an edited history is guessed as a whole."""
    image = ImageContent("QUJD", "image/png")
    counted = AssistantMessage([TextContent("x")], usage=Usage(total_tokens=500), timestamp=20)
    before = UserMessage("q", 10)
    after = ToolResultMessage("c", "t", [TextContent("y" * 40), image], timestamp=30)
    assert estimate_request_tokens(Context("system", [before, counted, after])) == 500 + 10 + 1200
    edited = UserMessage("edited!!", 25)
    assert estimate_request_tokens(Context("abcd", [edited, counted])) == 1 + 2 + 1
    call = AssistantMessage([ToolCall("c", "read", {"path": "a"})], stop_reason="toolUse")
    assert estimate_request_tokens(Context("", [call])) == 4
