"""The recorded cases of the retry around whole answers (`retryAssistantCall` of `functions/retry.json`).

Played through the call that asks for summaries, which uses the loop's retry: the loop itself tells the same in its own events.
"""

from __future__ import annotations

import re
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
from tests.conformance.cases import case_params, check, expand

CODE_WORDS = re.compile(r"context_length_exceeded|insufficient_quota")


def our_expectation(given: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded, but for two rules.

    - A code word in a text counts: a context that is too large, or a quota that is used up, is not sent again.
    - A run that is aborted already is not asked to wait: no new try is announced, and the failed answer stays.
    """
    texts = [answer.get("errorMessage") or "" for answer in given["responses"][: recorded["calls"]]]
    last = next((number for number, text in enumerate(texts, 1) if CODE_WORDS.search(text)), None)
    if given.get("abort_before") and given["responses"][0].get("stopReason") == "error":
        last = 1
    if last is None or not given["policy"]:
        return recorded
    events = [event for event in recorded["events"] if event[0] == "scheduled" and event[1] < last]
    told = [each for event in events for each in (event, ["start"])]
    if last > 1 and not given.get("no_callbacks"):
        told.append(["finished", False, last - 1, texts[last - 1]])
    return {**recorded, "calls": last, "events": told, "waits": recorded["waits"][: last - 1], "stop": "error"}


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
    recorded: dict[str, Any] = dict(case["expected"] if "expected" in case else case["error"])
    if "error" in case:
        del recorded["name"]  # the exception comes as it is
        recorded["raised"] = recorded.pop("message")
        check(recorded, play(given))
        return
    recorded["stop"] = recorded.pop("message")["stopReason"].replace("stop", "done")
    check(our_expectation(given, recorded), play(given))


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
