"""Fits a transcript to one provider, on the way out: call ids, thinking, images, calls without results.

The transcript itself is never changed: a message that fits goes out as it is, any other as a copy that fits.

- Failed and aborted answers are left out; of the rest every call has exactly one result (`pair_tool_results`).
- An answer of another model keeps its words: thinking becomes plain text (never between tags, which models copy), encrypted
  thinking and signatures go, since only their maker can read them.
- A call id that another provider made is rewritten to what this one accepts: the same way for a call and for its result, and two
  different ids never become one.
- Images for a model that cannot see become a note that says so.

**Encoding.** A message of the transcript does not change once it has been sent, so its JSON is made once for a wire format and kept
with the message (`encode_history`); the next request only joins the pieces. What is kept is used only while all parts of the
message are the same objects as when it was made, so a message that somebody did change is written anew. (Only a change deep
inside the arguments of a call goes unseen: put in a new `ToolCall` instead.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Union

from agentcore.codec import dumps
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.models import Model
from agentcore.transcript import pair_tool_results

NO_IMAGES = "(image omitted: model does not support images)"
NO_TOOL_IMAGES = "(tool image omitted: model does not support images)"

NormalizeId = Callable[[str, AssistantMessage], str]
"""Turns a call id that another model made into one that this API accepts; gets the answer that it came from."""

EncodeMessage = Callable[[Message, int], str]
"""Writes a fitted message as JSON text, `""` for nothing; gets its place in the fitted transcript."""


# --- fitting ---------------------------------------------------------------------------------------------------------


def is_same_model(message: AssistantMessage, model: Model) -> bool:
    """Whether an answer was made by this model at this provider through this API."""
    return message.model == model.id and message.provider == model.provider and message.api == model.api


def fit_history(messages: Iterable[Message], model: Model, normalize_id: NormalizeId | None = None) -> list[Message]:
    """Return the messages that this model gets, each fit for it."""
    fitter = _Fitter(model, normalize_id)
    return [fitter.fit(message) for message in pair_tool_results(_sendable(messages))]


def _sendable(messages: Iterable[Message]) -> list[Message]:
    return [
        message
        for message in messages
        if not (isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted"))
    ]


class _Fitter:
    """Fits the messages of one request, in order."""

    def __init__(self, model: Model, normalize_id: NormalizeId | None) -> None:
        self.model = model
        self.normalize_id = normalize_id
        self.has_vision = "image" in model.input
        self.renamed: dict[str, str] = {}  # id in the transcript → id on the wire, where they differ
        self._owner: dict[str, str] = {}  # id on the wire → id in the transcript

    def fit(self, message: Message) -> Message:
        """Return the message itself if it fits, else a copy that does."""
        if isinstance(message, AssistantMessage):
            if is_same_model(message, self.model):
                if self.renamed:
                    for call in message.tool_calls:
                        self.renamed.pop(call.id, None)
                return fit_own(message)
            self.rename_calls(message)
            return fit_foreign(message, self.renamed)
        if isinstance(message, ToolResultMessage):
            id = self.renamed.get(message.tool_call_id)
            content = message.content if self.has_vision else _without_images(message.content, NO_TOOL_IMAGES)
            if id is None and content is message.content:
                return message
            return ToolResultMessage(
                id or message.tool_call_id, message.tool_name, content, is_error=message.is_error, timestamp=message.timestamp
            )
        if isinstance(message, UserMessage) and not self.has_vision:
            content = _without_images(message.content, NO_IMAGES)
            return message if content is message.content else UserMessage(content, message.timestamp)
        return message

    def rename_calls(self, message: AssistantMessage) -> None:
        """Note what the calls of a foreign answer are called on the wire."""
        if self.normalize_id is None:
            return
        for call in message.tool_calls:
            name = self.normalize_id(call.id, message)
            if self._owner.get(name, call.id) != call.id:
                suffix = "_" + short_hash(call.id)[:8]
                name = name[: 64 - len(suffix)] + suffix
            self._owner[name] = call.id
            if name == call.id:
                self.renamed.pop(call.id, None)
            else:
                self.renamed[call.id] = name


def fit_own(message: AssistantMessage) -> AssistantMessage:
    """Return an answer of the same model, without thinking that says nothing."""
    content = message.content
    if not any(isinstance(block, ThinkingContent) and not _says_something(block) for block in content):
        return message
    kept = [block for block in content if not isinstance(block, ThinkingContent) or _says_something(block)]
    return _with_content(message, kept)


def _says_something(block: ThinkingContent) -> bool:
    return bool(block.thinking_signature) or (not block.redacted and bool(block.thinking.strip()))


def fit_foreign(message: AssistantMessage, renamed: Mapping[str, str]) -> AssistantMessage:
    """Return an answer of another model: thinking as text, nothing that only its maker understands."""
    content: list[TextContent | ThinkingContent | ToolCall] = []
    for block in message.content:
        if isinstance(block, ThinkingContent):
            if not block.redacted and block.thinking.strip():
                content.append(TextContent(block.thinking))
        elif isinstance(block, ToolCall):
            content.append(ToolCall(renamed.get(block.id, block.id), block.name, block.arguments))
        else:
            content.append(block if block.text_signature is None else TextContent(block.text))
    return _with_content(message, content)


def _with_content(message: AssistantMessage, content: list[TextContent | ThinkingContent | ToolCall]) -> AssistantMessage:
    return AssistantMessage(
        content,
        api=message.api,
        provider=message.provider,
        model=message.model,
        usage=message.usage,
        stop_reason=message.stop_reason,
        timestamp=message.timestamp,
        response_id=message.response_id,
    )


def _without_images(content: list[TextContent | ImageContent], note: str) -> list[TextContent | ImageContent]:
    if not any(isinstance(block, ImageContent) for block in content):
        return content
    kept: list[TextContent | ImageContent] = []
    for block in content:
        if isinstance(block, TextContent):
            kept.append(block)
        elif not (kept and isinstance(kept[-1], TextContent) and kept[-1].text == note):
            kept.append(TextContent(note))
    return kept


# --- ids -------------------------------------------------------------------------------------------------------------


def plain_id(id: str, source: AssistantMessage | None = None) -> str:
    """Reduce a call id to letters, digits, `_` and `-`, at most 64 of them: what all APIs accept."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", id)[:64]


def short_hash(text: str) -> str:
    """Return a short, stable name for a text, in letters and digits. It is the reference's, so ids stay the same across both."""
    one, two = 0xDEADBEEF, 0x41C6CE57
    units = text.encode("utf-16-le", "surrogatepass")
    for index in range(0, len(units), 2):
        unit = units[index] | units[index + 1] << 8
        one = (one ^ unit) * 2654435761 & 0xFFFFFFFF
        two = (two ^ unit) * 1597334677 & 0xFFFFFFFF
    one = ((one ^ one >> 16) * 2246822507 ^ (two ^ two >> 13) * 3266489909) & 0xFFFFFFFF
    two = ((two ^ two >> 16) * 2246822507 ^ (one ^ one >> 13) * 3266489909) & 0xFFFFFFFF
    return _base36(two) + _base36(one)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not number:
            return digits


# --- encoding --------------------------------------------------------------------------------------------------------

_KEPT = "_encoded"  # in a message's __dict__: (key, leaves, JSON text); no field, so nothing compares, prints or stores it


def encode_history(
    messages: Sequence[Message],
    model: Model,
    encode: EncodeMessage,
    *,
    tag: Hashable,
    normalize_id: NormalizeId | None = None,
    counts_messages: bool = False,
) -> list[tuple[Message, str]]:
    """Fit and encode a transcript; what was encoded before is taken over.

    Args:
        encode: Writes one fitted message.
        tag: Stands for the wire format and all that changes what `encode` writes; the model's kinds of input are seen to.
        counts_messages: Whether `encode` uses the message's place.

    Returns:
        Each message of the fitted transcript (the original where it was taken over) with its JSON text.
    """
    fitter = _Fitter(model, normalize_id)
    encoded: list[tuple[Message, str]] = []
    for index, message in enumerate(pair_tool_results(_sendable(messages))):
        attributes = message.__dict__
        key: tuple[Any, ...] = (tag, fitter.has_vision, index if counts_messages else None, model.id, model.provider)
        if isinstance(message, AssistantMessage):
            if is_same_model(message, model):
                if fitter.renamed:
                    fitter.fit(message)
            else:
                fitter.rename_calls(message)
                key += (tuple(fitter.renamed.get(call.id) for call in message.tool_calls),)
        elif isinstance(message, ToolResultMessage):
            key += (fitter.renamed.get(message.tool_call_id),)
        leaves = _leaves(message)
        kept = attributes.get(_KEPT)
        if kept is not None and kept[0] == key and len(kept[1]) == len(leaves) and all(map(is_, kept[1], leaves)):
            encoded.append((message, kept[2]))
            continue
        text = encode(fitter.fit(message), index)
        attributes[_KEPT] = (key, leaves, text)
        encoded.append((message, text))
    return encoded


def _leaves(message: Any) -> list[object]:
    """Return all parts of a message, to be compared by identity."""
    leaves: list[object] = []
    for block in message.content:
        leaves.append(block)
        leaves.extend(block.__dict__.values())
    if isinstance(message, ToolResultMessage):
        leaves += (message.tool_call_id, message.tool_name, message.is_error)
    return leaves


class JsonPieces(list[str]):
    """A list in a request body whose members are JSON text already."""

    def read(self) -> list[Any]:
        """Return the members as values."""
        return [json.loads(piece) for piece in self]


BodyValue = Union[JsonPieces, Any]


def to_json(value: Any) -> str:
    """Return JSON text fit for a request: half surrogate pairs are left out, since most servers refuse them."""
    text = dumps(value)
    if "\\ud" in text or "\\uD" in text:
        # `dumps` escapes what cannot be written as UTF-8; read back, halves that belong together are one character again.
        return dumps(_without_halves(json.loads(text)))
    return text


def sanitize_surrogates(text: str) -> str:
    """Leave half surrogate pairs out of a text; two halves that stand together become the character that they make."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def _without_halves(value: Any) -> Any:
    if isinstance(value, str):
        return sanitize_surrogates(value)
    if isinstance(value, dict):
        return {sanitize_surrogates(key): _without_halves(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_without_halves(member) for member in value]
    return value


def write_body(body: Mapping[str, BodyValue]) -> bytes:
    """Return a request body as UTF-8 JSON; its `JsonPieces` go in as they are."""
    members = (
        f"{json.dumps(key)}:[{','.join(value)}]" if isinstance(value, JsonPieces) else f"{json.dumps(key)}:{to_json(value)}"
        for key, value in body.items()
    )
    return ("{" + ",".join(members) + "}").encode()


def plain_body(body: Mapping[str, BodyValue]) -> dict[str, Any]:
    """Return a request body without `JsonPieces`, for whoever looks at it or changes it."""
    return {key: value.read() if isinstance(value, JsonPieces) else value for key, value in body.items()}
