"""A partial answer grows at constant cost, and is made of messages for whoever looks."""

from __future__ import annotations

import copy
import pickle
import time

import pytest

from agentcore.codec import encode
from agentcore.events import ToolCallEndEvent
from agentcore.llm.assembly import Assembly, read_arguments
from agentcore.messages import TextContent, ThinkingContent, ToolCall
from agentcore.models import Model

pytestmark = pytest.mark.pythons

MODEL = Model("m", provider="p")


def test_a_partial_answer_reads_like_a_message() -> None:
    """While they grow, blocks are instances of the plain classes with the plain attributes."""
    assembly = Assembly(MODEL)
    assembly.start()
    text = assembly.open_text().content_index
    assembly.add_text(text, "Hel")
    assembly.add_text(text, "lo")
    thought = assembly.open_thinking("sig").content_index
    assembly.add_thinking(thought, "hm")
    call = assembly.open_call("c", "read").content_index
    assembly.add_arguments(call, '{"path": "a.t')
    blocks = assembly.message.content
    assert isinstance(blocks[0], TextContent) and blocks[0].text == "Hello"
    assert isinstance(blocks[1], ThinkingContent) and (blocks[1].thinking, blocks[1].thinking_signature) == ("hm", "sig")
    assert isinstance(blocks[2], ToolCall)
    assert (blocks[2].arguments, blocks[2].partial_json) == ({"path": "a.t"}, '{"path": "a.t')
    assert [block["type"] for block in encode(assembly.message)["content"]] == ["text", "thinking", "toolCall"]
    assert assembly.message.text == "Hello"


def test_an_ended_block_is_the_same_object_of_the_plain_class() -> None:
    """The end of a block keeps its identity and makes it plain."""
    assembly = Assembly(MODEL)
    for open_block, plain in (
        (assembly.open_text, TextContent),
        (assembly.open_thinking, ThinkingContent),
        (lambda: assembly.open_call("c", "read"), ToolCall),
    ):
        index = open_block().content_index  # type: ignore[operator]
        block = assembly.message.content[index]
        assert type(block) is not plain and isinstance(block, plain)
        assert assembly.is_open(index)
        event = assembly.end(index)
        assert assembly.message.content[index] is block and type(block) is plain
        assert not assembly.is_open(index)
        if isinstance(event, ToolCallEndEvent):
            assert event.tool_call is block
    assert [*map(repr, assembly.message.content)] == [
        "TextContent(text='', text_signature=None, type='text')",
        "ThinkingContent(thinking='', thinking_signature=None, redacted=None, type='thinking')",
        "ToolCall(id='c', name='read', arguments={}, partial_json=None, thought_signature=None, raw_arguments=None, type='tool')",
    ]
    assert assembly.message.content[0] == TextContent("")


def test_a_copy_of_a_partial_answer_is_plain_and_stands_still() -> None:
    """Copied or pickled, a live block is a plain one that does not grow any more."""
    assembly = Assembly(MODEL)
    index = assembly.open_text().content_index
    assembly.add_text(index, "a")
    call = assembly.open_call("c", "x").content_index
    assembly.add_arguments(call, '{"p":1')
    kept = copy.deepcopy(assembly.message)
    sent = pickle.loads(pickle.dumps(assembly.message))
    assembly.add_text(index, "b")
    for other in (kept, sent):
        assert other.content[0] == TextContent("a")
        assert other.content[1].arguments == {"p": 1}
        assert type(other.content[1]) is ToolCall


def test_a_failed_answer_keeps_what_was_streamed() -> None:
    """Failing and aborting settle the open blocks and say why."""
    for end in ("fail", "abort"):
        assembly = Assembly(MODEL)
        assembly.add_text(assembly.open_text().content_index, "half")
        assembly.add_arguments(assembly.open_call("c", "x").content_index, '{"p": "q')
        event = assembly.abort() if end == "abort" else assembly.fail("broke", kind="network", retryable=True)
        message = event.message
        assert [type(block) for block in message.content] == [TextContent, ToolCall]
        assert message.text == "half"
        assert message.tool_calls[0].arguments == {"p": "q"}
        assert (message.stop_reason, message.error_message) == (
            ("aborted", "Request was aborted") if end == "abort" else ("error", "broke")
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ({}, None)),
        (" \n", ({}, None)),
        ("null", ({}, None)),
        ('{"a": 1}', ({"a": 1}, None)),
        ('{"a": "x\ny"}', ({"a": "x\ny"}, None)),
        ('{"p": "C:\\dir"}', ({"p": "C:\\dir"}, None)),
        ("[1, 2]", ({}, "[1, 2]")),
        ('"text"', ({}, '"text"')),
        ('{"a": 1, "b": "x', ({"a": 1, "b": "x"}, '{"a": 1, "b": "x')),
        ("rm -rf", ({}, "rm -rf")),
        ('{"a": 1} {"b": 2}', ({"a": 1}, '{"a": 1} {"b": 2}')),
        ("[" * 5000, ({}, "[" * 5000)),
    ],
)
def test_arguments_are_an_object_or_kept_apart(text: str, expected: object) -> None:
    """What is an object, or plainly meant as one, is taken; all else is kept as text, so that it is never run."""
    assert read_arguments(text) == expected


def test_a_delta_costs_the_same_however_long_the_answer_is() -> None:
    """200,000 deltas, unread, cost as much each as the first thousand: nothing is joined or parsed."""

    def cost(count: int) -> float:
        assembly = Assembly(MODEL)
        text = assembly.open_text().content_index
        call = assembly.open_call("c", "x").content_index
        begun = time.process_time()
        for _ in range(count):
            assembly.add_text(text, "word ")
            assembly.add_arguments(call, "word ")
        return (time.process_time() - begun) / count

    small = min(cost(2000) for _ in range(5))
    assert cost(200_000) < 5 * small
