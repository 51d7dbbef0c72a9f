"""Tokens and money: one definition for all providers.

`input` is what was read anew, `cache_read` and `cache_write` what came from and went to a cache: the three never overlap, so
their sum is all that was read. `output` is all that was written, the reasoning included; `reasoning` says how much of it
that was. A wire format turns its provider's numbers into these with `count_usage`.
"""

from __future__ import annotations

from typing import Any

from agentcore.messages import Cost, Usage
from agentcore.models import Model, ModelCost

LONG_CACHE_WRITE_FACTOR = 2.0
"""What a token written to a cache for an hour costs, in prices of plain input."""


def calculate_cost(prices: ModelCost, usage: Usage) -> Cost:
    """Return what a usage costs, in US dollars.

    The tier with the highest threshold below what was read (input, cache reads and cache writes) counts. Cache writes that are
    kept for an hour (`usage.cache_write_1h`, a part of `usage.cache_write`) cost twice the plain input.
    """
    rates = _rates(prices, usage.input + usage.cache_read + usage.cache_write)
    long_write = min(usage.cache_write_1h or 0, usage.cache_write)
    short_write = usage.cache_write - long_write
    cost = Cost(
        input=rates.input / 1_000_000 * usage.input,
        output=rates.output / 1_000_000 * usage.output,
        cache_read=rates.cache_read / 1_000_000 * usage.cache_read,
        cache_write=(rates.cache_write * short_write + rates.input * LONG_CACHE_WRITE_FACTOR * long_write) / 1_000_000,
    )
    cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write
    return cost


def _rates(prices: ModelCost, read: int) -> ModelCost:
    if not prices.tiers:
        return prices
    best: dict[str, Any] | None = None
    for tier in prices.tiers:
        threshold = _of(tier, "input_tokens_above", "inputTokensAbove")
        if read > threshold and (best is None or threshold > _of(best, "input_tokens_above", "inputTokensAbove")):
            best = tier
    if best is None:
        return prices
    return ModelCost(
        input=_of(best, "input", "input", prices.input),
        output=_of(best, "output", "output", prices.output),
        cache_read=_of(best, "cache_read", "cacheRead", prices.cache_read),
        cache_write=_of(best, "cache_write", "cacheWrite", prices.cache_write),
    )


def _of(tier: dict[str, Any], name: str, key: str, default: float = 0.0) -> float:
    value = tier.get(name, tier.get(key, default))
    return float(value)


def count_usage(
    model: Model,
    *,
    input: int,
    output: int,
    cache_read: int = 0,
    cache_write: int = 0,
    total: int | None = None,
    reasoning: int | None = None,
    cache_write_1h: int | None = None,
    factor: float = 1.0,
) -> Usage:
    """Make the usage of one answer, with its cost.

    Args:
        model: Its prices are used.
        input: Tokens read that are in neither of the cache numbers. A provider whose cache numbers exceed its total would
            make it negative: it counts as 0 then.
        output: Tokens written, the reasoning included.
        total: The size of the context after the answer, where the provider says it; else all are added up.
        factor: What the service tier of the answer multiplies the prices by.
    """
    usage = Usage(
        input=max(0, input),
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=reasoning,
        cache_write_1h=cache_write_1h,
    )
    usage.total_tokens = usage.input + output + cache_read + cache_write if total is None else total
    usage.cost = calculate_cost(model.cost, usage)
    if factor != 1.0:
        cost = usage.cost
        usage.cost = Cost(cost.input * factor, cost.output * factor, cost.cache_read * factor, cost.cache_write * factor)
        usage.cost.total = usage.cost.input + usage.cost.output + usage.cost.cache_read + usage.cost.cache_write
    return usage


def token_count(raw: Any, *path: str) -> int:
    """Read a number out of a provider's usage object; 0 where there is none."""
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    is_count = isinstance(raw, (int, float)) and not isinstance(raw, bool) and 0 <= raw < 1e15  # no NaN, no infinity
    return int(raw) if is_count else 0
