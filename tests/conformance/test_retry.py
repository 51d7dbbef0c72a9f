"""The retry of one HTTP request waits and gives up as recorded, but for a listed few."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agentcore.llm.failures import Failure, classify
from agentcore.llm.retry import make_final, pause_before_retry
from tests.conformance.cases import case_params, check, expand

CLOCK = 1767323045.678  # 2026-01-02T03:04:05.678Z, at which the recorded clock stood

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 500, 8000


def usual_pauses(waits: list[Any], chance: float) -> list[Any]:
    """A wait that cannot be read is none: where the reference waits for what is no number, the usual pause comes."""
    return [
        min(FIRST_PAUSE_MS * 2**number, LONGEST_PAUSE_MS) * (1 - chance / 4) if wait == {"$number": "NaN"} else wait
        for number, wait in enumerate(waits)
    ]


@pytest.mark.parametrize("case", case_params("retry.json", lambda case: case["input"]["fn"] == "retryProviderRequest"))
def test_a_request_is_retried_as_recorded(case: dict[str, Any]) -> None:
    """A request that fails as recorded is sent as often, after the same pauses, with the same end."""
    given = expand(case["input"])
    result = play(given)
    if "error" in case:
        error = case["error"]
        expected = {"failed": True, "calls": error["calls"], "waits_ms": error["waits_ms"]}
        if "Server requested" in error["message"]:
            expected["text"] = True
    else:
        expected = {"failed": False, **case["expected"]}
    expected["waits_ms"] = usual_pauses(expected["waits_ms"], given.get("random", 0.0))
    check(expected, {key: result.get(key) for key in expected})


def play(given: dict[str, Any]) -> dict[str, Any]:
    """Do what the frame of the wire formats does with its pauses, without pausing."""
    waits: list[float] = []
    for calls, outcome in enumerate(given["outcomes"], 1):
        if "ok" in outcome:
            return {"failed": False, "value": outcome["ok"], "calls": calls, "waits_ms": waits}
        failure = to_failure(outcome)
        limit = given.get("maxRetryDelayMs")
        pause = pause_before_retry(
            failure,
            calls,
            max_retries=given.get("maxRetries", 0),
            max_retry_delay_ms=limit,
            chance=lambda: given.get("random", 0.0),
        )
        if pause is None or given.get("abort_before"):
            text = make_final(failure, limit).text
            return {
                "failed": True,
                "calls": calls,
                "waits_ms": waits,
                "text": "asks for a wait of" in text and failure.text in text,
            }
        waits.append(without_noise(pause * 1000))
    raise AssertionError("the case ran out of outcomes")


def without_noise(milliseconds: float) -> float:
    """Take off what subtracting two times of 1.7e9 seconds adds."""
    return round(milliseconds) if abs(milliseconds - round(milliseconds)) < 5e-5 else milliseconds


def to_failure(outcome: dict[str, Any]) -> Failure:
    """Judge an outcome as the library does: by status and headers, or as a connection that failed."""
    message = outcome.get("message", outcome.get("plain_error", "err"))
    if "plain_error" in outcome:
        return Failure("unknown", False, message)
    if outcome.get("status") is None:
        return Failure("network", True, message)
    return classify(outcome["status"], outcome.get("headers") or {}, message, now=CLOCK)


def test_each_pause_is_longer_than_the_one_before() -> None:
    """Whatever chance takes off, a later pause is longer, up to the longest one."""
    failure = Failure("server", True, "500")
    for chances in ((0.0, 0.999999), (0.999999, 0.0), (0.5, 0.5)):
        first, second = (
            pause_before_retry(failure, attempt, max_retries=9, chance=lambda chance=chance: chance)  # type: ignore[misc]
            for attempt, chance in enumerate(chances, 1)
        )
        assert first is not None and second is not None
        assert second > first * 1.1


def test_chance_takes_nothing_off_what_the_provider_asks_for() -> None:
    """A `Retry-After` is waited for exactly."""
    failure = Failure("rate_limit", True, "429", retry_after=3.0)
    pause = pause_before_retry(failure, 1, max_retries=1, chance=lambda: 0.9)
    assert pause is not None and math.isclose(pause, 3.0)
