"""Fits a transcript to one provider, on the way out: call ids, thinking, images, calls without results.

The transcript itself is never changed: a message that fits goes out as it is, any other as a copy that fits.

- Failed and aborted answers are left out; of the rest every call has exactly one result (`pair_tool_results`).
- An answer of another model keeps its words: thinking becomes plain text (never between tags, which models copy), encrypted
  thinking and signatures go, since only their maker can read them.
- A call id that another provider made is rewritten to what this one accepts: the same way for a call and for its result, and two
  different ids never become one.
- Images for a model that cannot see become a note that says so.

**Encoding.** What was sent once does not change, so it is written once for a wire format and kept (`encode_history`): the next
request compares the transcript with what was sent (in C, 0.2 ms for 800 messages) and writes only what is new. A message that
somebody did change is noticed and all is written anew; only a change deep inside the arguments of a call goes unseen: put in a new
`ToolCall` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
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

SHORTEST_ID_LIMIT = 40
"""Ids of this many characters are taken by every API that takes names of one's own at all."""

NormalizeId = Callable[[str, AssistantMessage], str]
"""Turns a call id that another model made into one that this API accepts; gets the answer that it came from."""

EncodeMessages = Callable[[Sequence[Message], int], list[str]]
"""Writes fitted messages as pieces of JSON text; gets the number of messages before them."""


# --- fitting ---------------------------------------------------------------------------------------------------------


def is_same_model(message: AssistantMessage, model: Model) -> bool:
    """Whether an answer was made by this model at this provider through this API."""
    return message.model == model.id and message.provider == model.provider and message.api == model.api


def fit_history(messages: Iterable[Message], model: Model, normalize_id: NormalizeId | None = None) -> list[Message]:
    """Return the messages that this model gets, each fit for it."""
    fitter = _Fitter(model, normalize_id)
    return [fitter.fit(message) for message in pair_tool_results(_sendable(messages))]


def _sendable(messages: Iterable[Message]) -> list[Message]:
    """Leave out failed and aborted answers, and the results of their calls, which another call of the same id might take."""
    kept: list[Message] = []
    left_out: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            if message.stop_reason in ("error", "aborted"):
                left_out.update(call.id for call in message.tool_calls)
                continue
            if left_out:
                left_out.difference_update(call.id for call in message.tool_calls)
        elif left_out and isinstance(message, ToolResultMessage) and message.tool_call_id in left_out:
            continue
        kept.append(message)
    return kept


class _Fitter:
    """Fits the messages of one request, in order."""

    def __init__(self, model: Model, normalize_id: NormalizeId | None, *, has_unique_ids: bool = False) -> None:
        self.model = model
        self.normalize_id = normalize_id
        self.has_unique_ids = has_unique_ids
        self.has_vision = "image" in model.input
        self.renamed: dict[str, str] = {}  # id in the transcript → id on the wire, where they differ
        self._owner: dict[str, str] = {}  # id on the wire → id in the transcript
        self._uses: dict[str, int] = {}  # id on the wire → how many calls had it, where each call needs one of its own

    def fit(self, message: Message) -> Message:
        """Return the message itself if it fits, else a copy that does."""
        if isinstance(message, AssistantMessage):
            if is_same_model(message, self.model):
                if self.renamed or self.has_unique_ids:
                    for call in message.tool_calls:
                        self.renamed.pop(call.id, None)
                        self._uses.setdefault(call.id, 1)
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
                name = name[: SHORTEST_ID_LIMIT - len(suffix)] + suffix
            self._owner[name] = call.id
            if self.has_unique_ids:
                name = self._unique(name)
            if name == call.id:
                self.renamed.pop(call.id, None)
            else:
                self.renamed[call.id] = name

    def _unique(self, name: str) -> str:
        """Return an id that no call before has: some services number the calls of each answer from 0 again."""
        uses = self._uses.get(name, 0)
        self._uses[name] = uses + 1
        if not uses:
            return name
        suffix = f"_{uses + 1}"
        return self._unique(name[: 64 - len(suffix)] + suffix)


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

_KEPT = "_encoded"  # in the __dict__ of the last message that was sent; no field, so nothing compares, prints or stores it


class _Kept:
    """What was written for the messages up to and including the one that holds this.

    Threads:
        Whoever takes it out of the message's `__dict__` (one step) owns it; nobody else sees it until it is put back.
    """

    __slots__ = ("count", "earlier", "fitter", "leaves", "open_ids", "pieces", "tag")

    def __init__(self, tag: Hashable = None, fitter: _Fitter | None = None) -> None:
        self.tag = tag
        self.fitter = fitter
        self.earlier: list[Message] = []  # all messages but the one that holds this: no cycle of references
        self.leaves: list[object] = []
        self.pieces: list[str] = []
        self.count = 0  # messages of the fitted transcript
        self.open_ids: set[str] = set()  # calls that were given a made-up result

    def __reduce__(self) -> Any:
        return _Kept, ()  # a copy of a message does not take the conversation with it


def encode_history(
    messages: Sequence[Message],
    model: Model,
    encode: EncodeMessages,
    *,
    tag: Hashable,
    normalize_id: NormalizeId | None = None,
    has_unique_ids: bool = False,
) -> JsonPieces:
    """Fit and encode a transcript; what an earlier request wrote of it is taken over.

    Args:
        encode: Writes fitted messages. It is given all that are new, in order, never a part of a call's results.
        tag: Stands for the wire format and all that changes what `encode` writes; the model is seen to.
        has_unique_ids: Whether no two calls of a conversation may have the same id, also in different answers.

    Returns:
        The pieces that `encode` made of all messages.
    """
    messages = messages if isinstance(messages, list) else list(messages)
    full_tag = (tag, model.id, model.provider, model.api, tuple(model.input))
    kept, start = _take_kept(messages, full_tag)
    fitter = kept.fitter or _Fitter(model, normalize_id, has_unique_ids=has_unique_ids)
    fresh = messages[start:]
    if fresh:
        answered = {message.tool_call_id for message in fresh if isinstance(message, ToolResultMessage)}
        paired = pair_tool_results(_sendable(fresh))
        for message in paired:
            if isinstance(message, AssistantMessage):
                kept.open_ids.update(call.id for call in message.tool_calls if call.id not in answered)
        kept.pieces += encode([fitter.fit(message) for message in paired], kept.count)
        kept.count += len(paired)
        kept.leaves += _leaves(fresh)
        kept.earlier += messages[max(0, start - 1) : -1]
    pieces = JsonPieces(kept.pieces)
    if messages:
        kept.tag, kept.fitter = full_tag, fitter
        messages[-1].__dict__[_KEPT] = kept
    return pieces


def _take_kept(messages: list[Message], tag: Hashable) -> tuple[_Kept, int]:
    """Return what was kept of these messages, and how many of them it covers."""
    for index in range(len(messages) - 1, -1, -1):
        if _KEPT not in messages[index].__dict__:
            continue
        kept: _Kept | None = messages[index].__dict__.pop(_KEPT, None)
        if kept is None or kept.tag != tag or len(kept.earlier) != index:
            break
        # Lists are compared in C, and a member that is the same object is not looked into.
        if kept.earlier != messages[:index] or kept.leaves != _leaves(messages[: index + 1]):
            break
        if kept.open_ids and any(
            isinstance(message, ToolResultMessage) and message.tool_call_id in kept.open_ids for message in messages[index + 1 :]
        ):
            break
        return kept, index + 1
    return _Kept(), 0


_content_of = attrgetter("content")
_attributes_of = attrgetter("__dict__")


def _leaves(messages: Iterable[Message]) -> list[object]:
    """Return the texts, ids and arguments of all blocks, in order."""
    blocks = chain.from_iterable(map(_content_of, messages))
    return list(chain.from_iterable(map(dict.values, map(_attributes_of, blocks))))


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


def is_blank(text: str) -> bool:
    """Whether nothing but white space would go out of a text: half surrogate pairs are left out on the way."""
    return not text.strip() or (not text.isascii() and not sanitize_surrogates(text).strip())


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
    """Return a request body as UTF-8 JSON; its `JsonPieces` go in as they are, behind all else."""
    pieces = [(key, value) for key, value in body.items() if isinstance(value, JsonPieces)]
    text = to_json({key: value for key, value in body.items() if not isinstance(value, JsonPieces)} if pieces else body)
    for key, value in pieces:
        text = f"{text[:-1]}{'' if text == '{}' else ','}{json.dumps(key)}:[{','.join(value)}]}}"
    return text.encode()


def plain_body(body: Mapping[str, BodyValue]) -> dict[str, Any]:
    """Return a request body without `JsonPieces`, for whoever looks at it or changes it."""
    return {key: value.read() if isinstance(value, JsonPieces) else value for key, value in body.items()}
