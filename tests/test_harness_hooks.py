"""Handlers: who is asked, in which order, what each of them sees, and what becomes of one that raises."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AgentHarness,
    AgentRunError,
    HarnessError,
    Model,
    StreamOptions,
    TextContent,
    ToolResultMessage,
    UserMessage,
    tool,
)
from agentcore.harness import (
    BeforeAgentStartEvent,
    BeforeAgentStartResult,
    BeforeProviderPayloadEvent,
    BeforeProviderPayloadResult,
    BeforeProviderRequestEvent,
    BeforeProviderRequestResult,
    ContextEvent,
    ContextResult,
    HandlerErrorEvent,
    SessionBeforeCompactResult,
    SessionBeforeTreeResult,
    ToolCallEvent,
    ToolResultEvent,
)
from agentcore.harness.events import NOTIFICATIONS, QUESTIONS
from agentcore.harness.hooks import patch_options
from agentcore.llm.request import Context, ProviderResponse
from agentcore.loop.config import AfterToolCallResult, BeforeToolCallResult
from agentcore.testing import calls, says, scripted_stream
from agentcore.testing.stream import ScriptedStream

MODEL = Model("m", provider="p", context_window=100_000)


@tool
def echo(text: str) -> str:
    """Give a text back."""
    return text


def make(*turns: Any, **options: Any) -> tuple[AgentHarness, ScriptedStream]:
    stream = scripted_stream(*turns)
    return AgentHarness(model=MODEL, stream_fn=stream, retry=None, **options), stream


def results(harness: AgentHarness) -> list[ToolResultMessage]:
    return [message for message in harness.messages if isinstance(message, ToolResultMessage)]


def test_result_handlers_are_applied_in_order() -> None:
    """C112: one handler appends a text, the next one sets the error flag on what the first has left; both hold."""
    harness, _ = make(calls("echo", text="one"), says("ok"), tools=[echo])
    seen: list[tuple[str, bool]] = []

    def append(event: ToolResultEvent) -> AfterToolCallResult:
        return AfterToolCallResult(content=[*event.content, TextContent("two")])

    def mark(event: ToolResultEvent) -> dict[str, Any]:
        seen.append(("".join(block.text for block in event.content if isinstance(block, TextContent)), event.is_error))
        return {"is_error": True}

    def look(event: ToolResultEvent) -> None:
        seen.append((event.result.content[-1].text, event.is_error))  # type: ignore[union-attr]

    for handler in (append, mark, look):
        harness.on("tool_result", handler)
    harness.run("go", timeout=10)
    [result] = results(harness)
    assert result.content == [TextContent("one"), TextContent("two")]
    assert result.is_error
    assert seen == [("onetwo", False), ("two", True)]


def test_a_handler_sees_the_prompt_of_the_one_before_it() -> None:
    """C113: handler A adds to the system prompt, B reads it; the model gets what B has left, for the whole run."""
    harness, stream = make(calls("echo", text="x"), says("ok"), says("later"), tools=[echo], system_prompt="Base.")
    seen: list[str] = []

    def b(event: BeforeAgentStartEvent) -> None:
        seen.append(event.system_prompt)

    harness.on("before_agent_start", lambda event: BeforeAgentStartResult(system_prompt=event.system_prompt + " From A."))
    harness.on("before_agent_start", b)
    harness.run("go", timeout=10)
    assert seen == ["Base. From A."]
    assert [context.system_prompt for context in stream.contexts] == ["Base. From A."] * 2


def test_a_tool_that_a_handler_adds_is_offered_at_once() -> None:
    """C113: a tool added before the run begins is in its first request, and can be called."""
    harness, stream = make(calls("echo", text="hi"), says("ok"))
    harness.on("before_agent_start", lambda event: harness.add_tools([echo]) and None)
    harness.run("go", timeout=10)
    assert [spec.name for spec in stream.contexts[0].tools or ()] == ["echo"]
    assert results(harness)[0].text == "hi"


def test_handlers_add_messages_behind_the_prompt() -> None:
    """The messages of all handlers are added, in the order of registration, and stored."""
    harness, stream = make(says("ok"))
    for text in ("one", "two"):
        harness.on("before_agent_start", lambda event, text=text: {"messages": [UserMessage(text)]})
    harness.run("go", timeout=10)
    assert [message.text for message in stream.requests[0]] == ["go", "one", "two"]
    assert [message.text for message in harness.session.build_context().messages[:3]] == ["go", "one", "two"]


def test_context_handlers_change_one_request_and_not_the_transcript() -> None:
    """Each gets the list that the one before it returned; a bare list is an answer too."""
    harness, stream = make(says("ok"))
    seen: list[int] = []

    def add(event: ContextEvent) -> list[Any]:
        return [*event.messages, UserMessage("reminder")]

    harness.on("context", add)
    harness.on("context", lambda event: seen.append(len(event.messages)))
    harness.run("go", timeout=10)
    assert [message.text for message in stream.requests[0]] == ["go", "reminder"]
    assert seen == [2]
    assert len(harness.messages) == 2


def test_a_call_can_be_blocked_and_a_later_handler_can_overrule() -> None:
    """The later handler sees what was decided, and its word counts."""
    harness, _ = make(calls("echo", text="a"), calls("echo", text="b"), says("ok"), tools=[echo])
    seen: list[tuple[bool | None, str | None]] = []

    def block(event: ToolCallEvent) -> BeforeToolCallResult:
        return BeforeToolCallResult(block=True, reason="not allowed")

    def overrule(event: ToolCallEvent) -> dict[str, Any] | None:
        seen.append((event.block, event.reason))
        return {"block": False} if event.input["text"] == "b" else None

    harness.on("tool_call", block)
    harness.on("tool_call", overrule)
    harness.run("go", timeout=10)
    assert [(result.text, result.is_error) for result in results(harness)] == [("not allowed", True), ("b", False)]
    assert seen == [(True, "not allowed")] * 2


def test_a_handler_may_change_the_arguments_in_place() -> None:
    """What a `tool_call` handler puts into `input` is what the tool gets."""
    harness, _ = make(calls("echo", text="a"), says("ok"), tools=[echo])
    harness.on("tool_call", lambda event: event.input.update(text="changed"))
    harness.run("go", timeout=10)
    assert results(harness)[0].text == "changed"


def test_a_guard_that_raises_keeps_the_call_from_being_run() -> None:
    """Fail closed: the tool is not run, later guards are not asked, the model reads why; the log names the handler."""
    ran: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note a text."""
        ran.append(text)
        return "noted"

    harness, _ = make(calls("note", text="a"), says("ok"), tools=[note])
    asked: list[str] = []

    def broken_guard(event: ToolCallEvent) -> None:
        raise ValueError("the list of rules is missing")

    harness.on("tool_call", broken_guard)
    harness.on("tool_call", lambda event: asked.append("later"))
    harness.run("go", timeout=10)
    assert (ran, asked) == ([], [])
    assert results(harness)[0].is_error
    assert "the list of rules is missing" in results(harness)[0].text


def test_a_handler_that_raises_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The log says which handler of which event it was."""
    harness, _ = make(says("ok"))

    def my_broken_handler(event: Any) -> None:
        raise ValueError("oops")

    harness.on("context", my_broken_handler)
    with caplog.at_level(logging.WARNING, "agentcore"), pytest.raises(AgentRunError, match="oops"):
        harness.run("go", timeout=10)
    assert any("context" in record.getMessage() and "my_broken_handler" in record.getMessage() for record in caplog.records)


def test_a_run_that_a_handler_refuses_has_not_happened() -> None:
    """`before_agent_start` raises: the run fails with code `hook`, nothing is stored, no model is asked, the harness is idle."""
    harness, stream = make(says("ok"))
    remove = harness.on("before_agent_start", _raise("not now"))
    harness.next_turn("kept")
    with pytest.raises(HarnessError, match="not now") as caught:
        harness.run("go", timeout=10)
    assert caught.value.code == "hook"
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert harness.session.get_entries() == []
    assert stream.requests == []
    assert [message.text for message in harness.queued_messages().next_turn] == ["kept"]
    remove()
    harness.run("again", timeout=10)
    assert [message.text for message in stream.requests[0]] == ["kept", "again"]


def _raise(text: str) -> Callable[..., Any]:
    def handler(event: Any) -> None:
        raise RuntimeError(text)

    return handler


def test_notifications_reach_handlers_and_a_broken_one_stops_nobody() -> None:
    """The others are told, the run goes on, and an event names the handler, the event and the error."""
    harness, _ = make(says("ok"))
    told: list[str] = []
    errors: list[HandlerErrorEvent] = []

    def broken(event: Any) -> None:
        raise RuntimeError("no disk")

    harness.on("save_point", broken)
    harness.on("save_point", lambda event: told.append(event.type))
    harness.on("settled", lambda event: told.append(event.type))
    harness.on("handler_error", errors.append)
    assert harness.run("go", timeout=10).text == "ok"
    assert told == ["save_point", "settled"]
    [error] = errors
    assert (error.event_type, error.error_message) == ("save_point", "no disk")
    assert error.handler.endswith("broken")
    assert isinstance(error.error, RuntimeError)
    assert "error" not in error.to_dict()


def test_handlers_of_run_events_are_told_too() -> None:
    """`on` takes every type: also those of the run itself."""
    harness, _ = make(calls("echo", text="a"), says("ok"), tools=[echo])
    told: list[str] = []
    for kind in ("agent_start", "turn_end", "tool_execution_end", "agent_end"):
        harness.on(kind, lambda event: told.append(event.type))
    harness.run("go", timeout=10)
    assert told == ["agent_start", "tool_execution_end", "turn_end", "turn_end", "agent_end"]


def test_a_removed_handler_is_not_asked() -> None:
    """Removing takes hold at once, and twice is harmless."""
    harness, stream = make(says("ok"), says("ok"))
    remove = harness.on("context", lambda event: [*event.messages, UserMessage("extra")])
    harness.run("one", timeout=10)
    remove()
    remove()
    harness.run("two", timeout=10)
    assert [len(request) for request in stream.requests] == [2, 3]


def test_a_misspelt_type_is_refused() -> None:
    """The error proposes the type that was meant."""
    harness, _ = make()
    with pytest.raises(ValueError, match="unknown event type 'tool_cal': did you mean 'tool_call'"):
        harness.on("tool_cal", print)
    with pytest.raises(TypeError, match="a handler of 'context' gets at most 2 arguments"):
        harness.on("context", lambda a, b, c: None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            42,
            "returned a value of type int: it must return a BeforeAgentStartResult, a mapping with messages, system_prompt",
        ),
        ({"prompt": "x"}, r"returned unknown keys \(prompt\): a BeforeAgentStartResult has messages, system_prompt"),
    ],
)
def test_a_wrong_answer_says_what_is_wanted(answer: Any, text: str) -> None:
    """A handler that returns something else fails what it was asked about, with a text that says what to return."""
    harness, _ = make(says("ok"))
    harness.on("before_agent_start", lambda event: answer)
    with pytest.raises(HarnessError, match=text):
        harness.run("go", timeout=10)


def test_requests_are_changed_by_handlers_in_turn() -> None:
    """Changes are merged key by key, None takes a key away, and the harness's own options stay as they are."""
    own = StreamOptions(headers={"keep": "1", "drop": "2"}, max_retries=5, timeout=9)
    harness, stream = make(says("ok"), says("ok"), stream_options=own)
    seen: list[Any] = []

    def first(event: BeforeProviderRequestEvent) -> dict[str, Any]:
        return {"stream_options": {"headers": {"drop": None, "added": "3"}, "timeout": 1.5}}

    def second(event: BeforeProviderRequestEvent) -> dict[str, Any]:
        seen.append((event.session_id, event.stream_options.headers))
        return {"stream_options": {"max_retries": None}}

    removals = [harness.on("before_provider_request", handler) for handler in (first, second)]
    harness.run("go", timeout=10)
    made = stream.options[0]
    assert (made.headers, made.timeout, made.max_retries) == ({"keep": "1", "added": "3"}, 1.5, 2)
    assert seen == [(harness.session.id, {"keep": "1", "added": "3"})]
    for remove in removals:
        remove()
    harness.run("again", timeout=10)
    assert (stream.options[1].headers, stream.options[1].max_retries) == ({"keep": "1", "drop": "2"}, 5)
    assert own.headers == {"keep": "1", "drop": "2"}


def test_options_can_be_replaced_as_a_whole() -> None:
    """A handler may return options of its own."""
    other = StreamOptions(timeout=3)
    assert patch_options(StreamOptions(), other) is other
    assert patch_options(StreamOptions(headers={"a": "1"}), {"headers": None}).headers is None
    assert patch_options(StreamOptions(headers={"a": "1"}), {"headers": {"a": None}}).headers is None
    with pytest.raises(TypeError, match="there is no stream option 'tiemout': StreamOptions has"):
        patch_options(StreamOptions(), {"tiemout": 1})


def test_the_body_and_the_headers_of_a_request() -> None:
    """`before_provider_payload` replaces the body, each handler seeing the last one; `after_provider_response` is told."""
    sent: list[Any] = []
    told: list[Any] = []

    def stream(model: Model, context: Context, options: StreamOptions) -> Any:
        assert options.on_payload is not None and options.on_response is not None
        sent.append(options.on_payload({"n": 1}, model))
        options.on_response(ProviderResponse(200, {"x": "y"}), model)
        return scripted_stream(says("ok"))(model, context, options)

    own: list[Any] = []
    options = StreamOptions(on_payload=lambda payload: {**payload, "own": True}, on_response=own.append)
    harness = AgentHarness(model=MODEL, stream_fn=stream, stream_options=options)

    def add(event: BeforeProviderPayloadEvent) -> dict[str, Any]:
        return {"payload": {**event.payload, "a": len(event.payload)}}

    harness.on("before_provider_payload", add)
    harness.on("before_provider_payload", lambda event: event.payload.update(b=len(event.payload)))
    harness.on("after_provider_response", lambda event: told.append((event.status, event.headers)))
    harness.run("go", timeout=10)
    assert sent == [{"n": 1, "own": True, "a": 2, "b": 3}]
    assert told == [(200, {"x": "y"})]
    assert [response.status for response in own] == [200]


@pytest.mark.parametrize(
    ("kind", "answer", "text"),
    [
        (
            "before_agent_start",
            {"messages": ["hello"]},
            "returned messages of type list: messages must be a list of messages, or None",
        ),
        ("before_agent_start", {"system_prompt": 5}, "returned system_prompt of type int: system_prompt must be a text, or None"),
        ("context", ContextResult([1]), "returned messages of type list: messages must be a list of messages, or None"),  # type: ignore[list-item]
        ("context", {"messages": 5}, "returned messages of type int: messages must be a list of messages, or None"),
        (
            "before_provider_request",
            {"stream_options": 5},
            "returned stream_options of type int: stream_options must be StreamOptions",
        ),
        ("tool_call", {"block": "no"}, "returned block of type str: block must be True or False, or None"),
        ("tool_call", {"block": True, "reason": 5}, "returned reason of type int: reason must be a text, or None"),
        ("tool_result", {"usage": 5}, "returned usage of type int: usage must be a Usage, or None"),
        ("tool_result", {"content": [5]}, "returned content of type list: content must be a list of TextContent and ImageContent"),
        (
            "session_before_compact",
            {"compaction": "short"},
            "returned compaction of type str: compaction must be a CompactionResult",
        ),
        ("session_before_tree", {"label": 5}, "returned label of type int: label must be a text, or None"),
        ("session_before_tree", {"summary": 5}, "returned summary of type int: summary must be a BranchSummary or a text, or None"),
    ],
)
def test_a_wrong_value_in_an_answer_is_told_and_not_stored(kind: str, answer: Any, text: str) -> None:
    """The session holds nothing that cannot be read again; the text names the handler, the field and the way out."""
    harness, _ = make(calls("echo", text="hi"), says("ok"), says("summary"), tools=[echo])
    if kind.startswith("session"):
        harness.run("go", timeout=10)

    def broken(event: Any) -> Any:
        return answer

    harness.on(kind, broken)
    said = ""
    try:
        if kind == "session_before_compact":
            harness.compact()
        elif kind == "session_before_tree":
            harness.navigate_tree(harness.session.get_entries()[0].id)
        else:
            harness.run("go", timeout=10)
        said = " ".join(message.error or "" for message in harness.messages if isinstance(message, ToolResultMessage))
    except (HarnessError, AgentRunError) as error:
        said = str(error)
    assert f"the {kind} handler " in said
    assert text in said
    assert len(harness.session.build_context().messages) == len(harness.messages)


def test_a_text_as_content_is_a_block_for_the_next_handler() -> None:
    """A handler may answer with a text in place of blocks; whoever comes after it sees blocks."""
    harness, _ = make(calls("echo", text="hi"), says("ok"), tools=[echo])
    seen: list[Any] = []
    harness.on("tool_result", lambda event: {"content": "short"})
    harness.on("tool_result", lambda event: seen.append(event.content))
    harness.run("go", timeout=10)
    assert seen == [[TextContent("short")]]
    assert harness.messages[2].text == "short"  # type: ignore[union-attr]


def test_the_readme_names_every_type() -> None:
    """Each question stands in its table with the fields that an answer may hold; each event of the harness stands behind it."""
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    section = readme.partition("## The harness")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]+)\|$", section, re.MULTILINE))
    assert sorted(rows) == sorted(QUESTIONS)
    for kind, result in RESULTS.items():
        named = re.findall(r"`(\w+)`", rows[kind])
        assert sorted(named) == sorted(item.name for item in fields(result)), kind
    of_runs = {"agent", "turn", "message", "tool_execution", "retry"}
    told = {kind for kind in NOTIFICATIONS if kind != "retry" and kind.removesuffix(f"_{kind.split('_')[-1]}") not in of_runs}
    assert sorted(kind for kind in told | {"retry_scheduled"} if f"`{kind}`" not in section) == []


RESULTS: dict[str, Any] = {
    "before_agent_start": BeforeAgentStartResult,
    "context": ContextResult,
    "before_provider_request": BeforeProviderRequestResult,
    "before_provider_payload": BeforeProviderPayloadResult,
    "tool_call": BeforeToolCallResult,
    "tool_result": AfterToolCallResult,
    "session_before_compact": SessionBeforeCompactResult,
    "session_before_tree": SessionBeforeTreeResult,
}
