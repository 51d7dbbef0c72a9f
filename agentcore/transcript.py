"""What a model gets to see of a transcript, and how a transcript is kept well-formed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, Union, cast, overload

from agentcore.codec import decode_tagged, dumps, encode
from agentcore.custom_messages import (
    AgentMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    bash_execution_to_text,
    branch_summary_to_text,
    compaction_summary_to_text,
)
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    now_ms,
)

PromptInput = Union[str, AgentMessage, Sequence[AgentMessage]]
"""What `prompt` takes: a text, a message, or a list of messages."""


def normalize_prompt_input(value: PromptInput, images: Sequence[ImageContent] = ()) -> list[AgentMessage]:
    """Return a prompt as a list of messages: a string becomes a user message with the images behind its text.

    Raises:
        TypeError: The value is neither a string nor a message nor a list of messages, or images come without a text.
    """
    if isinstance(value, str):
        return [UserMessage([TextContent(value), *images])]
    if images:
        raise TypeError("images go with a text: put them into the content of the message instead")
    if is_message(value):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes, bytearray)):
        messages = list(value)
        for message in messages:
            if not is_message(message):
                raise TypeError(f"a prompt is a list of messages, and this one holds {_kind(message)}: {_WAY_OUT}")
        return messages
    raise TypeError(f"a prompt is a text, a message or a list of messages, not {_kind(value)}: {_WAY_OUT}")


_WAY_OUT = "pass a string or UserMessage(…); load_messages reads JSON"


def _kind(value: object) -> str:
    return "a dict" if isinstance(value, dict) else f"a value of type {type(value).__name__}"


def is_message(value: object) -> TypeGuard[AgentMessage]:
    """Return whether a value is a message: of the library's classes, or an object of its own kind with a `role`."""
    return isinstance(getattr(value, "role", None), str)


_PLAIN = frozenset((UserMessage, AssistantMessage, ToolResultMessage))


def convert_to_llm(messages: Iterable[AgentMessage]) -> list[Message]:
    """Return the messages that a model gets: the custom ones as user messages, unknown ones left out.

    Unpaired tool calls stay as they are; see `pair_tool_results`. As the reference's `convertToLlm`.
    """
    messages = list(messages)
    if _PLAIN.issuperset(map(type, messages)):  # nearly always; a loop over the transcript of a long session takes 5 times as long
        return cast("list[Message]", messages)
    converted: list[Message] = []
    for message in messages:
        if isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage)):
            converted.append(message)
        elif isinstance(message, CustomMessage):
            converted.append(message.message)
        elif isinstance(message, CompactionSummaryMessage):
            converted.append(UserMessage(compaction_summary_to_text(message), message.timestamp))
        elif isinstance(message, BranchSummaryMessage):
            converted.append(UserMessage(branch_summary_to_text(message), message.timestamp))
        elif isinstance(message, BashExecutionMessage) and not message.exclude_from_context:
            converted.append(UserMessage(bash_execution_to_text(message), message.timestamp))
    return converted


@overload
def pair_tool_results(messages: Iterable[Message]) -> list[Message]: ...


@overload
def pair_tool_results(messages: Iterable[AgentMessage]) -> list[AgentMessage]: ...


def pair_tool_results(messages: Iterable[Any]) -> list[Any]:
    """Return the messages with exactly one result for every call, right behind the answer that made it.

    The results stand in the order of the calls. A call without a result gets an error result, `Operation aborted`; a result
    without a call, or a second one, is left out. An id that a later answer uses again stands for that answer's call from then
    on. Nothing that is given is changed, and all messages of the list that comes back are those given, but for the results
    made up. Failed and aborted answers are treated like all others: who does not send them takes them out first.
    """
    paired: list[Any] = []  # messages, and behind an answer with calls the `_Answers` to them
    waiting: dict[str, list[tuple[_Answers, int]]] = {}  # call id → calls of the last answer that used it, still without result
    for message in messages:
        if isinstance(message, ToolResultMessage):
            places = waiting.get(message.tool_call_id)
            if places:
                answers, index = places.pop(0)
                answers.results[index] = message
            continue
        paired.append(message)
        if not isinstance(message, AssistantMessage):
            continue
        calls = message.tool_calls
        if not calls:
            continue
        answers = _Answers(message, calls)
        paired.append(answers)
        for call in calls:
            waiting[call.id] = []
        for index, call in enumerate(calls):
            waiting[call.id].append((answers, index))
    flat: list[Any] = []
    for item in paired:
        if isinstance(item, _Answers):
            flat.extend(item.complete())
        else:
            flat.append(item)
    return flat


class _Answers:
    """The results of the calls of one answer, by the calls' places."""

    __slots__ = ("answer", "calls", "results")

    def __init__(self, answer: AssistantMessage, calls: list[ToolCall]) -> None:
        self.answer = answer
        self.calls = calls
        self.results: list[ToolResultMessage | None] = [None] * len(calls)

    def complete(self) -> Iterator[ToolResultMessage]:
        for call, result in zip(self.calls, self.results, strict=True):
            yield result or aborted_result(call, self.answer.timestamp)


def aborted_result(call: ToolCall, timestamp: int | None = None) -> ToolResultMessage:
    """Make the error result of a call that was not carried out, because the run was aborted."""
    when = now_ms() if timestamp is None else timestamp
    return ToolResultMessage(call.id, call.name, [TextContent("Operation aborted")], is_error=True, timestamp=when)


def dump_messages(messages: Sequence[AgentMessage]) -> str:
    """Return a conversation as JSON text, a list; `load_messages` reads it."""
    return dumps([encode(message) for message in messages])


def load_messages(text: str | bytes) -> list[AgentMessage]:
    """Read what `dump_messages` wrote.

    Raises:
        ValueError: The text is no JSON list of messages. It names the first message that cannot be read.
        TypeError: It is no text.
    """
    if not isinstance(text, (str, bytes, bytearray)):
        raise TypeError(f"load_messages reads JSON text, not {_kind(text)}: pass what dump_messages gave back")
    try:
        raws = json.loads(text)
    except ValueError as error:
        raise ValueError(f"this is no conversation in JSON ({error}): load_messages reads what dump_messages wrote") from error
    if not isinstance(raws, list):
        raise ValueError("a conversation is a JSON list of messages, this is none: load_messages reads what dump_messages wrote")
    return [_load_message(raw, place) for place, raw in enumerate(raws, start=1)]


def _load_message(raw: Any, place: int) -> AgentMessage:
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        raise ValueError(f"message {place} cannot be read: a message is a JSON object with a role and what belongs to it")
    if raw["role"] in ("user", "assistant", "toolResult") and not isinstance(raw.get("content"), (str, list)):
        raise ValueError(f"message {place} cannot be read: the content of a {raw['role']} message is a text or a list of blocks")
    try:
        message: AgentMessage = decode_tagged(raw)
    except (ValueError, TypeError) as error:
        raise ValueError(f"message {place} cannot be read: {error}") from error
    return message
