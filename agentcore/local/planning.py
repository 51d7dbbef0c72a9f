"""Which tool, if any, a request calls for: a question that a tiny model can answer if it is put in the right way.

The model has no tool calling of its own, and rules in a system prompt are beyond it. What it can do is go on with a list. So it
gets a plain completion: a few requests with their calls, and a schema that lets it write nothing but a call of a tool, or none:

    Request: Why is the sky blue?
    Call: {"tool":"none"}

    Request: Show me lib/util.c
    Call: {"tool":"read","path":"lib/util.c"}

    Request: What is in README.md?
    Call:

Two things make it right far more often (22 and 23 of 25 requests, where a fixed list of examples gets 9 to 17):

- The examples are chosen by the request: those that share words with it, the likest last, behind one that needs no tool.
- A path must be a file that the request names; a tool that needs a path is not on offer where no file is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcore.llm.request import ToolSpec

NO_TOOL = "none"

_PATH_NAMES = frozenset({"path", "file", "filename", "file_path", "file_name"})
# A slash or an ending makes a word a file; so do LICENSE, Makefile and Dockerfile.
_FILE = re.compile(r"[\w.~/-]*(?:/[\w.~/-]+|\.\w{1,8})\b|\b[A-Z]{4,}\b|\b[A-Z]\w*file\b")
_PASSED_OVER = frozenset(
    ("the", "and", "with", "for", "are", "use", "can", "please", "tell", "your", "that", "this", "how", "does")
)
_MAX_EXAMPLES = 6

_Example = tuple[str, dict[str, Any]]

_EXAMPLES: tuple[_Example, ...] = (
    ("Hello!", {"tool": NO_TOOL}),
    ("Read notes.txt and sum it up.", {"tool": "read", "path": "notes.txt"}),
    ("Run the tests.", {"tool": "bash", "command": "pytest"}),
    ("Why is the sky blue?", {"tool": NO_TOOL}),
    ("What does docs/guide.md say?", {"tool": "read", "path": "docs/guide.md"}),
    ("Write ok to status.txt", {"tool": "write", "path": "status.txt", "content": "ok"}),
    ("List the files here.", {"tool": "ls"}),
    ("List the files here.", {"tool": "bash", "command": "ls"}),
    ("Thank you!", {"tool": NO_TOOL}),
    ("Create notes.txt with the text hello", {"tool": "write", "path": "notes.txt", "content": "hello"}),
    ("Replace red with blue in a.txt", {"tool": "edit", "path": "a.txt", "edits": [{"oldText": "red", "newText": "blue"}]}),
    ("Write a poem.", {"tool": NO_TOOL}),
    ("Show me lib/util.c", {"tool": "read", "path": "lib/util.c"}),
    ("Run make", {"tool": "bash", "command": "make"}),
    ("Who are you?", {"tool": NO_TOOL}),
    ("Tell me what is in config.json", {"tool": "read", "path": "config.json"}),
)


@dataclass(frozen=True)
class Plan:
    """A completion that ends in a call: the text to go on with, and the schema that the continuation obeys."""

    prompt: str
    schema: dict[str, Any]
    key: str
    """The member of the call that names the tool."""


def plan_call(request: str, tools: Sequence[ToolSpec], tool_choice: str | None = None) -> Plan | None:
    """Put the question which tool `request` calls for; None where no tool can be meant.

    Args:
        request: What the user said last.
        tools: What there is to call.
        tool_choice: `"none"`, `"auto"`, `"required"`, or the one tool to call.
    """
    if tool_choice == NO_TOOL:
        return None
    files = _files(request)
    offered: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if tool_choice in (None, "auto", "required", tool.name):
            arguments = _fitted_arguments(tool.parameters, files)
            if arguments is not None:
                offered[tool.name] = arguments
    if not offered:
        return None
    key = "tool"
    while any(key in arguments["properties"] for arguments in offered.values()):
        key += "_"
    choices = [_call_schema(key, name, arguments) for name, arguments in offered.items()]
    if tool_choice in (None, "auto"):
        choices.append(_call_schema(key, NO_TOOL, {"properties": {}, "required": []}))
    examples = [example for example in (*_EXAMPLES, *_made_examples(tools)) if _is_callable(example[1], offered)]
    pairs = "".join(f"Request: {text}\nCall: {_dumps(call, key)}\n\n" for text, call in _likest(request, examples))
    return Plan(f"{pairs}Request: {' '.join(request.split())[:1000]}\nCall: ", {"oneOf": choices}, key)


def read_call(plan: Plan, text: str) -> tuple[str, dict[str, Any]] | None:
    """Read what the model wrote: the name of a tool and its arguments, or None for no tool (or a call that was cut short)."""
    try:
        call = json.loads(text)
    except ValueError:
        return None
    name = call.pop(plan.key)
    return None if name == NO_TOOL else (name, call)


def _call_schema(key: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: {"const": name}, **arguments["properties"]},
        "required": [key, *arguments["required"]],
        "additionalProperties": False,
    }


def _fitted_arguments(parameters: Mapping[str, Any], files: Sequence[str]) -> dict[str, Any] | None:
    """Keep the arguments that a call must have, and pin paths to `files`; None if there is no file for one.

    Optional arguments are left out: the model would rather fill them all in than leave one.
    """
    properties: Mapping[str, Any] = parameters.get("properties") or {}
    kept: dict[str, Any] = {}
    for name in parameters.get("required") or ():
        schema = properties.get(name, {})
        if name.lower() in _PATH_NAMES and schema.get("type", "string") == "string":
            if not files:
                return None
            schema = {"enum": list(files)}
        kept[name] = schema
    fitted: dict[str, Any] = {"properties": kept, "required": list(kept)}
    return fitted


def _made_examples(tools: Sequence[ToolSpec]) -> list[_Example]:
    """Make an example call out of the description of every tool that the list above does not know."""
    known = {call["tool"] for _, call in _EXAMPLES}
    made = []
    for tool in tools:
        if tool.name in known:
            continue
        properties = tool.parameters.get("properties") or {}
        values = {name: _example_value(properties.get(name, {})) for name in tool.parameters.get("required") or ()}
        words = " ".join(str(value) for value in values.values() if isinstance(value, (str, int, float)))
        saying = re.split(r"(?<=[.!?])\s|\n", tool.description.strip(), maxsplit=1)[0].rstrip(".") or tool.name
        made.append((f"{saying}: {words}" if words else f"{saying}.", {"tool": tool.name, **values}))
    return made


def _example_value(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    by_type: dict[str, Any] = {"integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return by_type.get(str(schema.get("type")), "Paris")


def _is_callable(call: Mapping[str, Any], offered: Mapping[str, Mapping[str, Any]]) -> bool:
    name = call["tool"]
    return name == NO_TOOL or (name in offered and set(offered[name]["required"]) == set(call) - {"tool"})


def _likest(request: str, examples: Sequence[_Example]) -> list[_Example]:
    words = _words(request)

    def likeness(example: _Example) -> float:
        others = _words(example[0])
        return len(words & others) / (1 + 0.1 * len(others))

    ranked = sorted(examples, key=likeness)  # stable, so equals stay in the order of the list
    alike = [example for example in ranked if likeness(example) > 0]
    others = [example for example in ranked if likeness(example) == 0]
    without_tool = [example for example in others if example[1]["tool"] == NO_TOOL]
    if alike:
        return without_tool[-1:] + alike[-_MAX_EXAMPLES:]
    with_tool = [example for example in others if example[1]["tool"] != NO_TOOL]
    return with_tool[-1:] + without_tool[-2:]


def _files(text: str) -> list[str]:
    found = (match.group().rstrip(".") for match in _FILE.finditer(text))
    return list(dict.fromkeys(name for name in found if name.strip("./")))


def _words(text: str) -> set[str]:
    """The words that matter, cut to their stem; all files are one word, and so are all numbers."""
    words = set()
    for name in _files(text):
        words.add("<file>")
        text = text.replace(name, " ")
    for word in re.findall(r"\w+", text.lower()):
        if word.isdigit():
            words.add("<number>")
        elif len(word) > 2 and word not in _PASSED_OVER:
            words.add(word[:5])
    return words


def _dumps(call: Mapping[str, Any], key: str) -> str:
    named = {key if name == "tool" else name: value for name, value in call.items()}
    return json.dumps(named, separators=(",", ":"), ensure_ascii=False)
