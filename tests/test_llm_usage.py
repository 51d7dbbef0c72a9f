"""Tokens are counted, and money is reckoned, the same way for every provider."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.llm import Context, StreamOptions, stream
from agentcore.llm.usage import calculate_cost, count_usage, token_count
from agentcore.messages import Usage, UserMessage
from agentcore.models import Model, ModelCost
from agentcore.testing import SseServer

PRICES = ModelCost(input=2.0, output=8.0, cache_read=0.5, cache_write=2.5)

# What each API says of 1,000 tokens read, 900 of them from a cache, and 120 written, 100 of them thoughts.
STREAMS = {
    "openai-completions": (
        'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,'
        '"completion_tokens":120,"total_tokens":1120,"prompt_tokens_details":{"cached_tokens":900},'
        '"completion_tokens_details":{"reasoning_tokens":100}}}\n\ndata: [DONE]\n\n'
    ),
    "openai-responses": (
        'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":{"input_tokens":1000,'
        '"output_tokens":120,"total_tokens":1120,"input_tokens_details":{"cached_tokens":900},'
        '"output_tokens_details":{"reasoning_tokens":100}}}}\n\n'
    ),
    "anthropic-messages": (
        'data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":100,"output_tokens":1,'
        '"cache_read_input_tokens":900}}}\n\n'
        'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":120,'
        '"output_tokens_details":{"thinking_tokens":100}}}\n\ndata: {"type":"message_stop"}\n\n'
    ),
    "google-generative-ai": (
        'data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000,'
        '"cachedContentTokenCount":900,"candidatesTokenCount":20,"thoughtsTokenCount":100,"totalTokenCount":1120}}\n\n'
    ),
}


@pytest.mark.parametrize("api", STREAMS)
def test_cached_input_and_reasoning_are_counted_once(api: str) -> None:
    """C044, C046: input is without what was cached, output includes the reasoning, and the cost follows from those numbers."""
    with SseServer(STREAMS[api].encode()) as server:
        model = server.model(api, cost=PRICES)
        *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions(api_key="k"))
    usage = last.message.usage  # type: ignore[union-attr]
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning, usage.total_tokens) == (100, 900, 120, 100, 1120)
    assert usage.cost.total == pytest.approx((100 * 2 + 900 * 0.5 + 120 * 8) / 1e6)


def test_prices_rise_with_the_tier_that_was_reached() -> None:
    """The highest threshold below what was read counts, in whatever order the tiers stand."""
    tiers: list[dict[str, Any]] = [
        {"input_tokens_above": 500, "input": 10, "output": 30, "cache_read": 1, "cache_write": 10},
        {"inputTokensAbove": 200, "input": 6, "output": 22.5, "cacheRead": 0.6, "cacheWrite": 7.5},
    ]
    prices = ModelCost(3, 15, 0.3, 3.75, tiers=tiers)
    per_million = [calculate_cost(prices, Usage(input=read)).input / read * 1e6 for read in (200, 201, 501)]
    assert per_million == pytest.approx([3, 6, 10])
    assert calculate_cost(prices, Usage(input=100, cache_read=101)).input == pytest.approx(600e-6)


def test_an_hour_in_the_cache_costs_twice_the_input() -> None:
    """Of what was written to the cache, the part that is kept for an hour has its own price."""
    assert calculate_cost(ModelCost(3, 15, 0.3, 3.75), Usage(cache_write=1000, cache_write_1h=400)).cache_write == pytest.approx(
        0.00465
    )


def test_nothing_is_counted_below_zero() -> None:
    """A provider that reports more cached than read does not make the input negative."""
    usage = count_usage(Model("m"), input=-30, output=5, cache_read=40)
    assert (usage.input, usage.total_tokens) == (0, 45)


@pytest.mark.parametrize("raw", [None, {}, {"a": None}, {"a": "7"}, {"a": True}, {"a": float("nan")}, {"a": {"b": None}}, []])
def test_what_is_no_number_counts_zero(raw: Any) -> None:
    """Odd usage objects of odd servers never break an answer."""
    assert token_count(raw, "a", "b") == token_count(raw, "a") == 0
