"""Compacting by itself: when the context is nearly full, and once after an overflow; never in a circle."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from agentcore import (
    AgentHarness,
    AgentRunError,
    CompactionResult,
    CompactionSettings,
    Context,
    HarnessError,
    Model,
    Usage,
    UserMessage,
    openai_compatible,
    tool,
)
from agentcore.harness import SessionBeforeCompactEvent
from agentcore.harness.summaries import SUMMARY_SYSTEM_PROMPT
from agentcore.messages import AssistantMessage, TextContent
from agentcore.session import CompactionEntry, MemorySessionStorage, Session
from agentcore.testing import SseServer, answer, calls, ends, fails, says, scripted_stream, waits
from agentcore.testing.stream import ScriptedStream

WINDOW = 200_000
MODEL = Model("m", provider="p", context_window=WINDOW, max_tokens=8_000)
NAMES = ("auto_compaction_start", "session_compact", "auto_compaction_end", "agent_start", "agent_end", "settled")


def used(tokens: int) -> Usage:
    return Usage(input=tokens, total_tokens=tokens)


class Summaries:
    """A stream function in front of a scripted one: answers summary requests by itself, and counts them."""

    def __init__(self, *turns: Any, summary: str = "SUMMARY") -> None:
        self.scripted: ScriptedStream = scripted_stream(*turns)
        self.asked = 0
        self.summary = summary
        self.fails = False

    def __call__(self, model: Model, context: Context, options: Any) -> Any:
        if context.system_prompt != SUMMARY_SYSTEM_PROMPT:
            return self.scripted(model, context, options)
        self.asked += 1
        turn = fails("no summary today", kind="request") if self.fails else says(self.summary)
        return scripted_stream(turn)(model, context, options)


def make(stream: Any, *, model: Model = MODEL, session: Session | None = None, **options: Any) -> tuple[AgentHarness, list[Any]]:
    harness = AgentHarness(model=model, stream_fn=stream, session=session, retry=None, **options)
    told: list[Any] = []
    harness.subscribe(lambda event: told.append(event) if event.type in NAMES else None)
    return harness, told


def types(told: list[Any]) -> list[str]:
    return [event.type for event in told]


def talk(harness: AgentHarness, count: int, size: int = 40_000) -> None:
    """Fill the session with a conversation of `count` questions and answers."""
    for number in range(count):
        harness.append_message(UserMessage(f"question {number} " + "x" * size))
        answer = AssistantMessage([TextContent(f"answer {number}")], "a", "p", "m")
        harness.append_message(answer)


def test_a_nearly_full_context_is_compacted_before_the_request() -> None:
    """The request goes out with the summary in place of the old part, and with the prompt; events say so."""
    stream = Summaries(says("one", usage=used(190_000)), says("two", usage=used(9_000)))
    harness, told = make(stream)
    talk(harness, 8)
    harness.run("first", timeout=10)
    assert stream.asked == 0
    harness.run("second", timeout=10)
    assert stream.asked == 1
    assert types(told) == [
        "agent_start", "agent_end", "settled",
        "agent_start", "auto_compaction_start", "session_compact", "auto_compaction_end", "agent_end", "settled",
    ]  # fmt: skip
    assert told[4].reason == "threshold"
    assert told[6].compaction_entry == told[5].compaction_entry
    sent = stream.scripted.requests[1]
    assert "SUMMARY" in sent[0].text
    assert sent[-1].text == "second"
    assert len(sent) < 18
    assert [m.role for m in harness.session.build_context().messages] == [m.role for m in harness.messages]


def test_old_usage_does_not_start_it_again() -> None:
    """C088: the last usage before the compaction was 190k of 200k; a short prompt after it starts no second one."""
    stream = Summaries(says("one", usage=used(190_000)), says("two"), says("three", usage=used(0)), says("four", usage=used(5_000)))
    harness, told = make(stream)
    talk(harness, 8)
    harness.run("first", timeout=10)
    harness.compact()
    assert stream.asked == 1
    for text in ("short", "shorter", "shortest"):
        harness.run(text, timeout=10)
    assert stream.asked == 1
    assert types(told).count("session_compact") == 1


def test_tool_results_that_fill_the_context_are_noticed_between_turns() -> None:
    """The check is made before each request of a run, not only before the first."""

    @tool
    def read(n: int) -> str:
        """Read a lot."""
        return "y" * 320_000

    many = [[calls("read", n=number), ends(usage=used(1_000 + 80_000 * number))] for number in range(3)]
    stream = Summaries(*many, says("done"))
    harness, told = make(stream, tools=[read])
    harness.run("go", timeout=10)
    assert types(told).count("session_compact") >= 1
    assert harness.messages[-1].text == "done"
    assert len(stream.scripted.requests) == 4


def test_a_server_that_counts_nothing_is_guessed_for() -> None:
    """Without usages the size is guessed from the texts, and the context is compacted all the same, once."""
    stream = Summaries(*[says("ok")] * 12)
    harness, told = make(stream)
    for number in range(12):
        harness.run(f"{number}" + "x" * 80_000, timeout=10)
    assert stream.asked == 1
    assert types(told).count("session_compact") == 1


OVERFLOWS: list[tuple[int, str]] = [
    (400, "prompt too long; exceeded max context length 8192"),
    (413, "request_too_large: Request exceeds the maximum size"),
    (400, "This request exceeds the model's maximum context length of 8192 tokens"),
    (400, "The input is over the maximum allowed input length"),
    (400, "Requested tokens exceed maximum context length (8192)"),
    (400, "Prompt has 9000 tokens, but the configured context size is 8192"),
    (200, "model_context_window_exceeded"),
]


def _overflow_answer(status: int, text: str) -> Any:
    if status == 200:
        chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": "cut"}, "finish_reason": text}]}
        return answer(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", headers={"content-type": "text/event-stream"})
    return answer({"error": {"message": text}}, status=status)


@pytest.mark.parametrize("window", [0, 8192, WINDOW], ids=["window unknown", "window known", "window wrong"])
@pytest.mark.parametrize(("status", "text"), OVERFLOWS)
def test_an_overflow_is_compacted_and_asked_again_once(status: int, text: str, window: int) -> None:
    """C050: each wording is an overflow; the context is compacted and the same run asks again; the failed answer is not stored."""
    with SseServer(_overflow_answer(status, text), says("SUMMARY"), says("after")) as server:
        model = server.model(context_window=window, max_tokens=1000)
        settings = CompactionSettings(keep_recent_tokens=2_000, reserve_tokens=500)
        harness = AgentHarness(model=model, compaction=settings, get_api_key=lambda provider: "key")
        told: list[Any] = []
        harness.subscribe(lambda event: told.append(event) if event.type in NAMES else None)
        talk(harness, 6, size=5_000)
        assert harness.run("now", timeout=10).text == "after"
        asked = [request.json["messages"] for request in server.requests]
    assert types(told) == ["agent_start", "auto_compaction_start", "session_compact", "auto_compaction_end", "agent_end", "settled"]
    assert told[1].reason == "overflow"
    assert len(asked) == 3
    assert asked[2][-1]["content"] in ("now", [{"type": "text", "text": "now"}])
    assert len(asked[2]) < len(asked[0])
    assert [getattr(message, "stop_reason", None) for message in harness.messages].count("error") == 0
    stored = harness.session.build_context().messages
    assert [message.role for message in stored] == [message.role for message in harness.messages]


def test_a_second_overflow_ends_the_run() -> None:
    """Never a circle: if the compacted context is too large as well, the run fails, with kind `overflow`."""
    stream = Summaries(*[fails("context_length_exceeded", kind="overflow")] * 3)
    harness, told = make(stream)
    talk(harness, 8)
    with pytest.raises(AgentRunError) as caught:
        harness.run("go", timeout=10)
    assert caught.value.kind == "overflow"
    assert len(stream.scripted.requests) == 2
    assert stream.asked == 1
    assert types(told).count("auto_compaction_start") == 1


@pytest.mark.parametrize(
    ("text", "kind"), [("Too many tokens, please wait before trying again", "rate_limit"), ("invalid token", "auth")]
)
def test_what_only_mentions_tokens_is_no_overflow(text: str, kind: Any) -> None:
    """C049: throttling and a refused key compact nothing."""
    stream = Summaries(fails(text, kind=kind))
    harness, _ = make(stream)
    talk(harness, 8)
    with pytest.raises(AgentRunError) as caught:
        harness.run("go", timeout=10)
    assert caught.value.kind == kind
    assert stream.asked == 0


def test_a_compaction_that_fails_is_told_and_not_tried_again_in_the_run() -> None:
    """The run goes on with the context as it is; the event says why."""
    stream = Summaries(says("one", usage=used(190_000)), calls("nothing"), says("two"))
    stream.fails = True
    harness, told = make(stream)
    talk(harness, 8)
    harness.run("first", timeout=10)
    assert harness.run("second", timeout=10).text == "two"
    assert stream.asked == 1
    [end] = [event for event in told if event.type == "auto_compaction_end"]
    assert "no summary today" in end.error_message
    assert end.compaction_entry is None
    assert not any(isinstance(entry, CompactionEntry) for entry in harness.session.get_entries())


def test_an_overflow_that_cannot_be_mended_is_the_error_of_the_run() -> None:
    """The summary fails: the run ends with the overflow, stored once."""
    stream = Summaries(fails("context_length_exceeded", kind="overflow"))
    stream.fails = True
    harness, _ = make(stream)
    talk(harness, 8)
    with pytest.raises(AgentRunError, match="context_length_exceeded") as caught:
        harness.run("go", timeout=10)
    assert caught.value.kind == "overflow"
    failed = [m for m in harness.session.build_context().messages if getattr(m, "stop_reason", None) == "error"]
    assert len(failed) == 1


def test_a_context_that_cannot_get_smaller_is_not_compacted_again_and_again() -> None:
    """What is kept alone fills the window: no summary is asked for in turn after turn."""

    @tool
    def read() -> str:
        """Read a lot."""
        return "z" * 800_000

    many = [[calls("read"), ends(usage=used(199_000 + number))] for number in range(4)]
    stream = Summaries(*many, says("done"))
    harness, _ = make(stream, tools=[read])
    harness.run("go", timeout=20)
    assert stream.asked <= 4
    before = stream.asked
    stream.scripted.add(*[says("more", usage=used(199_500 + number)) for number in range(5)])
    for _ in range(5):
        harness.run("hm", timeout=10)
    assert stream.asked <= before + 1


def test_nothing_to_compact_is_said_before_a_model_is_asked() -> None:
    """An empty session, a short one, and one that was compacted just now are refused; nothing is stored."""
    stream = Summaries(says("ok"))
    harness, _ = make(stream)
    with pytest.raises(HarnessError, match="nothing to compact: the session is empty, or was compacted just now") as caught:
        harness.compact()
    assert caught.value.code == "compaction"
    harness.run("hi", timeout=10)
    with pytest.raises(HarnessError, match="nothing to compact: all of the conversation is within the last 20000 tokens"):
        harness.compact()
    talk(harness, 4)
    harness.compact()
    with pytest.raises(HarnessError, match="nothing to compact"):
        harness.compact()
    assert stream.asked == 1


def test_a_setting_changed_while_compacting_is_stored_when_that_is_over() -> None:
    """It stands right behind the compaction: the process may end before there is another run."""
    stream = Summaries()
    harness, _ = make(stream)
    talk(harness, 8)
    harness.on("session_before_compact", lambda event: harness.set_thinking_level("high"))
    harness.compact()
    assert [entry.type for entry in harness.session.get_entries()[-2:]] == ["compaction", "thinking_level_change"]


def test_a_second_compaction_takes_up_what_the_first_kept() -> None:
    """C086: of ten kept messages, each is in the second summary's input or still in the context."""
    asked: list[str] = []

    def stream(model: Model, context: Context, options: Any) -> Any:
        asked.append(context.messages[0].text)
        return scripted_stream(says(f"SUMMARY {len(asked)}"))(model, context, options)

    harness, _ = make(stream)
    talk(harness, 12, size=8_000)
    harness.compact()
    kept = [message.text for message in harness.messages if isinstance(message, UserMessage)]
    assert len(kept) >= 10
    talk(harness, 12, size=8_000)
    harness.compact()
    still = [message.text for message in harness.messages if isinstance(message, UserMessage)]
    assert "SUMMARY 1" in asked[1]
    assert all(text in asked[1] or text in still for text in kept)


def test_it_can_be_turned_off() -> None:
    """`compaction=False`: nothing is compacted unless asked for."""
    stream = Summaries(says("one", usage=used(199_000)), fails("context_length_exceeded", kind="overflow"))
    harness, told = make(stream, compaction=False)
    talk(harness, 8)
    harness.run("first", timeout=10)
    with pytest.raises(AgentRunError):
        harness.run("second", timeout=10)
    assert stream.asked == 0
    harness.compact()
    assert stream.asked == 1
    assert "auto_compaction_start" not in types(told)


def test_a_handler_can_cancel_or_write_it() -> None:
    """`session_before_compact` is asked for automatic compactions too."""
    stream = Summaries(says("one", usage=used(190_000)), says("two"))
    harness, told = make(stream)
    talk(harness, 8)
    harness.on("session_before_compact", lambda event: {"cancel": True})
    harness.run("first", timeout=10)
    harness.run("second", timeout=10)
    assert stream.asked == 0
    [end] = [event for event in told if event.type == "auto_compaction_end"]
    assert "cancelled" in end.error_message


def test_a_compaction_that_a_handler_wrote_keeps_what_it_names() -> None:
    """With an id alone, all messages from that entry on are kept; the handler need not copy them."""
    harness, _ = make(Summaries())
    talk(harness, 3)
    entries = harness.session.get_entries()
    kept = list(harness.messages)[2:]
    remove = harness.on("session_before_compact", lambda event: {"compaction": CompactionResult("short", entries[2].id, 7)})
    harness.compact()
    remove()
    assert harness.messages[1:] == kept
    assert harness.session.build_context().messages[1:] == kept

    talk(harness, 2)
    preparations: list[Any] = []

    def write(event: SessionBeforeCompactEvent) -> dict[str, Any]:
        preparations.append(event.preparation)
        first = event.preparation.first_kept_entry_id
        return {"compaction": {"summary": "shorter", "firstKeptEntryId": first, "tokensBefore": 7}}

    harness.on("session_before_compact", write)
    harness.compact()
    assert harness.messages[1:] == preparations[0].retained_tail


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (CompactionResult("short", "nope", 7), "returned first_kept_entry_id 'nope', which is no entry of the branch"),
        (CompactionResult(None, "nope", 7), "returned a CompactionResult that cannot be stored: summary must be a text"),  # type: ignore[arg-type]
        (CompactionResult("short", "nope", 7, retained_tail=["x"]), "retained_tail a list of messages"),  # type: ignore[list-item]
    ],
)
def test_a_compaction_that_could_not_be_read_again_is_refused(result: CompactionResult, text: str) -> None:
    """What a handler wrote is looked at before it is stored: the conversation would be lost with it."""
    harness, _ = make(Summaries())
    talk(harness, 3)
    before = list(harness.messages)
    harness.on("session_before_compact", lambda event: {"compaction": result})
    with pytest.raises(HarnessError, match=text) as caught:
        harness.compact()
    assert caught.value.code == "hook"
    assert harness.session.build_context().messages == before


def test_abort_ends_a_compaction_under_way() -> None:
    """An abort while the summary is written: `compact()` raises, nothing is stored, the harness is idle."""
    asked, let_go = threading.Event(), threading.Event()

    def slow(model: Model, context: Context, options: Any) -> Any:
        asked.set()
        return scripted_stream([waits(let_go), says("late")])(model, context, options)

    harness, _ = make(slow)
    talk(harness, 8)
    failed: list[BaseException] = []

    def compact() -> None:
        try:
            harness.compact()
        except HarnessError as error:
            failed.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    assert asked.wait(5)
    assert harness.phase == "compaction"
    harness.abort()
    thread.join(5)
    assert not thread.is_alive()
    assert [error.code for error in failed if isinstance(error, HarnessError)] == ["compaction"]
    assert harness.phase == "idle"
    assert not any(isinstance(entry, CompactionEntry) for entry in harness.session.get_entries())


def test_a_run_can_be_aborted_while_it_compacts() -> None:
    """An abort during the automatic compaction ends the run as aborted."""
    asked, let_go = threading.Event(), threading.Event()
    scripted = scripted_stream(says("one", usage=used(190_000)), says("never"))

    def stream(model: Model, context: Context, options: Any) -> Any:
        if context.system_prompt != SUMMARY_SYSTEM_PROMPT:
            return scripted(model, context, options)
        asked.set()
        return scripted_stream([waits(let_go), says("late")])(model, context, options)

    harness, _ = make(stream)
    talk(harness, 8)
    harness.run("first", timeout=10)
    run = harness.prompt("second")
    assert asked.wait(5)
    harness.abort()
    assert run.message is not None and run.message.stop_reason == "aborted"


def test_settings_fit_small_windows() -> None:
    """A window smaller than the default reserve is not compacted at every turn."""
    model = openai_compatible("http://127.0.0.1:9/v1", "small")
    model.context_window = 8_192
    stream = Summaries(says("one", usage=used(2_000)), says("two", usage=used(2_100)))
    harness, _ = make(stream, model=model, session=Session(MemorySessionStorage()))
    harness.run("a", timeout=10)
    harness.run("b", timeout=10)
    assert stream.asked == 0
