"""Which failed answers are retried and which are overflows (`retry.json`, `classify`), against the recorded reference."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agentcore.codec import decode
from agentcore.llm.failures import is_context_overflow, is_retryable
from agentcore.messages import AssistantMessage
from tests.conformance.cases import case_params, check

_PASSING = r"RESOURCE_EXHAUSTED|UNAVAILABLE|ECONNRESET|EPIPE|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND"

RULES: tuple[tuple[str, str, dict[str, bool]], ...] = (
    # why, which texts, our judgement
    (
        "the reference does not know this wording of a passing failure",
        rf"(?!.*(?i:quota|billing))(?:.*\W)?(?:{_PASSING})\b.*|529",
        {"retryable": True},
    ),
    ("throttling is never taken for an overflow (C049)", ".*[Tt]hrottl.*", {"retryable": True, "context_overflow": False}),
)
_LONGER_NUMBER = re.compile(r"\d+(?:429|5\d\d)\d*|(?:429|5\d\d)\d+")


def our_judgement(given: dict[str, Any], recorded: dict[str, bool]) -> dict[str, bool]:
    """Return the recorded judgement of a failed answer, or ours where a rule has its text.

    The reference takes the digits of a status for one wherever they stand. Digits inside a longer number say nothing: with them the
    text is judged as without them.
    """
    if given.get("stopReason", "error") != "error":
        return recorded
    text = given.get("errorMessage") or ""
    for _, pattern, ours in RULES:
        if re.fullmatch(pattern, text, re.DOTALL):
            return {**recorded, **ours}
    if recorded["retryable"] and _LONGER_NUMBER.search(text):
        return {**recorded, "retryable": judge({**given, "errorMessage": _LONGER_NUMBER.sub("#", text)})["retryable"]}
    return recorded


def judge(given: dict[str, Any]) -> dict[str, bool]:
    """Return how the failed answer of a case is judged."""
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
    return {"retryable": is_retryable(message), "context_overflow": is_context_overflow(message, window)}


@pytest.mark.parametrize("case", case_params("retry.json", lambda case: case["input"]["fn"] == "classify"))
def test_a_failed_answer_is_judged_as_recorded(case: dict[str, Any]) -> None:
    """Retryable and overflow, by text, stop reason and usage alone."""
    check(our_judgement(case["input"], case["expected"]), judge(case["input"]))
