"""Chat completions as servers really send them: each oddity gives the right message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import AssistantMessage, Message, TextContent, ToolCall, ToolResultMessage, UserMessage
from agentcore.testing import SseServer, answer, calls_raw, ends, says


class Tool:
    """A tool as the wire format sees it."""

    name = "read"
    description = "Read a file"
    parameters: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}  # noqa: RUF012


def chunk(delta: dict[str, Any] | None = None, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": delta if delta is not None else {}, "finish_reason": finish_reason}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [{**choice, **fields}]}


def call_piece(arguments: Any, index: int | None = 0, id: Any = "", name: Any = "") -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, "id": id}
    return chunk({"tool_calls": [piece if index is None else {**piece, "index": index}]})


def body(*chunks: Any, done: bool = True) -> str:
    """Return chunks as the text of a stream; a string stands for itself."""
    lines = [f"data: {item if isinstance(item, str) else json.dumps(item)}\n\n" for item in chunks]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def ask(
    server: SseServer, messages: Sequence[Message] = (), tools: Any = None, model: dict[str, Any] | None = None, **options: Any
) -> AssistantMessage:
    context = Context("", [*messages] or [UserMessage("hi")], tools)
    *_, last = stream(server.model(**(model or {})), context, StreamOptions(max_retries=0, **options))
    message: AssistantMessage = last.message  # type: ignore[union-attr]
    return message


def read(*chunks: Any, done: bool = True) -> AssistantMessage:
    with SseServer(answer(body(*chunks, done=done))) as server:
        return ask(server)


STOP = chunk({}, "stop")
CALLS = chunk({}, "tool_calls")


# --- where a stream ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_stream_that_just_ends_is_a_broken_answer(framing: Any) -> None:
    """C011: text without finish_reason and `[DONE]` is a retryable error, and the text is kept."""
    with SseServer(answer(body(chunk({"content": "a"}), chunk({"content": "b"}), done=False), framing=framing)) as server:
        message = ask(server)
    assert (message.stop_reason, message.error_kind, message.error_retryable, message.text) == ("error", "protocol", True, "ab")
    assert message.error_message is not None
    assert message.error_message.endswith("ended without its finish_reason: the answer is not complete")


def test_a_stream_that_ends_inside_an_event_is_a_broken_answer() -> None:
    """C011: half a JSON object at the end is a broken stream, not bad JSON of the model."""
    torn = body(chunk({"content": "a"}), done=False) + 'data: {"choices":[{"delta":{"content":"b'
    with SseServer(answer(torn, framing="close")) as server:
        message = ask(server)
    assert (message.stop_reason, message.error_retryable, message.text) == ("error", True, "a")
    assert message.error_message is not None and "ended inside an event" in message.error_message


def test_either_end_mark_is_an_end() -> None:
    """A finish_reason without `[DONE]`, and `[DONE]` without a finish_reason, end an answer; `[DONE]` alone is no answer."""
    assert read(chunk({"content": "a"}), STOP, done=False).stop_reason == "done"
    assert read(chunk({"content": "a"})).stop_reason == "done"
    assert read(call_piece("{}", id="c", name="read")).stop_reason == "toolUse"
    assert read().stop_reason == "error"


def test_an_answer_is_whole_when_the_connection_breaks_behind_it() -> None:
    """What goes wrong behind a finish_reason does not undo the answer, and a server that stays silent is not waited for long."""
    text = body(chunk({"content": "a"}), STOP, done=False)
    with SseServer(answer(text, cut=True), answer([text], hold_open=True)) as server:
        assert ask(server).stop_reason == "done"
        assert ask(server).stop_reason == "done"


# --- chunks ----------------------------------------------------------------------------------------------------------


def test_chunks_without_choices_are_passed_over() -> None:
    """C019: chunks with an empty list, without choices, null, and a number do no harm."""
    message = read({"id": "x", "choices": []}, chunk({"content": "a"}), {"id": "x"}, "null", "5", {"choices": [None]}, STOP)
    assert (message.text, message.stop_reason) == ("a", "done")


def test_usage_inside_the_choice_counts() -> None:
    """C020: usage that stands in the choice is read."""
    usage = {"prompt_tokens": 90, "completion_tokens": 7}
    message = read(chunk({"content": "a"}), chunk({}, "stop", usage=usage))
    assert (message.usage.input, message.usage.output) == (90, 7)


def test_cached_tokens_are_counted_once() -> None:
    """C044: of 1,000 prompt tokens, 900 from the cache, 100 are input; the cost is made of those."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 900}}
    with SseServer(answer(body(chunk({"content": "a"}), STOP, {"choices": [], "usage": usage}))) as server:
        from agentcore.models import ModelCost

        message = ask(server, model={"cost": ModelCost(input=1.0, output=2.0, cache_read=0.1)})
    assert (message.usage.input, message.usage.cache_read, message.usage.total_tokens) == (100, 900, 1010)
    assert message.usage.cost.total == pytest.approx((100 * 1.0 + 900 * 0.1 + 10 * 2.0) / 1e6)


def test_reasoning_tokens_are_a_part_of_the_output() -> None:
    """C046: 120 completion tokens, 100 of them reasoning, are 120 output; counted apart by the server, they are added."""
    details = {"completion_tokens": 120, "completion_tokens_details": {"reasoning_tokens": 100}}
    together = read(chunk({"content": "a"}), STOP, {"choices": [], "usage": {"prompt_tokens": 5, **details, "total_tokens": 125}})
    apart = read(chunk({"content": "a"}), STOP, {"choices": [], "usage": {"prompt_tokens": 5, **details, "total_tokens": 225}})
    assert (together.usage.output, together.usage.reasoning) == (120, 100)
    assert (apart.usage.output, apart.usage.reasoning) == (220, 100)


def test_content_in_parts_is_text_and_thinking() -> None:
    """A content that comes as a list has its text in the text block and its thinking in the thinking block."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    message = read(chunk({"content": [thought]}), chunk({"content": [{"type": "text", "text": "a"}]}), STOP)
    assert [(block.type, getattr(block, "thinking", None) or message.text) for block in message.content] == [
        ("thinking", "hm"),
        ("text", "a"),
    ]


# --- calls -----------------------------------------------------------------------------------------------------------


def calls_of(message: AssistantMessage) -> list[tuple[str, str, Any, str | None]]:
    return [(call.id, call.name, call.arguments, call.raw_arguments) for call in message.tool_calls]


def test_parallel_calls_that_all_have_the_same_index() -> None:
    """C022: two whole calls with index 0 and different ids are two calls."""
    message = read(call_piece('{"p":"a"}', id="t1", name="read"), call_piece('{"p":"b"}', id="t2", name="read"), CALLS)
    assert calls_of(message) == [("t1", "read", {"p": "a"}, None), ("t2", "read", {"p": "b"}, None)]


def test_parallel_calls_that_all_have_the_same_index_in_pieces() -> None:
    """C022 in pieces: what follows the second beginning belongs to the second call."""
    message = read(
        call_piece('{"p":', id="t1", name="read"),
        call_piece('"a"}'),
        call_piece("", id="t2", name="write"),
        call_piece('{"q":1}'),
        CALLS,
    )
    assert calls_of(message) == [("t1", "read", {"p": "a"}, None), ("t2", "write", {"q": 1}, None)]


def test_an_id_that_changes_within_a_call_is_the_same_call() -> None:
    """C023: pieces of one index with changing ids are one call with the first id."""
    message = read(call_piece('{"pa', id="k1", name="read"), call_piece('th":"x"}', id="k9"), CALLS)
    assert calls_of(message) == [("k1", "read", {"path": "x"}, None)]


def test_nulls_in_a_piece_are_nothing() -> None:
    """C025: null for id, name and arguments counts as empty."""
    message = read(call_piece('{"p":', id="c", name="read"), call_piece(None, id=None, name=None), call_piece("1}"), CALLS)
    assert calls_of(message) == [("c", "read", {"p": 1}, None)]


@pytest.mark.parametrize("arguments", ["", None, " ", "null"])
def test_a_call_without_arguments_has_an_empty_object(arguments: Any) -> None:
    """C026: no argument text is `{}`, and goes back as `"{}"`."""
    with SseServer(answer(body(call_piece(arguments, id="c", name="ls"), CALLS)), says("ok")) as server:
        message = ask(server)
        assert calls_of(message) == [("c", "ls", {}, None)]
        ask(server, [UserMessage("hi"), message, ToolResultMessage("c", "ls", [TextContent("x")])])
        sent = server.requests[1].json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == "{}"


def test_broken_arguments_are_kept_apart_and_replayed_as_json() -> None:
    """C053, C056: argument text that is no JSON is kept as it came, what could be read beside it; the replay is valid JSON."""
    text = '{"path": "a.txt", "content": "x'
    with SseServer(calls_raw("write", text[:9], text[9:], id="c") + ends("toolUse"), says("ok")) as server:
        message = ask(server)
        assert calls_of(message) == [("c", "write", {"path": "a.txt", "content": "x"}, text)]
        ask(server, [UserMessage("hi"), message, ToolResultMessage("c", "write", [TextContent("not run")], is_error=True)])
        sent = server.requests[1].json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"path": "a.txt", "content": "x"}


def test_no_partial_value_holds_half_a_character() -> None:
    """C059: an escaped emoji torn in two is never seen as half, and is one character in the end."""
    pieces = ('{"t":"\\ud83c', '\\udf78 ok"}')
    seen: list[Any] = []
    with SseServer(calls_raw("say", *pieces, id="c")) as server:
        for event in stream(server.model(), Context("", [UserMessage("hi")]), StreamOptions()):
            if event.type == "toolcall_delta":
                (block,) = event.partial.content
                assert isinstance(block, ToolCall)
                seen.append(block.arguments)
    assert seen[-2:] == [{"t": ""}, {"t": "\U0001f378 ok"}]
    assert all(json.dumps(value, ensure_ascii=False).encode() for value in seen)


def test_calls_never_share_an_id_and_always_have_one() -> None:
    """Calls without an id, or with that of another call, get one of their own."""
    both = {"tool_calls": [{"index": index, "function": {"name": "ls", "arguments": "{}"}} for index in (0, 1)]}
    message = read(chunk(both), CALLS)
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == 2 and all(ids)


def test_a_call_with_bare_text_is_never_run() -> None:
    """A call of a tool that takes text, which was not asked for, keeps its name, and its text apart."""
    piece = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "g", "input": "a b"}}
    assert calls_of(read(chunk({"tool_calls": [piece]}), CALLS)) == [("c", "g", {}, "a b")]


def test_an_error_in_the_choice_is_an_error() -> None:
    """A gateway that reports a failure inside the choice, with a finish_reason beside it, is heard."""
    message = read(chunk({"content": "a"}), chunk({}, "error", error={"code": 502, "message": "upstream broke"}))
    assert (message.stop_reason, message.error_kind, message.text) == ("error", "server", "a")
    assert "upstream broke" in (message.error_message or "")


def test_a_piece_after_the_index_changed_finds_its_call() -> None:
    """Interleaved pieces go to the call of their index; without index and id they go to the last one."""
    message = read(
        call_piece('{"a":', id="c1", name="x"),
        call_piece('{"b":', index=1, id="c2", name="y"),
        call_piece("1}", index=0),
        call_piece("2}", index=1),
        CALLS,
    )
    assert calls_of(message) == [("c1", "x", {"a": 1}, None), ("c2", "y", {"b": 2}, None)]


# --- the request -----------------------------------------------------------------------------------------------------


def test_an_empty_list_of_tools_is_left_out() -> None:
    """C038: without tools the field is not there, also when the history has calls."""
    history = [UserMessage("hi"), AssistantMessage([ToolCall("c", "ls")], stop_reason="toolUse"), UserMessage("go on")]
    with SseServer(says("x"), repeat=True) as server:
        for tools in (None, []):
            ask(server, history, tools)
        assert not any("tools" in request.json for request in server.requests)


def test_a_tool_can_be_chosen_by_its_name() -> None:
    """`tool_choice` is passed on as it is for the words, and as a function for a name."""
    with SseServer(says("x"), repeat=True) as server:
        for choice in ("required", "read"):
            ask(server, tools=[Tool], tool_choice=choice)
        sent = [request.json["tool_choice"] for request in server.requests]
    assert sent == ["required", {"type": "function", "function": {"name": "read"}}]


def test_options_find_their_fields() -> None:
    """Temperature, limit and stop sequences go out under their names."""
    with SseServer(says("x")) as server:
        ask(server, temperature=0.0, max_tokens=9, stop=["END"], model={"compat": {"maxTokensField": "max_tokens"}})
        sent = server.requests[0].json
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0.0, 9, ["END"])


def test_a_base_url_with_a_query_keeps_it() -> None:
    """The path is put in front of the query, as Azure's addresses need it."""
    with SseServer(says("x")) as server:
        ask(server, model={"base_url": server.url + "/openai/deployments/d/?api-version=2024-10-21"})
        assert server.requests[0].path == "/openai/deployments/d/chat/completions?api-version=2024-10-21"


def test_lone_surrogates_and_nan_are_sent_as_valid_json() -> None:
    """C094: half a pair and NaN in a history give a body of valid UTF-8 JSON."""
    bad = ToolCall("c", "x", {"n": float("nan"), "t": "a\ud83d"})
    history: list[Message] = [
        UserMessage("u\udc00"),
        AssistantMessage([bad], stop_reason="toolUse"),
        ToolResultMessage("c", "x", [TextContent("\ud83d")]),
    ]
    with SseServer(says("x")) as server:
        assert ask(server, history).text == "x"
        raw = server.requests[0].body.decode("utf-8")
    json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} in the body"))
    assert json.loads(json.loads(raw)["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"n": None, "t": "a"}


def test_a_growing_conversation_is_sent_whole() -> None:
    """What was encoded for an earlier request is taken over, and a message changed since then is sent as it is now."""
    history: list[Message] = [UserMessage("one")]
    with SseServer(says("x"), repeat=True) as server:
        for text in ("two", "three"):
            history += [ask(server, history), UserMessage(text)]
        history[0].content[0].text = "ONE"  # type: ignore[union-attr]
        ask(server, history)
        sent = [[message["content"] for message in request.json["messages"]] for request in server.requests]
    assert sent == [["one"], ["one", "x", "two"], ["ONE", "x", "two", "x", "three"]]
