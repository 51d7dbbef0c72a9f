"""Events of a stream whose values have another type than the API says: whatever comes, the answer ends as an answer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.codec import dumps, encode
from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import Usage, UserMessage
from agentcore.testing import SseServer, answer, calls, ends, says, thinks
from agentcore.testing.wire_text import turn_pieces

PATHS = {
    "openai-completions": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "google-generative-ai": "/v1beta/models/m:streamGenerateContent",
}
TURN = (
    thinks("hm ", "ok", signature="c2ln")
    + says("Hel", "lo")
    + calls("read", path="a.txt", n=3)
    + calls("ls")
    + ends(usage=Usage(input=10, output=5, cache_read=3, reasoning=2))
)
GONE = object()
WRONG = [None, 0, -1, "", True, "x", [], {}, [None], ["x"], {"a": 1}, 1e999, 10**30, "\ud800", [[]], {"type": "text"}, 3.5, GONE]


def places(value: Any, so_far: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield so_far
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield from places(member, (*so_far, key))


def with_wrong_value(text: str, place: tuple[Any, ...], wrong: Any) -> str:
    value = json.loads(text)
    if not place:
        return json.dumps(None if wrong is GONE else wrong)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    if wrong is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = wrong
    return json.dumps(value)


def bodies(api: str) -> list[str]:
    """Every stream that differs from a good one in a single value."""
    pieces = [str(piece) for piece in turn_pieces(TURN, PATHS[api], {"model": "m"})]
    found = []
    for index, piece in enumerate(pieces):
        head, _, text = piece.rpartition("data: ")
        if not text.startswith("{"):
            continue
        for place in places(json.loads(text)):
            for wrong in WRONG:
                changed = f"{head}data: {with_wrong_value(text, place, wrong)}\n\n"
                found.append("".join([*pieces[:index], changed, *pieces[index + 1 :]]))
    return found


def check(api: str, streams: list[str]) -> None:
    with SseServer(*(answer(body, framing="length") for body in streams)) as server:
        model = server.model(api, reasoning=True)
        options = StreamOptions(api_key="k", max_retries=0)
        for body in streams:
            *before, last = stream(model, Context("", [UserMessage("hi")]), options)
            assert last.type in ("done", "error"), body
            assert all(isinstance(getattr(event, "delta", ""), str) for event in before), body
            message = last.message  # type: ignore[union-attr]
            json.loads(dumps(encode(message)))
            for block in message.content:
                texts = [block.id, block.name] if block.type == "tool" else [getattr(block, block.type)]
                assert all(isinstance(text, str) for text in texts), body
                assert block.type != "tool" or isinstance(block.arguments, dict), body
            usage = message.usage
            counts = [usage.input, usage.output, usage.cache_read, usage.cache_write, usage.total_tokens]
            assert all(isinstance(count, int) and count >= 0 for count in counts), body
            if last.type == "error":
                assert "\n" not in message.error_message and not message.error_message.split(":")[0].endswith("Error"), body


@pytest.mark.parametrize("api", PATHS)
def test_a_value_of_a_wrong_type_ends_as_an_answer(api: str) -> None:
    """Nothing raises out of a stream: it ends, its texts are texts and its counts are counts, and an error is a sentence."""
    every = bodies(api)
    check(api, random.Random(7).sample(every, 120))


@pytest.mark.slow
@pytest.mark.parametrize("api", PATHS)
def test_every_value_of_a_wrong_type_ends_as_an_answer(api: str) -> None:
    """The same for each value of a stream in turn."""
    check(api, bodies(api))


def test_an_event_that_the_api_does_not_have_names_the_way_out() -> None:
    """A delta that is no text breaks the stream off: what came is kept, and the text says what to check."""
    wrong = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": [7]}}
    pieces = [str(piece) for piece in turn_pieces(says("Hel", "lo"), PATHS["anthropic-messages"], {})]
    with SseServer("".join([*pieces[:3], f"data: {json.dumps(wrong)}\n\n"])) as server:
        *_, last = stream(server.model("anthropic-messages"), Context("", [UserMessage("hi")]), StreamOptions())
        assert last.type == "error"
        assert last.message.text == "Hel"
        assert last.message.error_message == (
            f"127.0.0.1:{server.port} sent an event that anthropic-messages does not have (TypeError): check Model.api"
        )
        assert (last.message.error_kind, last.message.error_retryable) == ("protocol", False)
