"""Compaction on real sessions: always a legal cut or a clear error, nothing lost, never started again by an old usage."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore import (
    AbortController,
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    Context,
    CustomMessage,
    DoneEvent,
    ErrorEvent,
    HarnessError,
    MemorySessionStorage,
    Model,
    RetryPolicy,
    Session,
    StartEvent,
    StreamOptions,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.events import AssistantMessageEvent
from agentcore.harness.branch_summaries import collect_branch_entries, generate_branch_summary
from agentcore.harness.compaction import (
    CompactionPreparation,
    CompactionResult,
    CompactionSettings,
    compact,
    find_cut_point,
    prepare_compaction,
    should_compact,
)
from agentcore.harness.summaries import (
    INITIAL_INSTRUCTIONS,
    UPDATE_INSTRUCTIONS,
    RetryListener,
    Summarizer,
)
from agentcore.harness.tokens import estimate_context_tokens, estimate_tokens
from agentcore.transcript import pair_tool_results

MODEL = Model("test-model", provider="test", reasoning=True, context_window=200_000, max_tokens=50_000)


class Writer:
    """A stream function that answers with the summaries it was given, and keeps the prompts and the options."""

    def __init__(self, *answers: str | AssistantMessage, is_begun: bool = True) -> None:
        self.answers = list(answers)
        self.is_begun = is_begun
        self.prompts: list[str] = []
        self.options: list[StreamOptions] = []

    def __call__(self, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        """Give the next answer."""
        assert context.tools is None and len(context.messages) == 1
        self.prompts.append(context.messages[0].text)
        self.options.append(options)
        answer = self.answers.pop(0)
        message = answer if isinstance(answer, AssistantMessage) else AssistantMessage([TextContent(answer)])
        if self.is_begun:
            yield StartEvent(message)
        yield DoneEvent(message) if message.stop_reason == "done" else ErrorEvent(message)


def failed(text: str = "overloaded", **fields: Any) -> AssistantMessage:
    """Make a failed answer."""
    return AssistantMessage(stop_reason="error", error_message=text, **fields)


def user(text: str) -> UserMessage:
    """Make a user message."""
    return UserMessage(text)


def answer(text: str, *ids: str, total_tokens: int = 0) -> AssistantMessage:
    """Make an answer with a call for each id."""
    calls = [ToolCall(id, "read", {"path": f"{id}.txt"}) for id in ids]
    return AssistantMessage([TextContent(text), *calls], usage=Usage(total_tokens=total_tokens))


def result(id: str, tokens: int = 1) -> ToolResultMessage:
    """Make a result of that size."""
    return ToolResultMessage(id, "read", [TextContent("x" * 4 * tokens)])


def session_of(*messages: AgentMessage) -> Session:
    """Make a session in memory."""
    session = Session(MemorySessionStorage())
    for message in messages:
        session.append_message(message)
    return session


def prepare(session: Session, keep: int) -> CompactionPreparation:
    """Prepare a compaction of the session that keeps so many tokens."""
    preparation = prepare_compaction(session.get_branch(), CompactionSettings(keep_recent_tokens=keep))
    assert preparation is not None
    return preparation


def store(session: Session, made: CompactionResult) -> None:
    """Store a compaction."""
    session.append_compaction(
        made.summary,
        made.first_kept_entry_id,
        made.tokens_before,
        details=made.details,
        usage=made.usage,
        retained_tail=made.retained_tail,
    )


def test_large_results_at_the_end_leave_a_legal_cut() -> None:
    """C085: one turn with four results of 30k tokens, 20k to keep: the question is summarised, the calls keep their results."""
    session = session_of(user("look at the four files"), answer("reading", *"abcd"), *(result(id, 30_000) for id in "abcd"))
    writer = Writer("PREFIX")
    store(session, compact(prepare(session, 20_000), Summarizer(MODEL, writer)))
    assert "look at the four files" in writer.prompts[0]
    messages = session.build_context().messages
    assert [message.role for message in messages] == ["compactionSummary", "assistant", *["toolResult"] * 4]
    assert pair_tool_results(messages) == messages


def test_earlier_turns_are_compacted_whatever_stands_at_the_end() -> None:
    """C085: a large result at the end does not keep the turns before it from being summarised."""
    session = session_of(user("one"), answer("1"), user("two"), answer("2"), user("three"), answer("3", "a"), result("a", 30_000))
    preparation = prepare(session, 20_000)
    assert [getattr(message, "text", "") for message in preparation.messages_to_summarize] == ["one", "1", "two", "2"]
    assert [message.role for message in preparation.retained_tail] == ["assistant", "toolResult"]


def test_nothing_to_compact_is_an_error_before_any_request() -> None:
    """A short conversation is not sent to a model, and the error says what to change; an empty one has nothing to prepare."""
    session = session_of(user("hi"), answer("hello"))
    writer = Writer()
    with pytest.raises(HarnessError) as caught:
        compact(prepare(session, 20_000), Summarizer(MODEL, writer))
    assert str(caught.value) == (
        "nothing to compact: all of the conversation is within the last 20000 tokens; lower keep_recent_tokens to keep less"
    )
    assert caught.value.code == "nothing_to_compact"
    assert writer.prompts == []
    assert prepare_compaction([]) is None


def test_a_second_compaction_takes_up_what_the_first_kept() -> None:
    """C086: ten messages kept by the first compaction are in the second one's request or still there; so is its summary."""
    turns = [message for turn in range(10) for message in (user(f"question {turn}"), answer(f"answer {turn}"))]
    session = session_of(*turns)
    kept = sum(map(estimate_tokens, turns[10:]))
    store(session, compact(prepare(session, kept), Summarizer(MODEL, Writer("FIRST"))))
    assert [getattr(m, "text", None) for m in session.build_context().messages[1:]] == [m.text for m in turns[10:]]
    session.append_message(user("and now"))
    session.append_message(answer("now this"))
    writer = Writer("SECOND")
    store(session, compact(prepare(session, 3), Summarizer(MODEL, writer)))
    (prompt,) = writer.prompts
    assert "<previous-summary>\nFIRST\n</previous-summary>" in prompt
    context = session.build_context().messages
    left = [message.text for message in context[1:] if isinstance(message, (UserMessage, AssistantMessage))]
    for message in [*turns[10:], user("and now"), answer("now this")]:
        assert message.text in prompt or message.text in left, message.text
    first = context[0]
    assert isinstance(first, CompactionSummaryMessage) and first.summary == "SECOND"
    assert "question 4" not in prompt


def test_a_split_turn_right_after_a_compaction_keeps_the_earlier_summary() -> None:
    """C086: where only the beginning of a turn is to be summarised, the earlier summary stays word for word."""
    session = session_of(user("old"), answer("old answer"), user("kept"))
    session.append_compaction("THE EARLIER SUMMARY", retained_tail=[])
    for message in (user("a big turn"), answer("working", "a"), result("a", 50), answer("x" * 4000)):
        session.append_message(message)
    preparation = prepare(session, 500)
    assert (preparation.messages_to_summarize, preparation.is_split_turn) == ([], True)
    made = compact(preparation, Summarizer(MODEL, Writer("THE PREFIX")))
    assert made.summary.startswith("THE EARLIER SUMMARY\n\n---\n\n**Turn Context (split turn):**\n\nTHE PREFIX")


def test_an_old_usage_does_not_start_a_compaction_again() -> None:
    """C088: after a compaction, the 190k that were counted before it are not the size of the context."""
    session = session_of(user("one"), answer("1"), user("two"), answer("2", total_tokens=190_000))
    settings = CompactionSettings(keep_recent_tokens=1)
    before = estimate_context_tokens(session.build_context().messages)
    assert should_compact(before.tokens, 200_000, settings)
    store(session, compact(prepare(session, 1), Summarizer(MODEL, Writer("SUMMARY", "PREFIX"))))
    messages = session.build_context().messages
    assert [message.role for message in messages] == ["compactionSummary", "assistant"]
    session.append_message(user("short"))
    after = estimate_context_tokens(session.build_context().messages)
    assert after.last_usage_index is None
    assert not should_compact(after.tokens, 200_000, settings)


def test_an_answer_of_the_same_millisecond_as_the_compaction_is_old() -> None:
    """C088: a clock that stands still does not make an old usage count."""
    kept = AssistantMessage([TextContent("x")], usage=Usage(total_tokens=190_000), timestamp=1000)
    assert estimate_context_tokens([CompactionSummaryMessage("s", 190_000, 1000), kept]).last_usage_index is None
    fresh = AssistantMessage([TextContent("x")], usage=Usage(total_tokens=50), timestamp=1001)
    assert estimate_context_tokens([CompactionSummaryMessage("s", 190_000, 1000), kept, fresh]).tokens == 50


def test_an_answer_without_usage_is_guessed() -> None:
    """C088: a server that counts nothing does not hide the size of the context."""
    messages: list[AgentMessage] = [user("x" * 400), answer("y" * 400)]
    assert estimate_context_tokens(messages).tokens == 200


def test_a_cut_never_falls_between_a_call_and_its_result() -> None:
    """Also where a message of the user or an extension stands between the two."""
    session = session_of(
        user("go"),
        answer("calling", "a", "b"),
        result("a", 100),
        CustomMessage("note", "in between " * 50),
        result("b", 100),
        answer("done"),
    )
    entries = session.get_branch()
    for keep in range(0, 400, 7):
        assert find_cut_point(entries, keep).first_kept_entry_index in (0, 1, 5), keep


@pytest.mark.parametrize("seed", range(20))
def test_no_compaction_tears_calls_from_results_or_loses_a_message(seed: int) -> None:
    """Whatever is kept and whenever: each message is in a request or in the context, and every context is well-formed."""
    chance = random.Random(seed)
    session = Session(MemorySessionStorage())
    said: list[str] = []
    prompts: list[str] = []
    number = 0
    for _ in range(60):
        number += 1
        text = f"<{number}>"
        said.append(text)
        kind = chance.choice(["user", "answer", "calls", "custom"])
        if kind == "user":
            session.append_message(user(text + "u" * chance.randrange(300)))
        elif kind == "answer":
            session.append_message(answer(text))
        elif kind == "custom":
            session.append_custom_message_entry("note", text, display=True)
        else:
            ids = [chance.choice("abcd") + str(number) for _ in range(chance.randrange(1, 4))]
            ids = list(dict.fromkeys(ids))
            session.append_message(answer(text, *ids))
            for id in ids:
                session.append_message(result(id, chance.randrange(200)))
        if chance.random() < 0.2:
            preparation = prepare_compaction(
                session.get_branch(), CompactionSettings(keep_recent_tokens=chance.choice([0, 10, 100, 500]))
            )
            if preparation is None or not preparation.has_work:
                continue
            writer = Writer("SUMMARY", "PREFIX")
            store(session, compact(preparation, Summarizer(MODEL, writer)))
            prompts += writer.prompts
        messages = session.build_context().messages
        assert pair_tool_results(messages) == messages
    seen = "".join(prompts) + "".join(getattr(message, "text", "") for message in session.build_context().messages)
    assert [text for text in said if text not in seen] == []


def test_an_empty_summary_is_refused() -> None:
    """A model that says nothing does not make the history vanish."""
    session = session_of(user("one"), answer("1"), user("two"))
    for text in ("", "  \n"):
        with pytest.raises(HarnessError, match="test-model gave an empty summary; nothing was changed") as caught:
            compact(prepare(session, 1), Summarizer(MODEL, Writer(text)))
        assert caught.value.code == "summarization_failed"


def test_the_request_of_a_summary() -> None:
    """No tools, no cache, an own session id, thinking as set, a length that fits; options of the caller are kept, not changed."""
    session = session_of(user("one"), answer("1"), user("two"))
    mine = StreamOptions(headers={"x-team": "blue"}, session_id="mine", timeout=5)
    controller = AbortController()
    writer = Writer("SUMMARY")
    summarizer = Summarizer(
        MODEL,
        writer,
        thinking_level="high",
        options=mine,
        get_api_key=lambda provider: f"key of {provider}",
        signal=controller.signal,
    )
    compact(prepare(session, 1), summarizer, "the tests")
    (options,) = writer.options
    assert (options.max_tokens, options.cache_retention, options.reasoning, options.timeout) == (13107, "none", "high", 5)
    assert options.headers == {"x-team": "blue"} and options.api_key == "key of test"
    assert options.session_id not in (None, "mine") and mine.session_id == "mine"
    assert options.signal is controller.signal
    (prompt,) = writer.prompts
    assert prompt == (
        f"<conversation>\n[User]: one\n\n[Assistant]: 1\n</conversation>\n\n{INITIAL_INSTRUCTIONS}\n\nAdditional focus: the tests"
    )


def test_a_later_summary_updates_the_earlier_one() -> None:
    """The earlier summary stands behind the conversation, and the model is asked to bring it up to date."""
    session = session_of(user("one"), answer("1"))
    session.append_compaction("EARLIER", retained_tail=[])
    for message in (user("two"), answer("2"), user("three")):
        session.append_message(message)
    writer = Writer("LATER")
    compact(prepare(session, 1), Summarizer(MODEL, writer))
    assert writer.prompts[0].endswith(
        f"</conversation>\n\n<previous-summary>\nEARLIER\n</previous-summary>\n\n{UPDATE_INSTRUCTIONS}"
    )


def test_a_summary_that_breaks_off_is_asked_for_again() -> None:
    """With a retry policy; who listens hears of each pause, each start and the end."""
    session = session_of(user("one"), answer("1"), user("two"))
    heard: list[Any] = []
    listener = RetryListener(
        lambda event: heard.append(("scheduled", event.attempt, event.max_retries, event.error_message)),
        lambda: heard.append("start"),
        lambda success, attempt, error: heard.append(("finished", success, attempt, error)),
    )
    writer = Writer(failed("503"), failed("503 again"), "SUMMARY")
    made = compact(prepare(session, 1), Summarizer(MODEL, writer, retry=RetryPolicy(3, 0.001), listener=listener))
    assert made.summary == "SUMMARY"
    assert heard == [
        ("scheduled", 1, 3, "503"),
        "start",
        ("scheduled", 2, 3, "503 again"),
        "start",
        ("finished", True, 2, None),
    ]
    assert len({options.session_id for options in writer.options}) == 1


def test_the_two_retries_do_not_stack() -> None:
    """A failure before the answer began has been tried again below, and is final here."""
    session = session_of(user("one"), answer("1"), user("two"))
    writer = Writer(failed("503"), "SUMMARY", is_begun=False)
    with pytest.raises(HarnessError, match="the conversation could not be summarised: 503"):
        compact(prepare(session, 1), Summarizer(MODEL, writer, retry=RetryPolicy(3, 0.001)))
    assert len(writer.prompts) == 1


def test_an_abort_ends_the_pause() -> None:
    """An abort in the pause before a new try ends the compaction at once; the failed try is what the listener hears of."""
    session = session_of(user("one"), answer("1"), user("two"))
    controller = AbortController()
    heard: list[Any] = []
    listener = RetryListener(
        on_scheduled=lambda event: controller.abort("enough"),
        on_finished=lambda success, attempt, error: heard.append((success, attempt, error)),
    )
    summarizer = Summarizer(MODEL, Writer(failed("503")), signal=controller.signal, retry=RetryPolicy(1, 600), listener=listener)
    with pytest.raises(HarnessError, match="summarising the conversation was aborted") as caught:
        compact(prepare(session, 1), summarizer)
    assert caught.value.code == "aborted"
    assert heard == [(False, 1, "503")]


def test_what_a_stream_function_raises_comes_as_it_is() -> None:
    """A bug in a custom stream function is not dressed up."""

    def broken(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        raise RuntimeError("socket closed")

    session = session_of(user("one"), answer("1"), user("two"))
    with pytest.raises(RuntimeError, match="socket closed"):
        compact(prepare(session, 1), Summarizer(MODEL, broken))


def test_settings_fit_a_small_window() -> None:
    """In a window smaller than the reserve, half is reserved and a quarter kept, so that a short context is not compacted."""
    fitted = CompactionSettings().fit(8192)
    assert (fitted.reserve_tokens, fitted.keep_recent_tokens) == (4096, 2048)
    assert not should_compact(100, 8192, fitted)
    assert CompactionSettings().fit(200_000) == CompactionSettings()
    assert CompactionSettings().fit(0) == CompactionSettings()


def test_an_unknown_window_is_never_full() -> None:
    """A model whose window is not known (0) is not compacted on its own account."""
    assert not should_compact(10**9, 0, CompactionSettings())


def test_the_branch_that_is_left_is_found_across_a_compaction() -> None:
    """All entries down to the common ancestor are collected, those before a compaction too."""
    session = session_of(user("root"))
    root = session.get_leaf_id()
    assert root is not None
    session.append_message(user("left"))
    session.append_compaction("SUMMARY", retained_tail=[])
    leaf = session.append_message(answer("left answer"))
    branch = collect_branch_entries(session, leaf, root)
    assert [entry.type for entry in branch.entries] == ["message", "compaction", "message"]
    assert branch.common_ancestor_id == root
    writer = Writer("FOUND")
    made = generate_branch_summary(branch.entries, Summarizer(MODEL, writer, thinking_level="high"))
    assert made.summary.endswith("Summary of that exploration:\n\nFOUND")
    assert "left answer" in writer.prompts[0] and "SUMMARY" in writer.prompts[0]
    assert writer.options[0].reasoning is None


def test_a_long_path_is_cut_in_linear_time() -> None:
    """A path twenty times as long takes about twenty times as long."""

    def seconds(turns: int) -> float:
        session = Session(MemorySessionStorage())
        for number in range(turns):
            session.append_message(user("question"))
            session.append_message(answer("calling", f"c{number}"))
            session.append_message(result(f"c{number}", 10))
            session.append_message(answer("done"))
        entries = session.get_branch()
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            preparation = prepare_compaction(entries, CompactionSettings(keep_recent_tokens=100))
            best = min(best, time.perf_counter() - start)
            assert preparation is not None and len(preparation.messages_to_summarize) > 4 * turns - 60
        return best

    # If it were quadratic, this would be 400 times as long. The rest is for a busy machine and the garbage collector.
    assert seconds(2000) < 120 * seconds(100)
