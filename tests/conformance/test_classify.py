"""Which failed answers are retried and which are overflows (`retry.json`, `classify`), against the recorded reference."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.codec import decode
from agentcore.llm.failures import is_context_overflow, is_retryable
from agentcore.messages import AssistantMessage
from tests.conformance.cases import Difference, case_params, check, with_difference

PASSING_FAILURE = "the reference does not know this wording of a passing failure"
DIGITS = "the reference takes any digits 500 for a status"
THROTTLING = "throttling is never taken for an overflow (C049)"

DIFFERENCES = {
    **{
        f"classify: {text}": Difference(PASSING_FAILURE, {"retryable": True})
        for text in ("RESOURCE_EXHAUSTED", "got status: UNAVAILABLE. {}", "ECONNRESET", "read ECONNRESET", "EPIPE", "529")
    },
    "classify: Throttling error: Too many tokens, please wait": Difference(THROTTLING, {"retryable": True}),
    "classify: ThrottlingException: Too many tokens, please wait": Difference(
        THROTTLING, {"retryable": True, "context_overflow": False}
    ),
    "classify: 400: id 1500 is wrong": Difference(DIGITS, {"retryable": False}),
}


@pytest.mark.parametrize("case", case_params("retry.json", lambda case: case["input"]["fn"] == "classify"))
def test_a_failed_answer_is_judged_as_recorded(case: dict[str, Any]) -> None:
    """Retryable and overflow, by text, stop reason and usage alone."""
    given = case["input"]
    message = decode(
        AssistantMessage,
        {
            "content": [],
            "stopReason": given.get("stopReason", "error"),
            "errorMessage": given.get("errorMessage"),
            "usage": given.get("usage", {}),
        },
    )
    window = given.get("contextWindow")
    ours = {"retryable": is_retryable(message), "context_overflow": is_context_overflow(message, window)}
    check(with_difference(case["expected"], DIFFERENCES.get(case["name"])), ours)
