"""The JSON codec under Hypothesis: for every message that can be made, both ways agree and find their way back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import (
    AgentEndEvent,
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Cost,
    CustomMessage,
    ImageContent,
    MessageEndEvent,
    OtherMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.codec import decode, decode_tagged, dumps, encode
from agentcore.transcript import dump_messages, load_messages

# All of Unicode, halves of pairs included.
texts = st.text(st.characters(exclude_categories=()), max_size=30)
maybe_texts = st.none() | texts
counts = st.integers(0, 2**53)
costs = st.floats(0, 1e6)
times = st.integers(0, 2**45)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(texts, json_values, max_size=4)

text_blocks = st.builds(TextContent, texts, maybe_texts)
image_blocks = st.builds(ImageContent, texts, texts)
thinking_blocks = st.builds(ThinkingContent, texts, maybe_texts, st.none() | st.booleans())
calls = st.builds(ToolCall, texts, texts, objects, thought_signature=maybe_texts)
contents = st.lists(text_blocks | image_blocks, max_size=3)
usages = st.builds(
    Usage,
    counts,
    counts,
    counts,
    counts,
    counts,
    st.builds(Cost, costs, costs, costs, costs, costs),
    st.none() | counts,
    st.none() | counts,
)
answers = st.builds(
    AssistantMessage,
    content=st.lists(text_blocks | thinking_blocks | calls, max_size=3),
    api=texts,
    provider=texts,
    model=texts,
    usage=usages,
    stop_reason=st.sampled_from(["done", "length", "toolUse", "error", "aborted"]),
    error_message=maybe_texts,
    timestamp=times,
    response_id=maybe_texts,
    response_model=maybe_texts,
)
# A role that a class of the library has is no unknown role; the keys `role` and `timestamp` have their own fields.
other_messages = st.builds(
    OtherMessage,
    texts.map(lambda text: f"x{text}"),
    objects.map(lambda fields: {key: value for key, value in fields.items() if key not in ("role", "timestamp")}),
    times,
)
messages: st.SearchStrategy[AgentMessage] = st.one_of(
    st.builds(UserMessage, texts | contents, times),
    answers,
    st.builds(
        ToolResultMessage,
        texts,
        texts,
        contents,
        json_values,
        st.none() | usages,
        st.none() | st.lists(texts),
        st.booleans(),
        times,
    ),
    st.builds(
        BashExecutionMessage,
        texts,
        texts,
        st.none() | st.integers(-1, 255),
        st.booleans(),
        st.booleans(),
        maybe_texts,
        times,
        st.none() | st.booleans(),
    ),
    st.builds(CompactionSummaryMessage, texts, counts, times),
    st.builds(BranchSummaryMessage, texts, texts, times),
    st.builds(CustomMessage, texts, texts | contents, st.booleans(), json_values, times),
    other_messages,
)


@given(messages)
@settings(max_examples=300, deadline=None)
def test_the_fast_way_and_the_public_way_agree(message: Any) -> None:
    """`encode` is `to_dict`; `decode` is `from_dict`; each undoes the other."""
    raw = encode(message)
    assert message.to_dict() == raw
    assert decode(type(message), raw) == message
    assert decode_tagged(raw) == message
    assert type(message).from_dict(raw) == message


@given(st.lists(messages, max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_conversation_comes_back_from_its_bytes(conversation: list[Any]) -> None:
    """What is written is UTF-8, one line without line breaks, and reads back equal: halves of pairs, nulls and all."""
    text = dump_messages(conversation)
    written = text.encode("utf-8")
    assert b"\n" not in written
    assert load_messages(written) == conversation


@given(st.lists(messages, max_size=2), messages)
@settings(max_examples=100, deadline=None)
def test_events_come_back(conversation: list[Any], message: Any) -> None:
    """An event is written with the messages inside it in their own words, and reads back equal."""
    for event in (AgentEndEvent(conversation), MessageEndEvent(message)):
        raw = encode(event)
        assert event.to_dict() == raw
        assert type(event).from_dict(raw) == decode(type(event), raw) == decode_tagged(raw) == event


@given(answers, st.dictionaries(texts.map(lambda text: f"unknown{text}"), json_values, max_size=3))
@settings(max_examples=100, deadline=None)
def test_unknown_keys_are_passed_over(message: AssistantMessage, extra: dict[str, Any]) -> None:
    """A file of a later version reads as far as we know it."""
    raw = {**extra, **encode(message)}
    assert decode_tagged(raw) == message
    assert AssistantMessage.from_dict(raw) == message


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=5)
    | st.builds(TextContent, texts)
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            texts | st.integers() | st.floats() | st.none() | st.booleans() | st.tuples(st.integers()), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(anything)
@settings(max_examples=300, deadline=None)
def test_dumps_writes_whatever_a_tool_returns(value: Any) -> None:
    """C094: no value makes writing fail, and what is written is strict JSON in valid UTF-8."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for text in (dumps(value), dumps(encode(ToolResultMessage("c", "t", [], value, timestamp=1)))):
        json.loads(text.encode("utf-8"), parse_constant=refuse)
