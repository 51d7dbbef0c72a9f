"""Real answers of real servers are read as the providers' own SDKs read them, however the network cuts them.

The recordings are not part of the project. `AGENTCORE_WIRE` names their folder, else it is `../shared/wire` beside the project.
Each file has the answer as it came (`body`, `status`, `content_type`) and what the vendor's SDK made of it (`judge`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from agentcore.codec import encode
from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import AssistantMessage, TextContent, ThinkingContent, UserMessage
from agentcore.testing import Answer, SseServer, answer

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("AGENTCORE_WIRE") or ROOT.parent / "shared" / "wire")
KEY = "sk-wire-0123456789abcdef"
APIS = ("openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai")
REASONS = {
    "length": ("length", "max_tokens", "max_output_tokens", "MAX_TOKENS"),
    "error": ("content_filter", "refusal", "failed", "cancelled", "SAFETY", "RECITATION"),
    "toolUse": ("tool_calls", "tool_use"),
    "done": ("stop", "completed", "end_turn", "stop_sequence", "pause_turn", "STOP"),
}


def streams() -> list[Any]:
    """Return the recordings as parameters; one that skips where there are none."""
    files = sorted((FOLDER / "streams").glob("*/*.json")) if FOLDER.is_dir() else []
    if not files:
        skip = pytest.mark.skip(reason="no wire data: ../shared/wire is not there")
        return [pytest.param(None, marks=skip, id="no wire data")]
    return [pytest.param(file, id=f"{file.parent.name}: {file.stem}") for file in files]


def load(file: Path) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(file.read_text("utf-8"))
    assert recorded["api"] in APIS, f"{file}: unknown api {recorded['api']!r}"
    assert isinstance(recorded["body"], str), f"{file}: no body"
    return recorded


@pytest.mark.parametrize("file", streams())
def test_a_real_answer_is_read_as_the_vendor_reads_it(file: Path) -> None:
    """Text, thinking, calls, stop reason and usage are those that the vendor's SDK found; an error is an error with its words."""
    recorded = load(file)
    (message,) = play(recorded, [serve(recorded)])
    compare(recorded, message)


@pytest.mark.parametrize("file", streams())
def test_a_real_answer_is_the_same_in_odd_pieces(file: Path) -> None:
    """Served in pieces of odd size, and in those in which it once arrived, an answer is the same as in one."""
    recorded = load(file)
    answers = [
        serve(recorded, chunk_size=10**9),
        serve(recorded, chunk_size=997),
        serve(recorded, framing="close", chunk_size=4099),
    ]
    if recorded.get("chunk_sizes"):
        answers.append(serve(recorded, split_at=list(accumulate(recorded["chunk_sizes"]))))
    if len(recorded["body"]) < 6000:
        answers.append(serve(recorded, chunk_size=1))
    whole, *pieces = map(comparable, play(recorded, answers))
    assert [piece for piece in pieces if piece != whole] == []


@pytest.mark.slow
@pytest.mark.parametrize("file", streams())
def test_a_real_answer_is_the_same_byte_by_byte(file: Path) -> None:
    """Served byte by byte and in sevens, an answer is the same as in one piece."""
    recorded = load(file)
    whole, *pieces = map(
        comparable, play(recorded, [serve(recorded), serve(recorded, chunk_size=1), serve(recorded, chunk_size=7)])
    )
    assert [piece for piece in pieces if piece != whole] == []


@pytest.mark.slow
@pytest.mark.parametrize("file", streams())
def test_a_real_answer_cut_anywhere_is_never_taken_for_finished(file: Path) -> None:
    """Cut at any byte, an answer is an error unless its last terminal event was whole; and nothing hangs or crashes."""
    recorded = load(file)
    body = recorded["body"].encode()
    if recorded["status"] != 200 or not body:
        return
    step = max(1, len(body) // 400)
    places = [*range(0, len(body), step), len(body)]
    ends = [
        place
        for place, message in zip(places, cut_at(recorded, places), strict=True)
        if message.stop_reason not in ("error", "aborted")
    ]
    if ends:
        # What made the first good end must be a terminal event: everything from there on is an end too, or an error that followed.
        assert terminal(recorded, body[: ends[0]]), f"taken for finished after {ends[0]} of {len(body)} bytes"


def cut_at(recorded: dict[str, Any], places: list[int]) -> list[AssistantMessage]:
    return play(recorded, [serve(recorded, cut_at=place) for place in places])


def terminal(recorded: dict[str, Any], sent: bytes) -> bool:
    """Whether what was sent holds a whole terminal event."""
    text = sent.decode("utf-8", "ignore").replace("\r\n", "\n")
    marks = {
        "openai-completions": r'"finish_reason"\s*:\s*"\w|data:\s*\[DONE\]',
        "openai-responses": r'"type"\s*:\s*"response\.(completed|incomplete|failed)"',
        "anthropic-messages": r'"type"\s*:\s*"message_stop"',
        "google-generative-ai": r'"finishReason"\s*:\s*"\w|"blockReason"',
    }
    return re.search(marks[recorded["api"]], text) is not None


# --- serving ---------------------------------------------------------------------------------------------------------


def serve(recorded: dict[str, Any], **faults: Any) -> Answer:
    """Return the recorded answer, with faults."""
    headers = {"content-type": recorded["content_type"]} if recorded["content_type"] else {}
    return answer(recorded["body"].encode(), status=recorded["status"], headers=headers, **faults)


def play(recorded: dict[str, Any], answers: list[Answer]) -> list[AssistantMessage]:
    """Read each answer with a fresh request."""
    messages = []
    with SseServer(*answers) as server:
        model = server.model(recorded["api"], provider="wire", id="wire-model", reasoning=True)
        for _ in answers:
            options = StreamOptions(api_key=KEY, max_retries=0, stall_timeout=10)
            *_, last = stream(model, Context("", [UserMessage("hi")]), options)
            messages.append(last.message)  # type: ignore[union-attr]
    return messages


def comparable(message: AssistantMessage) -> dict[str, Any]:
    """Return a message without what differs from one time to the next; ids that the library made up are named alike."""
    raw = encode(message)
    raw.pop("timestamp")
    raw["errorMessage"] = re.sub(r"127\.0\.0\.1:\d+", "SERVER", raw.get("errorMessage") or "")
    for index, block in enumerate(raw["content"]):
        if block["type"] == "toolCall":
            block["raw"] = message.content[index].raw_arguments  # type: ignore[union-attr]
            block["id"] = re.sub(
                r"^(call|toolu|fc|gemini|google)_\w*[0-9a-f]{8,}.*|.*_\d{13}_\d+$|.*[0-9a-f-]{32,}$", "ID", block["id"]
            )
    return raw


# --- comparing -------------------------------------------------------------------------------------------------------


def compare(recorded: dict[str, Any], message: AssistantMessage) -> None:
    """Hold a message against what the vendor's SDK made of the answer."""
    features = recorded["features"]
    if recorded["status"] >= 400:
        compare_error(recorded, message)
        return
    if "json_array_body" in features:
        assert message.stop_reason == "error" and message.error_message
        return
    judge = recorded["judge"]
    assert message.text == text_of(judge), "the text differs"
    compare_calls(judge, message, features)
    compare_thinking(recorded["api"], judge, message)
    if "error_in_stream" in features:
        assert message.stop_reason == "error"
        said = recorded["judge_error"] or {}
        assert message.error_message
        if said.get("message") and recorded["api"] in ("openai-completions", "openai-responses"):
            assert said["message"][:200] in message.error_message
        return
    compare_stop_reason(recorded, judge, message)
    compare_usage(recorded["api"], judge.get("usage"), message)


def compare_error(recorded: dict[str, Any], message: AssistantMessage) -> None:
    assert message.stop_reason == "error"
    text = message.error_message or ""
    assert str(recorded["status"]) in text
    assert KEY not in text
    words = next(messages_in(recorded["body"]), None)
    if words:
        assert words[:200] in text
    retryable = recorded["status"] == 429 or recorded["status"] >= 500
    if message.error_kind not in ("quota", "overflow"):
        assert message.error_retryable == retryable


def messages_in(body: str) -> Iterator[str]:
    try:
        raw = json.loads(body)
    except ValueError:
        return
    raw = raw[0] if isinstance(raw, list) and raw else raw
    if isinstance(raw, dict):
        error = raw.get("error", raw)
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            yield error["message"]
        elif isinstance(error, str):
            yield error


def text_of(judge: dict[str, Any]) -> str:
    extras = judge.get("extras") or {}
    if "text" in extras:
        return str(extras["text"])
    return "".join(
        part.get("text") or part.get("refusal") or "" for part in judge["content"] if part["type"] in ("text", "refusal")
    )


def compare_calls(judge: dict[str, Any], message: AssistantMessage, features: list[str]) -> None:
    calls = message.tool_calls
    wanted = judge["tool_calls"]
    if "streamed_tool_args" in features:
        return
    assert [call.name for call in calls] == [call["name"] for call in wanted]
    for call, recorded in zip(calls, wanted, strict=True):
        if "two_message_starts" in features:
            continue  # the SDK puts the pieces of two answers into one another; ours are counted and named alike
        if call.raw_arguments is not None and message.stop_reason != "error":
            continue  # cut off: never run, and how much can be read of it is each reader's affair
        if recorded["arguments"] is None:
            assert call.raw_arguments is not None or message.stop_reason in ("error", "length"), (
                "broken arguments are not kept apart"
            )
        else:
            assert call.arguments == recorded["arguments"]
        if recorded.get("id"):
            assert call.id.partition("|")[0] == recorded["id"] or "tool_id_repeated" in features
    assert len({call.id for call in calls}) == len(calls) and all(call.id for call in calls)


def compare_thinking(api: str, judge: dict[str, Any], message: AssistantMessage) -> None:
    extras = judge.get("extras") or {}
    thinking = "".join(block.thinking for block in message.content if isinstance(block, ThinkingContent) and not block.redacted)
    if api == "openai-completions":
        wanted = extras.get("thinking") or extras.get("reasoning_details_text") or ""
    else:
        wanted = "".join(thought_of(part) for part in judge["content"] if part["type"] == "thinking")
    if api == "openai-responses":
        thinking, wanted = re.sub(r"\s", "", thinking), re.sub(r"\s", "", wanted)
    assert thinking == wanted
    redacted = [part for part in judge["content"] if part["type"] == "redacted_thinking"]
    ours = [block for block in message.content if isinstance(block, ThinkingContent) and block.redacted]
    assert [len(block.thinking_signature or "") for block in ours] == [part["data_length"] for part in redacted]


def thought_of(part: dict[str, Any]) -> str:
    """Return the text of a thinking part: Responses have a summary in parts, or the reasoning itself."""
    return part.get("thinking") or "".join(part.get("summary") or ()) or part.get("reasoning_text") or ""


def compare_stop_reason(recorded: dict[str, Any], judge: dict[str, Any], message: AssistantMessage) -> None:
    word = judge["stop_reason"]
    if word is None:
        words = (judge.get("extras") or {}).get("finish_reasons") or []
        word = words[-1] if words else None
    if isinstance(word, str) and word == "incomplete":
        word = (judge.get("incomplete_reason") or "max_output_tokens") if not isinstance(word, dict) else word
    if word is None:
        if "no_terminal_event" in recorded["features"] or "bad_json" in recorded["features"]:
            assert message.stop_reason == "error"
        return
    wanted = next((ours for ours, theirs in REASONS.items() if word in theirs), None)
    if wanted is None:
        assert message.stop_reason in ("error", "done")
        return
    if wanted == "done" and message.tool_calls:
        wanted = "toolUse"
    assert message.stop_reason == wanted, f"the vendor says {word}"


def compare_usage(api: str, usage: dict[str, Any] | None, message: AssistantMessage) -> None:
    if not usage:
        return

    def count(*path: str) -> int:
        value: Any = usage
        for key in path:
            value = (value or {}).get(key)
        return value or 0

    ours = message.usage
    read = ours.input + ours.cache_read + ours.cache_write
    if api == "openai-completions":
        wanted_read, written = count("prompt_tokens"), count("completion_tokens")
        reasoning = count("completion_tokens_details", "reasoning_tokens")
        if reasoning and count("total_tokens") == wanted_read + written + reasoning:
            written += reasoning
    elif api == "openai-responses":
        wanted_read, written = count("input_tokens"), count("output_tokens")
    elif api == "anthropic-messages":
        wanted_read = count("input_tokens") + count("cache_read_input_tokens") + count("cache_creation_input_tokens")
        written = count("output_tokens")
    else:
        wanted_read = count("prompt_token_count")
        written = count("candidates_token_count") + count("thoughts_token_count")
    assert (read, ours.output) == (wanted_read, written)


def test_text_and_thinking_blocks_are_plain_when_the_answer_is_over() -> None:
    """A finished answer holds plain blocks only, whatever made them."""
    with SseServer(answer('data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n')) as server:
        *_, last = stream(server.model(), Context("", [UserMessage("hi")]), StreamOptions())
    assert [type(block) for block in last.message.content] == [TextContent]  # type: ignore[union-attr]
