"""Streams that are cut or split at every byte: no crash, no hang, no finished answer without its end, one result for all splits.

The recorded cases of the wire formats and, where they are there, the real streams of `../shared/wire` are fed to the readers in
memory, without a server: so every single byte can be tried. A dozen short streams are part of the quick suite, all others are slow.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore.codec import encode
from agentcore.events import DoneEvent, ErrorEvent
from agentcore.llm import Context, StreamOptions
from agentcore.llm.anthropic_messages import AnthropicMessages
from agentcore.llm.assembly import Assembly
from agentcore.llm.google_generative_ai import GoogleGenerativeAI
from agentcore.llm.http import RequestFailed
from agentcore.llm.openai_completions import ChatCompletions
from agentcore.llm.openai_responses import OpenAIResponses
from agentcore.llm.sse import EventStream
from agentcore.llm.wire import Answer, Call, WireFormat
from agentcore.models import Model
from tests.conformance.cases import data_folder

WIRE = Path(os.environ.get("AGENTCORE_WIRE") or Path(__file__).parents[2] / "shared" / "wire")
FORMATS: dict[str, type[WireFormat]] = {
    "openai-completions": ChatCompletions,
    "openai-responses": OpenAIResponses,
    "anthropic-messages": AnthropicMessages,
    "google-generative-ai": GoogleGenerativeAI,
}
TERMINAL = {
    "openai-completions": re.compile(rb'"finish_reason"\s*:\s*"\w|data:\s*\[DONE\]'),
    "openai-responses": re.compile(rb'"type"\s*:\s*"response\.(?:completed|incomplete)"'),
    "anthropic-messages": re.compile(rb'"type"\s*:\s*"message_stop"'),
    "google-generative-ai": re.compile(rb'"finishReason"\s*:\s*"\w'),
}
QUICK_FROM_EACH = 3
QUICK_BYTES = 1_500
WORK_BYTES = 20_000_000
"""So much is read of one stream at most: those over 4,500 bytes are cut not at every byte, but all over them."""


def recorded_bodies() -> Iterator[tuple[str, str, bytes]]:
    """Yield api, name and body of every recorded stream, each body once."""
    seen: set[bytes] = set()
    for api in FORMATS:
        path = data_folder() / "functions" / "providers" / f"{api.replace('-', '_')}.json"
        for case in json.loads(path.read_text("utf-8")) if path.exists() else ():
            for response in case["input"].get("responses") or ():
                body = response.get("body")
                if case["input"]["kind"] == "stream" and isinstance(body, str) and response.get("status", 200) == 200:
                    encoded = body.encode("utf-8", "surrogatepass")
                    if encoded and encoded not in seen:
                        seen.add(encoded)
                        yield api, case["name"], encoded
    for file in sorted((WIRE / "streams").glob("*/*.json")):
        stream = json.loads(file.read_text("utf-8"))
        if stream["status"] == 200 and stream["body"] and "json_array_body" not in stream["features"]:
            yield stream["api"], file.stem, stream["body"].encode()


def all_streams() -> list[Any]:
    quick: dict[str, int] = dict.fromkeys(FORMATS, 0)
    params = []
    for api, name, body in recorded_bodies():
        is_quick = (
            len(body) <= QUICK_BYTES and quick[api] < QUICK_FROM_EACH and ("tool" in name or quick[api] < QUICK_FROM_EACH - 1)
        )
        quick[api] += is_quick
        params.append(pytest.param(api, body, id=f"{api}: {name}", marks=() if is_quick else (pytest.mark.slow,)))
    return params


def read(api: str, pieces: Iterable[bytes]) -> tuple[str, dict[str, Any]]:
    """Read a stream that arrives in these pieces; return how it ended, and the message."""
    model = Model("m", api=api, provider="p", reasoning=True)
    assembly = Assembly(model)
    assembly.start()
    left = iter(pieces)
    events = EventStream(lambda: next(left, b""))
    answer = Answer(Call(model, Context(), StreamOptions()), assembly, events.expect_end)
    ending = "broken"
    try:
        for event in FORMATS[api]().read(iter(events), answer):
            if isinstance(event, (DoneEvent, ErrorEvent)):
                ending = event.type
                break
    except RequestFailed as error:
        ending = error.failure.kind
    if ending not in ("done", "error"):
        assembly.fail("broken", kind="protocol", retryable=True)
    message = encode(assembly.message)
    message.pop("timestamp")
    for block in message["content"]:
        if block["type"] == "toolCall":
            block["id"] = re.sub(r"[0-9a-f-]{20,36}$", "ID", block["id"])  # made up by the library
    return ending, message


def places_in(body: bytes) -> list[int]:
    step = max(1, len(body) * len(body) // WORK_BYTES)
    if step > 1:
        step |= 1  # odd, so that it does not fall into step with the lines
    return list(range(1, len(body), step))


@pytest.mark.parametrize(("api", "body"), all_streams())
def test_a_stream_cut_at_any_byte_is_never_a_finished_answer_too_early(api: str, body: bytes) -> None:
    """What is cut before its terminal event is no good end; whatever is cut ends somehow, and keeps only what was sent."""
    _, whole = read(api, [body])
    said = "".join(block.get("text", "") for block in whole["content"])
    for place in places_in(body):
        ending, message = read(api, [body[:place]])
        if ending == "done":
            assert TERMINAL[api].search(body[:place]), f"taken for finished after {place} of {len(body)} bytes"
        elif api != "openai-responses":  # there the finished item has the last word over what was streamed
            assert said.startswith("".join(block.get("text", "") for block in message["content"])), f"cut after {place} bytes"


@pytest.mark.parametrize(("api", "body"), all_streams())
def test_a_stream_split_at_any_byte_is_the_same(api: str, body: bytes) -> None:
    """Two pieces, split anywhere, and single bytes give the answer of the whole."""
    whole = read(api, [body])
    for place in places_in(body):
        assert read(api, [body[:place], body[place:]]) == whole, f"split after {place} of {len(body)} bytes"
    if len(body) <= 20_000:
        assert read(api, (body[index : index + 1] for index in range(len(body)))) == whole
