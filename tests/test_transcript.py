"""What a model gets to see: prompts made messages, custom messages made user messages, each call with exactly one result."""

from __future__ import annotations

import copy
import re
import time
from typing import Any

import pytest

from agentcore import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    ImageContent,
    OtherMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    convert_to_llm,
    load_messages,
    normalize_prompt_input,
    pair_tool_results,
)

pytestmark = pytest.mark.pythons


def user(text: str) -> UserMessage:
    """Make a user message."""
    return UserMessage(text, 1)


def answer(*ids: str, stop_reason: Any = "toolUse") -> AssistantMessage:
    """Make an answer with a call for each id."""
    return AssistantMessage(
        [TextContent("let me see"), *(ToolCall(id, "read") for id in ids)], stop_reason=stop_reason, timestamp=2
    )


def result(id: str, text: str = "fine") -> ToolResultMessage:
    """Make the result of a call."""
    return ToolResultMessage(id, "read", [TextContent(text)], timestamp=3)


def aborted(id: str) -> ToolResultMessage:
    """Make the result that stands in for a missing one."""
    return ToolResultMessage(id, "read", [TextContent("Operation aborted")], is_error=True, timestamp=2)


@pytest.mark.parametrize(
    ("given", "paired"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([user("a"), answer()], [user("a"), answer()], id="no calls"),
        pytest.param([answer("1"), result("1")], [answer("1"), result("1")], id="well-formed"),
        pytest.param([answer("1", "2")], [answer("1", "2"), aborted("1"), aborted("2")], id="C037: none at the end"),
        pytest.param([answer("1"), user("b")], [answer("1"), aborted("1"), user("b")], id="none before a user message"),
        pytest.param(
            [answer("1"), answer("2"), result("2")],
            [answer("1"), aborted("1"), answer("2"), result("2")],
            id="none before an answer",
        ),
        pytest.param([answer("1", "2"), result("2")], [answer("1", "2"), aborted("1"), result("2")], id="one of two"),
        pytest.param(
            [answer("1", "2"), result("2"), result("1")],
            [answer("1", "2"), result("1"), result("2")],
            id="in the order of the calls",
        ),
        pytest.param([answer("1"), user("b"), result("1")], [answer("1"), result("1"), user("b")], id="right behind the answer"),
        pytest.param([result("1"), answer("1")], [answer("1"), aborted("1")], id="a result before its call is none"),
        pytest.param([user("a"), result("9"), user("b")], [user("a"), user("b")], id="a result without a call"),
        pytest.param([answer("1"), result("1"), result("1", "again")], [answer("1"), result("1")], id="a second result"),
        pytest.param(
            [answer("1"), result("1", "first"), answer("1"), result("1", "second")],
            [answer("1"), result("1", "first"), answer("1"), result("1", "second")],
            id="C074: an id used again",
        ),
        pytest.param(
            [answer("1"), user("b"), answer("1"), result("1", "second")],
            [answer("1"), aborted("1"), user("b"), answer("1"), result("1", "second")],
            id="C074: an id used again, the first call without a result",
        ),
        pytest.param(
            [answer("1", "1"), result("1", "first"), result("1", "second")],
            [answer("1", "1"), result("1", "first"), result("1", "second")],
            id="one id twice in an answer",
        ),
        pytest.param(
            [answer("1"), answer(stop_reason="error"), result("1")],
            [answer("1"), result("1"), answer(stop_reason="error")],
            id="a late result comes home",
        ),
        pytest.param(
            [answer("1", "2", stop_reason="aborted"), result("1")],
            [answer("1", "2", stop_reason="aborted"), result("1"), aborted("2")],
            id="an aborted answer is treated like any other",
        ),
        pytest.param(
            [answer("1"), BashExecutionMessage("ls", "", timestamp=4), result("1")],
            [answer("1"), result("1"), BashExecutionMessage("ls", "", timestamp=4)],
            id="custom messages are kept",
        ),
    ],
)
def test_every_call_has_exactly_one_result(given: list[AgentMessage], paired: list[AgentMessage]) -> None:
    """Right behind its answer, in the order of the calls; what is given is not changed, and pairing twice changes nothing."""
    before = copy.deepcopy(given)
    made = pair_tool_results(given)
    assert made == paired
    assert given == before
    assert pair_tool_results(made) == made


def test_the_messages_are_the_same_objects() -> None:
    """Nothing is copied, so what a wire format keeps for a message stays valid."""
    messages: list[Any] = [user("a"), answer("1", "2"), result("1"), result("2"), user("b")]
    made = pair_tool_results(messages)
    assert len(made) == 5 and all(one is other for one, other in zip(made, messages, strict=True))
    assert made is not messages


def test_pairing_is_linear() -> None:
    """A history twenty times as long takes about twenty times as long, also when no call has a result."""

    def seconds(turns: int) -> float:
        messages: list[AgentMessage] = [message for turn in range(turns) for message in (user("a"), answer("same", f"c{turn}"))]
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            made = pair_tool_results(messages)
            best = min(best, time.perf_counter() - start)
        assert len(made) == 4 * turns
        return best

    # If it were quadratic, this would be 400 times as long. The rest is for a busy machine and the garbage collector.
    assert seconds(4000) < 120 * seconds(200)


def test_a_string_is_a_prompt() -> None:
    """With images, they stand behind the text."""
    image = ImageContent("QQ==", "image/png")
    assert [message.content for message in normalize_prompt_input("hi") if isinstance(message, UserMessage)] == [
        [TextContent("hi")]
    ]
    (message,) = normalize_prompt_input("see", [image])
    assert isinstance(message, UserMessage) and message.content == [TextContent("see"), image]


def test_messages_are_a_prompt() -> None:
    """One message, a list or a tuple of them; the list is a new one, the messages are the same."""
    one, other = user("a"), OtherMessage("mine")
    assert normalize_prompt_input(one) == [one]
    given: list[AgentMessage] = [one, other]
    made = normalize_prompt_input(given)
    assert made == given and made is not given and made[0] is one
    assert normalize_prompt_input((one,)) == [one]
    assert normalize_prompt_input([]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "a prompt is a text, a message or a list of messages, not a value of type int"),
        (None, "a prompt is a text, a message or a list of messages, not a value of type NoneType"),
        (b"hi", "a prompt is a text, a message or a list of messages, not a value of type bytes"),
        ({"role": "user", "content": "hi"}, "a prompt is a text, a message or a list of messages, not a dict"),
        ([{"role": "user"}], "a prompt is a list of messages, and this one holds a dict"),
        ([user("a"), "b"], "a prompt is a list of messages, and this one holds a value of type str"),
    ],
)
def test_anything_else_is_refused(value: Any, text: str) -> None:
    """The error names what it got, and the way out."""
    with pytest.raises(TypeError) as caught:
        normalize_prompt_input(value)
    assert str(caught.value) == f"{text}: pass a string or UserMessage(…); load_messages reads JSON"


def test_images_without_a_text_are_refused() -> None:
    """They have no place to go."""
    with pytest.raises(TypeError, match="images go with a text: put them into the content of the message instead"):
        normalize_prompt_input(user("a"), [ImageContent("", "image/png")])


def test_convert_to_llm_keeps_what_a_model_knows() -> None:
    """The three messages of a conversation pass as the same objects; unpaired calls stay as they are."""
    messages: list[AgentMessage] = [user("a"), answer("1"), result("9"), OtherMessage("mine", {"text": "secret"})]
    converted = convert_to_llm(messages)
    assert len(converted) == 3 and all(one is other for one, other in zip(converted, messages, strict=False))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nope", "this is no conversation in JSON (Expecting value: line 1 column 1 (char 0)): load_messages reads what dump_m"),
        ('{"a":1}', "a conversation is a JSON list of messages, this is none: load_messages reads what dump_messages wrote"),
        ('["x"]', "message 1 cannot be read: a message is a JSON object with a role and what belongs to it"),
        ('[{"role":"user","content":5}]', "message 1 cannot be read: the content of a user message is a text or a list of blocks"),
        ('[{"role":"compactionSummary"}]', "message 1 cannot be read: the JSON of CompactionSummaryMessage has no key 'summary'"),
    ],
)
def test_what_is_no_conversation_is_refused(text: str, problem: str) -> None:
    """One line that names the message and says what is wrong with it."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        load_messages(text)
    with pytest.raises(TypeError, match="load_messages reads JSON text, not a value of type list"):
        load_messages([])  # type: ignore[arg-type]
