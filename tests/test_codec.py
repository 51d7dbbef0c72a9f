"""The JSON codec: pi's words in files, ours in memory; nothing a tool can return breaks it."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import agentcore
from agentcore import (
    AgentEndEvent,
    AgentToolResult,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    DoneEvent,
    ImageContent,
    MessageEndEvent,
    MessageUpdateEvent,
    Model,
    ModelCost,
    OtherMessage,
    RetryEvent,
    TextContent,
    TextDeltaEvent,
    ThinkingContent,
    ToolCall,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.codec import Json, camel_case, decode, decode_tagged, dumps, encode

pytestmark = pytest.mark.pythons

ANSWER = AssistantMessage(
    content=[
        ThinkingContent("hm", thinking_signature="sig", redacted=False),
        TextContent("Let me look.", text_signature="ts"),
        ToolCall("c1", "read", {"path": "a.txt", "limit": None, "deep": {"none": None, "list": [None, 1]}}, thought_signature="th"),
    ],
    api="openai-completions",
    provider="openai",
    model="m",
    usage=Usage(input=10, output=5, cache_read=2, total_tokens=17, reasoning=3, cache_write_1h=4),
    stop_reason="toolUse",
    timestamp=1000,
    response_id="r1",
)

EVERYTHING: list[Json] = [
    UserMessage([TextContent("hi"), ImageContent("QQ==", "image/png")], 1),
    ANSWER,
    AssistantMessage(stop_reason="error", error_message="no", timestamp=2),
    ToolResultMessage("c1", "read", [TextContent("r")], {"exit": None}, Usage(input=1), ["write"], True, 3),
    ToolResultMessage("c1", "read", [], timestamp=3),
    AgentToolResult([TextContent("x")], {"a": [1, None]}, terminate=True),
    BashExecutionMessage("ls", "a\n", 0, False, True, "/full", 4, True),
    CompactionSummaryMessage("sum", 100, 5),
    BranchSummaryMessage("sum", "e1", 6),
    CustomMessage("note", "remember", False, {"x": None}, 7),
    OtherMessage("mine", {"text": "x", "nested": {"snake_key": None}}, 8),
    AgentEndEvent([UserMessage("a", 1), ANSWER, OtherMessage("mine", {"k": 1}, 9)]),
    MessageEndEvent(OtherMessage("mine", {}, 9)),
    MessageUpdateEvent(ANSWER, TextDeltaEvent(1, "Let", ANSWER)),
    DoneEvent(ANSWER),
    ToolExecutionStartEvent("c1", "read", {"path": None}),
    ToolExecutionStartEvent("c1", "read", None),
    ToolExecutionEndEvent("c1", "read", AgentToolResult([TextContent("x")]), False),
    RetryEvent(1, 3, 1.5, "busy", "server", "request"),
    Model(
        "m", "M", provider="p", cost=ModelCost(1.5, 2, tiers=[{"input_tokens_above": 5, "input": 2}]), compat={"max_tokens": None}
    ),
]


@pytest.mark.parametrize("value", EVERYTHING, ids=lambda value: type(value).__name__)
def test_both_ways_through_the_codec_agree(value: Json) -> None:
    """`to_dict` is `encode`, `from_dict` is `decode`, and both find their way back."""
    raw = encode(value)
    assert value.to_dict() == raw
    assert json.loads(value.to_json()) == json.loads(dumps(value)) == raw
    cls = type(value)
    assert decode(cls, raw) == value
    assert cls.from_dict(raw) == value
    assert cls.from_json(value.to_json()) == value


@pytest.mark.parametrize("value", EVERYTHING, ids=lambda value: type(value).__name__)
def test_data_copies_and_pickles(value: Json) -> None:
    """C076: messages, events and results survive copy, deepcopy and pickle."""
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert copy.copy(value) == value


def test_the_tag_comes_first_in_files() -> None:
    """A line begins with what it is, as pi writes it; the other keys follow in the order of the fields."""
    call = AssistantMessage([TextContent("x"), ToolCall("1", "read", {"b": 1, "a": 2})], timestamp=1)
    text = dumps(encode(call))
    assert text.startswith('{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"toolCall","id":"1","name":"read"')
    assert '"arguments":{"b":1,"a":2}' in text


def test_an_answer_is_written_as_pi_writes_it() -> None:
    """The whole form: camelCase, pi's two words, no null for what is absent, nulls inside arguments kept."""
    assert encode(ANSWER) == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig", "redacted": False},
            {"type": "text", "text": "Let me look.", "textSignature": "ts"},
            {
                "type": "toolCall",
                "id": "c1",
                "name": "read",
                "arguments": {"path": "a.txt", "limit": None, "deep": {"none": None, "list": [None, 1]}},
                "thoughtSignature": "th",
            },
        ],
        "api": "openai-completions",
        "provider": "openai",
        "model": "m",
        "usage": {
            "input": 10,
            "output": 5,
            "cacheRead": 2,
            "cacheWrite": 0,
            "totalTokens": 17,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
            "reasoning": 3,
            "cacheWrite1h": 4,
        },
        "stopReason": "toolUse",
        "timestamp": 1000,
        "responseId": "r1",
    }


@pytest.mark.parametrize(
    ("memory", "file"), [("done", "stop"), ("length", "length"), ("toolUse", "toolUse"), ("error", "error"), ("aborted", "aborted")]
)
def test_stop_reasons(memory: Any, file: str) -> None:
    """`"done"` in memory is `"stop"` in files; the other words are the same."""
    assert encode(AssistantMessage(stop_reason=memory))["stopReason"] == file
    assert decode(AssistantMessage, {"stopReason": file}).stop_reason == memory
    assert AssistantMessage.from_dict({"stopReason": file}).stop_reason == memory


def test_what_is_only_for_the_running_program_is_not_written() -> None:
    """Partial and raw argument texts, the kind of a failure and a model's headers stay in memory."""
    call = ToolCall("c", "read", {}, partial_json='{"p', raw_arguments="{'p")
    assert set(encode(call)) == set(call.to_dict()) == {"id", "name", "arguments", "type"}
    failed = AssistantMessage(stop_reason="error", error_kind="network", error_retryable=True)
    assert {"errorKind", "errorRetryable"}.isdisjoint(encode(failed)) and {"errorKind", "errorRetryable"}.isdisjoint(
        failed.to_dict()
    )
    model = Model("m", headers={"authorization": "Bearer SECRET"})
    assert "SECRET" not in repr(model) + dumps(model) + model.to_json()


def test_a_string_content_is_one_text_block() -> None:
    """A file may have a text in place of a list of blocks; in memory it is always a list."""
    for made in (decode_tagged({"role": "user", "content": "hi"}), UserMessage.from_dict({"role": "user", "content": "hi"})):
        assert made.content == [TextContent("hi")]


def test_unknown_keys_and_kinds_do_no_harm() -> None:
    """An unknown key is passed over; a block of an unknown kind is left out; a message of an unknown role is kept whole."""
    raw = {
        "role": "user",
        "content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "hi", "color": "red"}],
        "mood": "good",
        "timestamp": 1,
    }
    assert decode_tagged(raw) == UserMessage("hi", 1)
    assert UserMessage.from_dict(raw) == UserMessage("hi", 1)
    other = {"role": "mine", "text": "x", "deep": {"a": None}, "timestamp": 5}
    assert encode(decode_tagged(other)) == other
    assert OtherMessage.from_dict(other).to_dict() == other


def test_blocks_are_only_blocks() -> None:
    """A block whose `type` is the name of an event is no event."""
    assert decode_tagged({"role": "user", "content": [{"type": "done"}, {"type": "error"}, "text", 5, None]}).content == []


def test_snake_case_keys_are_understood() -> None:
    """A file with our names in place of pi's reads the same."""
    raw = {"role": "toolResult", "tool_call_id": "c", "tool_name": "t", "content": "x", "is_error": True, "timestamp": 1}
    wanted = ToolResultMessage("c", "t", [TextContent("x")], is_error=True, timestamp=1)
    assert decode_tagged(raw) == wanted
    assert ToolResultMessage.from_dict(raw) == wanted


def test_null_is_read_like_a_key_that_is_absent() -> None:
    """A null where a value belongs gives the default, and no blocks for content."""
    raw = {"role": "assistant", "content": None, "usage": None, "stopReason": None, "timestamp": 7, "errorMessage": None}
    assert decode_tagged(raw) == AssistantMessage(timestamp=7)
    assert AssistantMessage.from_dict(raw) == AssistantMessage(timestamp=7)
    assert decode_tagged({"role": "user", "content": None, "timestamp": 1}).content == []


@pytest.mark.parametrize("make", [lambda raw: decode(ToolResultMessage, raw), ToolResultMessage.from_dict])
def test_a_missing_key_is_named(make: Any) -> None:
    """The error says which key of which class is missing, and which are there."""
    with pytest.raises(ValueError) as caught:
        make({"toolName": "read", "content": []})
    assert str(caught.value) == "the JSON of ToolResultMessage has no key 'toolCallId': it has toolName, content"


def test_a_value_without_a_known_tag_is_refused() -> None:
    """The error names the tag, or says that there is none."""
    with pytest.raises(ValueError, match="unknown type 'hologram': no class of the library is written so"):
        decode_tagged({"type": "hologram"})
    with pytest.raises(ValueError, match="JSON without role or type: it has a, b"):
        decode_tagged({"a": 1, "b": 2})


def test_camel_case() -> None:
    """snake_case becomes camelCase; digits stay where they are."""
    assert [camel_case(name) for name in ("a", "tool_call_id", "cache_write_1h")] == ["a", "toolCallId", "cacheWrite1h"]


class Color(enum.Enum):
    """A plain enumeration."""

    RED = 1


@dataclass
class Found:
    """A dataclass of a user's own."""

    line_number: int
    where: Path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(float("nan"), "null", id="nan"),
        pytest.param([float("inf"), -math.inf, 1.5], "[null,null,1.5]", id="infinity"),
        pytest.param({"a": {"b": (1, float("nan"))}}, '{"a":{"b":[1,null]}}', id="nan in a tuple"),
        pytest.param("\ud83d", '"\\ud83d"', id="half a surrogate pair"),
        pytest.param({"\udf78": "é"}, '{"\\udf78":"\\u00e9"}', id="half a pair in a key"),
        pytest.param("日本 \u2028", '"日本 \u2028"', id="other text is written as it is"),
        pytest.param(
            {1: "a", None: "b", False: "c", (1, 2): "d"},
            '{"1":"a","null":"b","false":"c","(1, 2)":"d"}',
            id="keys that are no strings",
        ),
        pytest.param({3}, "[3]", id="set"),
        pytest.param(b"ab\xff", '"ab\ufffd"', id="bytes"),
        pytest.param(Path("/a/b"), '"/a/b"', id="path"),
        pytest.param(datetime(2026, 1, 2, tzinfo=timezone.utc), '"2026-01-02 00:00:00+00:00"', id="time"),
        pytest.param(Color.RED, '"Color.RED"', id="enum"),
        pytest.param(Found(3, Path("x")), '{"lineNumber":3,"where":"x"}', id="dataclass"),
        pytest.param(
            {"found": [Found(3, Path("x"))], "nan": math.nan}, '{"found":[{"lineNumber":3,"where":"x"}],"nan":null}', id="both"
        ),
        pytest.param(TextContent("x"), '{"type":"text","text":"x"}', id="block"),
        pytest.param("a\nb", '"a\\nb"', id="line breaks are escaped"),
    ],
)
def test_dumps_writes_anything(value: Any, text: str) -> None:
    """C094: whatever a tool returns, the text is JSON in valid UTF-8, on one line, without NaN."""
    written = dumps(value)
    assert written == text
    written.encode("utf-8")
    json.loads(written, parse_constant=lambda name: pytest.fail(f"{name} in {written}"))


def test_numbers_of_other_libraries_are_numbers() -> None:
    """What registers as a number (as numpy's scalars do) is written as one."""
    from fractions import Fraction

    assert dumps([Fraction(1, 4), {"n": Fraction(3)}]) == '[0.25,{"n":3.0}]'


def test_a_value_that_holds_itself_is_refused() -> None:
    """The one thing that cannot be written says so."""
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ValueError, match="the value holds itself"):
        dumps(ring)


def test_a_tool_result_with_anything_in_it_is_stored() -> None:
    """C094: half a pair in the text and NaN in the details of one result."""
    result = ToolResultMessage("c", "t", [TextContent("\ud83d")], {"mean": math.nan, "path": Path("/x")}, timestamp=1)
    read = json.loads(dumps(encode(result)).encode("utf-8"))
    assert read["content"] == [{"text": "\ud83d", "type": "text"}]
    assert read["details"] == {"mean": None, "path": "/x"}


def test_the_json_form_shares_nothing_with_the_object() -> None:
    """Changing what `encode` and `to_dict` gave does not change the message."""
    for form in (encode(ANSWER), ANSWER.to_dict()):
        form["content"][2]["arguments"]["deep"]["list"].append(5)
        form["content"].clear()
    assert ANSWER.tool_calls[0].arguments["deep"]["list"] == [None, 1]


def test_a_conversation_is_saved_and_loaded() -> None:
    """`dump_messages` and `load_messages` are each other's inverse, for every kind of message."""
    messages: Any = [value for value in EVERYTHING if hasattr(value, "role")]
    assert len(messages) == 10
    assert agentcore.load_messages(agentcore.dump_messages(messages)) == messages


def test_the_public_way_works_from_many_threads_at_once() -> None:
    """The first `to_dict` equips all classes; threads that come at the same moment see all of it."""
    program_done: list[Any] = []
    together = threading.Barrier(8, timeout=10)

    class Late(TextContent):
        """A class that dataclasses-json has not been told of."""

    def work() -> None:
        together.wait()
        program_done.append(AssistantMessage([Late("x")], timestamp=1).to_dict()["content"])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert program_done == [[{"text": "x", "type": "text"}]] * 8
