"""Which failed requests are tried again, and after how many seconds.

This is the *request* retry: it works until the answer has begun. (The *answer* retry of the loop takes over from there.) Pauses
double from half a second to eight; chance takes at most a quarter off, so each is longer than the one before. What a provider asks
for is waited for exactly, but not beyond a limit: then the failure is final, and its text names the wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from agentcore.llm.failures import Failure

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
MAX_RETRY_DELAY_MS = 60_000
"""The longest wait that a provider may ask for, unless `StreamOptions.max_retry_delay_ms` says otherwise."""


def pause_before_retry(
    failure: Failure,
    attempt: int,
    *,
    max_retries: int,
    max_retry_delay_ms: int | None = None,
    chance: Callable[[], float] = random.random,
) -> float | None:
    """Return the seconds to wait before the next try, None where there is to be none.

    Args:
        attempt: How many tries have failed, from 1.
        max_retry_delay_ms: The longest wait that the provider may ask for; 0 or less is without limit.
        chance: A random number from 0 up to 1.
    """
    if not failure.retryable or attempt > max_retries or exceeds_limit(failure, max_retry_delay_ms):
        return None
    if failure.retry_after is not None:
        return max(0.0, failure.retry_after)
    doubled: float = FIRST_PAUSE * 2 ** (attempt - 1)
    return min(doubled, LONGEST_PAUSE) * (1 - chance() / 4)


def exceeds_limit(failure: Failure, max_retry_delay_ms: int | None = None) -> bool:
    """Whether the provider asks for a longer wait than is allowed."""
    limit = MAX_RETRY_DELAY_MS if max_retry_delay_ms is None else max_retry_delay_ms
    return failure.retry_after is not None and 0 < limit < failure.retry_after * 1000


def make_final(failure: Failure, max_retry_delay_ms: int | None = None) -> Failure:
    """Return the failure as the last word: one whose wait is too long names it and is retried by nobody."""
    if not failure.retryable or not exceeds_limit(failure, max_retry_delay_ms):
        return failure
    limit = MAX_RETRY_DELAY_MS if max_retry_delay_ms is None else max_retry_delay_ms
    text = (
        f"{failure.text}; the provider asks for a wait of {failure.retry_after:g} s, longer than the {limit / 1000:g} s "
        "that max_retry_delay_ms allows"
    )
    return replace(failure, retryable=False, text=text)
