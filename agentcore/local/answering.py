"""The stream function of the embedded model.

    the user spoke last      plan_call → POST /completion, bound to a schema ─► a tool call
                                      └─ no tool is meant ─► answer
    a tool result is last    answer: POST /v1/chat/completions, the results in the user's turn ─► text

So a prompt leads to one call at most: a model of this size would go on calling for ever.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from agentcore.codec import dumps
from agentcore.errors import AgentCoreError
from agentcore.events import AssistantMessageEvent, ErrorEvent
from agentcore.llm.assembly import Assembly
from agentcore.llm.openai_completions import stream as stream_chat
from agentcore.llm.request import Context, StreamOptions
from agentcore.llm.sse import SseEvent
from agentcore.llm.wire import Answer, Call, WireFormat, WireRequest, run_wire_format
from agentcore.local.planning import Plan, plan_call, read_call
from agentcore.local.server import embedded_server
from agentcore.messages import AssistantMessage, Message, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from agentcore.models import Model

API = "local-smollm"

_MAX_CALL_TOKENS = 512
_MAX_ANSWER_TOKENS = 256
# With more than this of a tool's output the model loses the thread, and it reads no more than 280 tokens a second.
_MAX_RESULT_CHARS = 700
_MAX_HISTORY_CHARS = 5000

# A choice of tool and an answer have little in common: a slot each keeps what the server remembers of the last one.
_CALL_SLOT, _ANSWER_SLOT = 0, 1


def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask the embedded model: the `StreamFn` of its wire format.

    The server is started if it does not run, so `model.base_url` is not looked at.
    """
    try:
        address = embedded_server.start()
    except (ImportError, AgentCoreError) as error:
        yield Assembly(model).fail(str(error), kind="setup", retryable=False)
        return
    # A model on the same machine may take its time, and there is nothing to try again.
    options = replace(options, api_key="none", timeout=None, stall_timeout=None, max_retries=0)
    last = context.messages[-1] if context.messages else None
    if isinstance(last, UserMessage) and context.tools:
        plan = plan_call(last.text, context.tools, options.tool_choice)
        if plan is not None:
            events = list(run_wire_format(_ToolChoice(address, plan), model, context, options))
            if isinstance(events[-1], ErrorEvent) or events[-1].message.content:  # type: ignore[union-attr]
                yield from events
                return
    yield from _answer(address, model, context, options)


class _ToolChoice(WireFormat):
    """A completion that is bound to the schema of a call. The answer is empty where no tool is meant."""

    api = API
    terminal = "stop"
    needs_key = False

    def __init__(self, address: str, plan: Plan) -> None:
        self._url = f"{address}/completion"
        self._plan = plan

    def build(self, call: Call) -> WireRequest:
        body = {
            "prompt": self._plan.prompt,
            "json_schema": self._plan.schema,
            "n_predict": _MAX_CALL_TOKENS,
            "temperature": call.options.temperature or 0.0,
            "stream": True,
            "id_slot": _CALL_SLOT,
        }
        return WireRequest(self._url, body)

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        pieces: list[str] = []
        for event in events:
            said = answer.parse(event)
            pieces.append(said.get("content", ""))
            if said.get("stop"):
                answer.message.usage = _usage(said)
                break
        else:
            return
        call = read_call(self._plan, "".join(pieces))
        if call is None:
            yield answer.finish("done")
            return
        name, arguments = call
        assembly = answer.assembly
        started = assembly.open_call(f"call_{uuid.uuid4().hex[:12]}", name)
        yield started
        yield assembly.add_arguments(started.content_index, dumps(arguments))
        yield assembly.end(started.content_index)
        yield answer.finish("toolUse")


def _usage(said: dict[str, Any]) -> Usage:
    prompt, written = said.get("tokens_evaluated", 0), said.get("tokens_predicted", 0)
    cached = said.get("timings", {}).get("cache_n", 0)
    return Usage(input=prompt - cached, output=written, cache_read=cached, total_tokens=prompt + written)


def _answer(address: str, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    has_results = bool(context.messages) and isinstance(context.messages[-1], ToolResultMessage)
    extra: dict[str, Any] = {"id_slot": _ANSWER_SLOT, "dry_multiplier": 0.8}  # without DRY sampling it repeats itself for ever
    if has_results and options.stop is None:
        extra["stop"] = ["\n\n", "\n#", "```"]  # one paragraph: what comes after it has nothing to do with the tool's output
    options = replace(
        options,
        extra_body={**extra, **(options.extra_body or {})},
        temperature=options.temperature or 0.0,
        max_tokens=options.max_tokens or _MAX_ANSWER_TOKENS,
        reasoning=None,
        tool_choice=None,
    )
    # Without a window: what is told here is short, and the safety margin kept for a large model is all that this one has.
    chat = replace(model, api="openai-completions", base_url=f"{address}/v1", context_window=0)
    spoken = Context(context.system_prompt, _spoken(context.messages), None)
    for event in stream_chat(chat, spoken, options):
        message: Any = getattr(event, "partial", None) or getattr(event, "message", None)
        if message is not None:
            message.api = model.api
        yield event


def _spoken(messages: Sequence[Message]) -> list[Message]:
    """Tell a transcript in the two voices that the model knows; of a long one, the end.

    A tool's output stands in the turn of the user who asked for it, in front of the question: behind it, the model goes on writing
    the file instead of answering.
    """
    told: list[UserMessage | AssistantMessage] = []
    calls = {call.id: call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}
    request, results = "", ""
    for message in messages:
        if isinstance(message, UserMessage):
            request, results = message.text, ""
            told.append(UserMessage(request, timestamp=0))
        elif isinstance(message, ToolResultMessage):
            call = calls.get(message.tool_call_id)
            results += f'{_subject(call)} says:\n\n"{_plain(message.text)}"\n\n'
            while told and isinstance(told[-1], UserMessage):
                told.pop()
            told.append(UserMessage(f"{results}{request} Answer in two short sentences.", timestamp=0))
        elif message.text:
            told.append(AssistantMessage([TextContent(message.text)], timestamp=0))
    kept, size = 0, 0
    for turn in reversed(told):
        size += len(turn.text)
        if kept and size > _MAX_HISTORY_CHARS:
            break
        kept += 1
    return list(told[len(told) - kept :])


def _subject(call: ToolCall | None) -> str:
    """What the output is about: the file or the command, else the tool."""
    if call is None:
        return "The tool"
    for name in ("path", "command"):
        if isinstance(call.arguments.get(name), str):
            return str(call.arguments[name])
    return call.name


def _plain(text: str) -> str:
    """Return the beginning of a text without Markdown, up to the end of a line."""
    text = re.sub(r"```.*?(?:```|\Z)", "", text, flags=re.DOTALL)
    text = re.sub(r"^[#>*\s-]+", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n+", "\n", re.sub(r"[`*]", "", text)).strip()
    if len(text) <= _MAX_RESULT_CHARS:
        return text
    head = text[:_MAX_RESULT_CHARS]
    return head[: head.rfind("\n")] if "\n" in head else head
