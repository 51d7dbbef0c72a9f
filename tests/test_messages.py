"""Messages, their blocks, usage, models and events: what they take, and what they say."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, get_args

import pytest

import agentcore
from agentcore import (
    AgentToolResult,
    AgentToolResultMutable,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Cost,
    CustomMessage,
    ImageContent,
    Model,
    OtherMessage,
    TextContent,
    TextDeltaEvent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    events,
)
from agentcore.custom_messages import bash_execution_to_text, iso_to_ms
from agentcore.messages import content_text
from agentcore.models import THINKING_LEVELS

pytestmark = pytest.mark.pythons


def test_a_user_message_takes_a_string() -> None:
    """A string becomes one text block; the attribute is always a list; the time is filled in."""
    before = time.time_ns() // 1_000_000
    message = UserMessage("hi")
    assert message.content == [TextContent("hi")]
    assert before <= message.timestamp <= time.time_ns() // 1_000_000
    assert (message.role, message.text) == ("user", "hi")


def test_a_user_message_takes_blocks_of_any_sequence() -> None:
    """A tuple will do; the message has a list of its own."""
    blocks = [TextContent("see "), ImageContent("QQ==", "image/png"), TextContent("this")]
    message = UserMessage(blocks)
    assert message.content == blocks and message.content is not blocks
    assert UserMessage(tuple(blocks)).content == blocks
    assert message.text == "see this"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (5, "content must be a string or a list of blocks, not int"),
        ([{"type": "text"}], "content must hold TextContent and ImageContent, not dict"),
        ([ToolCall("c", "t")], "content must hold TextContent and ImageContent, not ToolCall"),
        (b"hi", "content must hold TextContent and ImageContent, not int"),
    ],
)
def test_other_content_is_refused(content: Any, text: str) -> None:
    """The error names what it got."""
    for make in (UserMessage, lambda value: CustomMessage("note", value)):
        with pytest.raises(TypeError) as caught:
            make(content)
        assert str(caught.value) == text


def test_a_custom_message_is_read_as_a_user_message() -> None:
    """`message` has the same content and time."""
    custom = CustomMessage("note", "remember", timestamp=5)
    assert custom.message == UserMessage("remember", 5)
    assert (custom.custom_type, custom.text, custom.display, custom.role) == ("note", "remember", True, "custom")


def test_an_answer_shows_its_text_and_its_calls() -> None:
    """`text` joins the text blocks; `tool_calls` are in the model's order; thinking is neither."""
    calls = [ToolCall("a", "read"), ToolCall("b", "ls")]
    answer = AssistantMessage([ThinkingContent("hm"), TextContent("x"), calls[0], TextContent("y"), calls[1]])
    assert answer.text == "xy"
    assert answer.tool_calls == calls


def test_a_failed_result_has_an_error() -> None:
    """`error` is the text where the call failed, else None."""
    assert ToolResultMessage("c", "t", [TextContent("no such file")], is_error=True).error == "no such file"
    assert ToolResultMessage("c", "t", [TextContent("fine")]).error is None


def test_lists_and_dicts_are_not_shared() -> None:
    """A default belongs to one message alone."""
    AssistantMessage().content.append(TextContent("x"))
    ToolCall("a", "t").arguments["x"] = 1
    AgentToolResult().content.append(TextContent("x"))
    assert (AssistantMessage().content, ToolCall("b", "t").arguments, AgentToolResult().content) == ([], {}, [])
    assert AssistantMessage().usage is not AssistantMessage().usage


def test_usages_add_up() -> None:
    """Every field is added; an optional one stays None where neither has it."""
    one = Usage(1, 2, 3, 4, 10, Cost(0.5, 1, 1.5, 2, 5), reasoning=2)
    other = Usage(10, 20, 30, 40, 100, Cost(1, 2, 3, 4, 10), cache_write_1h=7)
    assert one + other == Usage(11, 22, 33, 44, 110, Cost(1.5, 3, 4.5, 6, 15), reasoning=2, cache_write_1h=7)
    assert sum([one, other], Usage()) == one + other
    with pytest.raises(TypeError):
        one + 1  # type: ignore[operator]


def test_content_text_joins_with_a_line_break() -> None:
    """As the reference's; a string is its own text."""
    assert content_text([TextContent("a"), ImageContent("", "image/png"), TextContent("b")]) == "a\nb"
    assert content_text("as it is") == "as it is"


def test_the_fields_are_those_of_the_seeds_in_their_order() -> None:
    """Positional arguments mean what the documents say; the tag comes last."""
    fields = {
        cls: [field.name for field in dataclasses.fields(cls)]
        for cls in (ToolCall, AssistantMessage, ToolResultMessage, AgentToolResult, agentcore.BashExecutionMessage)
    }
    assert fields[ToolCall][:4] == ["id", "name", "arguments", "partial_json"]
    assert fields[AssistantMessage][:8] == [
        "content",
        "api",
        "provider",
        "model",
        "usage",
        "stop_reason",
        "error_message",
        "timestamp",
    ]
    assert fields[ToolResultMessage] == [
        "tool_call_id", "tool_name", "content", "details", "usage", "added_tool_names", "is_error", "timestamp", "role",
    ]  # fmt: skip
    assert fields[AgentToolResult] == ["content", "details", "usage", "added_tool_names", "terminate"]
    assert fields[agentcore.BashExecutionMessage] == [
        "command", "output", "exit_code", "cancelled", "truncated", "full_output_path", "timestamp", "exclude_from_context", "role",
    ]  # fmt: skip
    assert AgentToolResultMutable is AgentToolResult
    assert ToolCall("c", "t").type == "tool"


def test_events_are_frozen_and_messages_are_not() -> None:
    """Many listeners share one event, so nobody may change it."""
    event = TextDeltaEvent(0, "x", AssistantMessage())
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.delta = "y"  # type: ignore[misc]
    event.partial.error_message = "messages may change"


def test_every_event_has_a_tag_of_its_own() -> None:
    """The two unions know each event of the module, and no two have one tag."""
    union = {*get_args(events.AssistantMessageEvent), *get_args(events.AgentEvent)}
    classes = {value for name, value in vars(events).items() if isinstance(value, type) and name.endswith("Event")}
    assert union == classes
    tags = [next(field.default for field in dataclasses.fields(cls) if field.name == "type") for cls in union]
    assert len(set(tags)) == len(tags)
    assert all(getattr(agentcore, cls.__name__) is cls for cls in classes)


def test_the_last_event_knows_why_the_answer_ended() -> None:
    """`reason` is the message's stop reason."""
    assert agentcore.DoneEvent(AssistantMessage(stop_reason="toolUse")).reason == "toolUse"
    assert agentcore.ErrorEvent(AssistantMessage(stop_reason="aborted")).reason == "aborted"


def test_a_model_needs_an_id() -> None:
    """The name is the id unless it is given; an empty id is refused with a hint; headers are in no repr."""
    assert Model("gpt-5-mini").name == "gpt-5-mini"
    assert Model("gpt-5-mini", "GPT").name == "GPT"
    for wrong in ("", None, 5):
        with pytest.raises(ValueError, match="a model needs an id, such as"):
            Model(wrong)  # type: ignore[arg-type]
    assert "SECRET" not in repr(Model("m", headers={"x-api-key": "SECRET"}))
    for address in ("https://me:SECRET@host/v1", "https://host/v1?key=SECRET", "https://host/v1?a=b&api_token=SECRET#x"):
        assert "SECRET" not in repr(Model("m", base_url=address))
    assert repr(Model("m", base_url="https://host/v1?a=b")) == (
        "Model(id='m', name='m', api='openai-completions', provider='', base_url='https://host/v1?a=b', reasoning=False, "
        "input=['text'], cost=ModelCost(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0, tiers=None), context_window=0, "
        "max_tokens=0, compat=None, thinking_level_map=None)"
    )
    assert THINKING_LEVELS == ("off", "minimal", "low", "medium", "high", "xhigh", "max")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-02T03:04:05.678Z", 1767323045678),
        ("2026-01-02T03:04:05Z", 1767323045000),
        ("2026-01-02T03:04:05.6Z", 1767323045600),
        ("2026-01-02T03:04:05.678901234+00:00", 1767323045678),
        ("2026-01-02T03:04:05+02:00", 1767315845000),
        ("2026-01-02T03:04:05.678", 1767323045678),
        ("1970-01-01T00:00:00.000Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("yesterday", 0),
        ("", 0),
    ],
)
def test_times_of_session_entries(text: str, ms: int) -> None:
    """ISO text becomes milliseconds on every Python; what cannot be read is 0."""
    assert iso_to_ms(text) == ms


def test_a_text_is_content_of_a_tool_result_too() -> None:
    """A string becomes one text block; what is neither text nor an image is refused where it is given, not at the provider's."""
    assert AgentToolResult("plain").content == [TextContent("plain")] and AgentToolResult("plain").text == "plain"
    assert AgentToolResult() == AgentToolResult([])
    with pytest.raises(TypeError, match="content must hold TextContent and ImageContent, not str"):
        AgentToolResult(["plain"])  # type: ignore[list-item]


def test_every_message_of_a_transcript_has_a_text() -> None:
    """What a person or a model reads of it."""
    assert BashExecutionMessage("ls", "a").text == bash_execution_to_text(BashExecutionMessage("ls", "a"))
    assert CompactionSummaryMessage("short", 5).text == BranchSummaryMessage("short", "e1").text == "short"
    assert OtherMessage("memo", {"text": "note"}).text == "note" and OtherMessage("memo", {"text": 1}).text == ""


def test_a_tool_result_of_wrong_parts_is_refused() -> None:
    """Where it is made: a session could store it, and nobody could read it again."""
    with pytest.raises(TypeError, match=r"the usage of a tool result must be a Usage\(…\) or None, not int"):
        AgentToolResult("x", usage=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the added_tool_names of a tool result must be a list of names or None"):
        AgentToolResult("x", added_tool_names="read")  # type: ignore[arg-type]
