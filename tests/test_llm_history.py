"""A transcript is fitted to each provider on the way out, and what was sent before is not written again."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from agentcore.codec import encode
from agentcore.llm.history import JsonPieces, encode_history, fit_history, plain_body, plain_id, to_json, write_body
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.models import Model

HERE = Model("here", api="one-api", provider="one", input=["text", "image"])


def answer(*content: Any, model: Model = HERE, stop_reason: StopReason = "done") -> AssistantMessage:
    return AssistantMessage(list(content), api=model.api, provider=model.provider, model=model.id, stop_reason=stop_reason)


def result(id: str, text: str = "ok") -> ToolResultMessage:
    return ToolResultMessage(id, "read", [TextContent(text)])


# --- fitting ---------------------------------------------------------------------------------------------------------


def test_a_transcript_that_ends_with_open_calls_is_answered() -> None:
    """C037: calls that never got results get error results before the next request; the transcript is not touched."""
    transcript: list[Message] = [UserMessage("q"), answer(ToolCall("a", "read"), ToolCall("b", "read")), UserMessage("go on")]
    fitted = fit_history(transcript, HERE)
    assert [message.role for message in fitted] == ["user", "assistant", "toolResult", "toolResult", "user"]
    assert [(message.tool_call_id, message.error) for message in fitted if isinstance(message, ToolResultMessage)] == [
        ("a", "Operation aborted"),
        ("b", "Operation aborted"),
    ]
    assert len(transcript) == 3


def test_ids_are_rewritten_the_same_way_for_call_and_result() -> None:
    """C035: an id that the API would refuse is rewritten, alike for call and result, and the transcript keeps its own."""
    id = "call_ab|fc_" + "x" * 80 + "_"
    elsewhere = Model("there", api="other-api", provider="other")
    transcript: list[Message] = [answer(ToolCall(id, "read"), model=elsewhere), result(id)]
    before = [encode(message) for message in transcript]
    sent, received = fit_history(transcript, HERE, plain_id)
    assert isinstance(sent, AssistantMessage) and isinstance(received, ToolResultMessage)
    (call,) = sent.tool_calls
    assert call.id == received.tool_call_id != id
    assert len(call.id) <= 64 and call.id.replace("_", "").replace("-", "").isalnum()
    assert [encode(message) for message in transcript] == before


def test_two_ids_never_become_one() -> None:
    """Ids that differ only in what an API refuses stay apart."""
    elsewhere = Model("there", api="other-api", provider="other")
    transcript = [answer(ToolCall("a|b", "read"), ToolCall("a/b", "read"), model=elsewhere), result("a|b"), result("a/b", "2")]
    sent, first, second = fit_history(transcript, HERE, plain_id)
    assert isinstance(sent, AssistantMessage)
    ids = [call.id for call in sent.tool_calls]
    assert ids[0] != ids[1]
    assert [first.tool_call_id, second.tool_call_id] == ids  # type: ignore[union-attr]


def test_an_id_that_is_used_again_belongs_to_its_own_turn() -> None:
    """C074: two turns that use the same call id keep a result each."""
    transcript: list[Message] = [
        answer(ToolCall("call_1", "read")),
        result("call_1", "first"),
        answer(ToolCall("call_1", "read")),
        result("call_1", "second"),
    ]
    assert fit_history(transcript, HERE) == transcript


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_a_broken_answer_is_left_out_with_its_results(stop_reason: StopReason) -> None:
    """C034: half a thought of an aborted answer is not sent, between tags or otherwise; neither are results without their call."""
    broken = answer(ThinkingContent("half a tho"), ToolCall("a", "read"), stop_reason=stop_reason)
    fitted = fit_history([UserMessage("q"), broken, result("a"), UserMessage("r")], HERE)
    assert [message.role for message in fitted] == ["user", "user"]


def test_thinking_of_another_model_becomes_plain_text() -> None:
    """Signatures and encrypted thoughts stay with the model that made them; the words of a thought go along."""
    foreign = answer(
        ThinkingContent("why", "sig"),
        ThinkingContent("[Reasoning redacted]", "opaque", redacted=True),
        TextContent("so", "text-sig"),
        ToolCall("a", "read", {"path": "x"}, thought_signature="thought"),
        model=Model("there", api="one-api", provider="one"),
    )
    (fitted, _) = fit_history([foreign, result("a")], HERE)
    assert fitted.content == [TextContent("why"), TextContent("so"), ToolCall("a", "read", {"path": "x"})]


def test_images_become_notes_for_a_model_that_cannot_see() -> None:
    """One note for a run of images, in the place where they stood."""
    blind = Model("blind", api="one-api", provider="one")
    image = ImageContent("QUJD", "image/png")
    shown: list[Message] = [UserMessage([image, image, TextContent("x")])]
    assert fit_history(shown, blind)[0].content == [
        TextContent("(image omitted: model does not support images)"),
        TextContent("x"),
    ]
    assert fit_history(shown, HERE) == shown


# --- encoding --------------------------------------------------------------------------------------------------------


class Encoder:
    """Writes messages plainly and notes which it was asked to write."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []

    def __call__(self, messages: Sequence[Message], start: int) -> list[str]:
        self.written.append([message.role for message in messages])
        return [to_json({"at": start + index, "message": encode(message)}) for index, message in enumerate(messages)]

    def send(self, messages: list[Message], model: Model = HERE) -> list[Any]:
        pieces = encode_history(messages, model, self, tag="test")
        expected = [encode(message) for message in fit_history(messages, model)]
        read = pieces.read()
        without_times = [{**item["message"], "timestamp": 0} for item in read]
        assert without_times == [{**message, "timestamp": 0} for message in expected]
        assert [item["at"] for item in read] == list(range(len(read)))
        return read


def conversation() -> list[Message]:
    return [UserMessage("q"), answer(ToolCall("a", "read", {"path": "x"})), result("a")]


def test_only_what_is_new_is_written() -> None:
    """Each message is encoded once, however many requests it goes out with."""
    encoder, messages = Encoder(), conversation()
    encoder.send(messages)
    messages += [answer(TextContent("done")), UserMessage("next")]
    encoder.send(messages)
    encoder.send(messages)
    assert encoder.written == [["user", "assistant", "toolResult"], ["assistant", "user"]]


def test_messages_that_are_equal_but_new_objects_are_not_written_again() -> None:
    """A message that is converted anew for each request (a summary, say) does not spoil what was kept."""
    encoder = Encoder()
    rest = conversation()
    encoder.send([UserMessage("summary", 1), *rest])
    encoder.send([UserMessage("summary", 1), *rest, UserMessage("more")])
    assert encoder.written == [["user", "user", "assistant", "toolResult"], ["user"]]


def _change_text(messages: list[Message]) -> None:
    messages[0].content[0].text = "another question"  # type: ignore[union-attr]


def _replace_content(messages: list[Message]) -> None:
    messages[2].content = [TextContent("cut")]


def _append_block(messages: list[Message]) -> None:
    messages[0].content.append(TextContent("and this"))  # type: ignore[arg-type]


def _replace_arguments(messages: list[Message]) -> None:
    messages[1].content[0].arguments = {"path": "y"}  # type: ignore[union-attr]


def _drop_first(messages: list[Message]) -> None:
    del messages[0]


def _insert(messages: list[Message]) -> None:
    messages.insert(0, UserMessage("before all"))


@pytest.mark.parametrize("change", [_change_text, _replace_content, _append_block, _replace_arguments, _drop_first, _insert])
def test_a_change_of_the_transcript_is_noticed(change: Any) -> None:
    """Whatever somebody changes in a message or in the list, the next request has it."""
    encoder, messages = Encoder(), conversation()
    encoder.send(messages)
    change(messages)
    messages.append(UserMessage("next"))
    encoder.send(messages)


def test_a_change_of_model_is_noticed() -> None:
    """Another model gets the transcript fitted anew, and so does the first one when it is back."""
    encoder, messages = Encoder(), conversation()
    there = Model("there", api="one-api", provider="one")
    encoder.send(messages)
    encoder.send(messages, there)
    encoder.send(messages)
    assert len(encoder.written) == 3


def test_branches_of_a_conversation_do_not_mix() -> None:
    """Two conversations that share their beginning are each written as they are."""
    encoder, shared = Encoder(), conversation()
    encoder.send(shared)
    encoder.send([*shared, UserMessage("left")])
    encoder.send([*shared, UserMessage("right")])
    encoder.send([*shared, UserMessage("left"), answer(TextContent("l"))])


def test_a_late_result_takes_the_place_of_the_made_up_one() -> None:
    """A call that went out as aborted and is answered after all goes out with its answer from then on."""
    encoder = Encoder()
    messages: list[Message] = [UserMessage("q"), answer(ToolCall("a", "read"))]
    encoder.send(messages)
    messages.append(result("a", "late"))
    assert encoder.send(messages)[2]["message"]["content"][0]["text"] == "late"


def test_a_copy_of_a_message_does_not_take_the_conversation_along() -> None:
    """Copies and pickles of the last message are of that message alone, and equal to it."""
    messages = conversation()
    messages[0].content[0].text = "x" * 100_000  # type: ignore[union-attr]
    Encoder().send(messages)
    assert len(pickle.dumps(messages[-1])) < 2_000
    assert copy.deepcopy(messages[-1]) == messages[-1]
    assert "_encoded" not in repr(messages[-1])
    Encoder().send([*copy.deepcopy(messages), UserMessage("on")])


# --- bodies ----------------------------------------------------------------------------------------------------------


def test_a_body_is_valid_utf_8_json_whatever_is_in_it() -> None:
    """C094: half a surrogate pair and NaN leave neither a broken body nor a `NaN` token; two halves together are one character."""
    body = write_body({"a": "x\ud83dy", "b": float("nan"), "c": "\ud83c\udf78", "d": JsonPieces(['{"e":1}', "2"])})
    assert json.loads(body.decode("utf-8")) == {"a": "xy", "b": None, "c": "🍸", "d": [{"e": 1}, 2]}
    assert b"NaN" not in body


def test_a_plain_body_has_no_pieces() -> None:
    """Who looks at a body before it is sent sees lists and mappings."""
    assert plain_body({"a": JsonPieces(['{"b":1}'])}) == {"a": [{"b": 1}]}
