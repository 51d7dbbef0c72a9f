"""The recorded cases of the retry around whole answers (`retryAssistantCall` of `functions/retry.json`).

Played through the call that asks for summaries, which uses the loop's retry: the loop itself tells the same in its own events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentcore import (
    AbortController,
    AssistantMessage,
    Context,
    DoneEvent,
    ErrorEvent,
    HarnessError,
    Model,
    RetryPolicy,
    StartEvent,
    StreamOptions,
    TextContent,
)
from agentcore.abort import AbortSignal
from agentcore.codec import decode
from agentcore.events import AssistantMessageEvent
from agentcore.harness.summaries import RetryListener, Summarizer
from tests.conformance.cases import DELETE, Difference, case_params, check, expand, with_difference

SHORT = "a run that is aborted already is not asked to wait, so no new try is announced"
DIFFERENCES = {
    "retryAssistantCall: aborted before the wait": Difference(SHORT, {"events": [], "stop": "error"}),
    "retryAssistantCall: overflow text that is also retryable": Difference(
        "a code word in the text counts: a context that is too large is not sent again",
        {"calls": 1, "events": [], "waits": [], "stop": "error"},
    ),
    "retryAssistantCall: budget used up": Difference(
        "a number that stands somewhere in a text is no status", {"calls": 1, "events": [], "waits": [], "stop": "error"}
    ),
    "retryAssistantCall: producer throws": Difference(
        "the exception comes as it is", {"name": DELETE, "message": DELETE, "raised": "boom"}
    ),
}


class Waits(AbortSignal):
    """A signal on which nobody waits for real; it is set in the nth wait."""

    def __init__(self, abort_in_wait: int | None) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._count = 0
        self._abort_in_wait = abort_in_wait

    def wait(self, timeout: float | None = None) -> bool:
        """Write the wait down."""
        self._count += 1
        if self._count == self._abort_in_wait:
            self._set(None)
        if not self.aborted and timeout is not None:
            self.waits.append(timeout * 1000)
        return self.aborted


class Exact(RetryPolicy):
    """A policy without the jitter."""

    def pause(self, attempt: int) -> float:
        """Return the whole pause."""
        return self.base_delay * 2.0 ** (attempt - 1)


@pytest.mark.parametrize("case", case_params("retry.json", lambda case: case["input"]["fn"] == "retryAssistantCall"))
def test_recorded(case: dict[str, Any]) -> None:
    """As many calls, the same events and the same pauses as in the reference, and the same outcome."""
    given = expand(case["input"])
    recorded = dict(case.get("expected", case.get("error")))
    if "expected" in case:
        recorded["stop"] = recorded.pop("message")["stopReason"].replace("stop", "done")
    check(with_difference(recorded, DIFFERENCES.get(case["name"])), play(given))


def play(given: dict[str, Any]) -> dict[str, Any]:
    """Make the call of a case and return what could be seen."""
    calls: list[int] = []
    events: list[list[Any]] = []

    def ask(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        calls.append(1)
        raw = given["responses"][len(calls) - 1]
        if "throw" in raw:
            raise RuntimeError(raw["throw"])
        answer = decode(AssistantMessage, {**raw, "usage": None})
        answer.content = [TextContent("x")]
        yield StartEvent(answer)
        yield ErrorEvent(answer) if answer.stop_reason in ("error", "aborted") else DoneEvent(answer)

    listener = RetryListener(
        lambda event: events.append(["scheduled", event.attempt, event.max_retries, event.delay * 1000, event.error_message]),
        lambda: events.append(["start"]),
        lambda success, attempt, error: events.append(["finished", success, attempt, *([] if error is None else [error])]),
    )
    policy = given["policy"]
    controller = AbortController()
    controller.signal = signal = Waits(given.get("abort_in_wait"))
    if given.get("abort_before"):
        controller.abort()
    summarizer = Summarizer(
        Model("m"),
        ask,
        signal=signal,
        retry=Exact(policy["maxRetries"], policy["baseDelayMs"] / 1000) if policy and policy["enabled"] else None,
        listener=None if given.get("no_callbacks") else listener,
    )
    seen: dict[str, Any] = {"calls": 0, "events": events, "waits": signal.waits}
    try:
        seen["stop"] = summarizer.ask("prompt", 100, "the conversation").stop_reason
    except HarnessError as error:
        seen["stop"] = "aborted" if error.code == "aborted" else "error"
    except RuntimeError as error:
        del seen["waits"]
        seen["raised"] = str(error)
    return {**seen, "calls": len(calls)}


def test_the_budget_is_used_up() -> None:
    """What the recorded case of that name shows, with texts that are worth another try."""
    texts = ["503 unavailable", "503 still", "503 for good"]
    made = play(
        {
            "responses": [{"stopReason": "error", "errorMessage": text, "role": "assistant", "content": []} for text in texts],
            "policy": {"enabled": True, "maxRetries": 2, "baseDelayMs": 1000},
        }
    )
    assert made == {
        "calls": 3,
        "events": [
            ["scheduled", 1, 2, 1000, texts[0]],
            ["start"],
            ["scheduled", 2, 2, 2000, texts[1]],
            ["start"],
            ["finished", False, 2, texts[2]],
        ],
        "waits": [1000, 2000],
        "stop": "error",
    }
