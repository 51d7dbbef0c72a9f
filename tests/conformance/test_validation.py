"""Recorded cases of checking tool arguments (validation.json, the validate functions).

Tools have plain schemas here, so the cases that were recorded with the reference's own schema builder (`typed`) do not apply.
"""

from __future__ import annotations

import copy
import json
import unicodedata
from typing import Any

import pytest

from agentcore.errors import ToolArgumentsError
from agentcore.messages import AgentToolResult, ToolCall
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.arguments import validate_tool_arguments, validate_tool_call
from tests.conformance.cases import HERE, Difference, case_params, check, data_folder, with_difference
from tests.conformance.null_rules import has_null, settle_nulls
from tests.conformance.scenario_runner import hide_faults
from tests.conformance.tool_texts import call_of, put_our_texts, without_foreign_faults

NULL = "null stands for what was not given: left out where optional, refused where required, kept where allowed"
LENGTH = "lengths are in characters, as JSON Schema says, not in what is seen as one"
FAULT = "the wording of a fault is that of our validator"


def _failed(fault: str, received: str) -> Difference:
    message = f'Validation failed for tool "t":\n  - {fault}\n\nReceived arguments:\n{received}'
    return Difference(NULL, {"": {"error": {"message": message}}})


def _args(reason: str, args: dict[str, Any]) -> Difference:
    return Difference(reason, {"": {"expected": {"args": args, "original_unchanged": True}}})


DIFFERENCES = {
    # quirk: null
    "validate: string from null": _failed("a: must be string", '{\n  "a": null\n}'),
    "validate: number from null": _failed("a: must be number", '{\n  "a": null\n}'),
    "validate: integer from null": _failed("a: must be integer", '{\n  "a": null\n}'),
    "validate: boolean from null": _failed("a: must be boolean", '{\n  "a": null\n}'),
    "validate: anyOf with null: null": _args(NULL, {"a": None}),
    # quirk: references
    "validate: $ref into $defs": _args("values are coerced through a reference too, since others make schemas with them", {"a": 5}),
    # js: numbers
    'validate: integer from "99999999999999999999"': _args("integers are exact, however large", {"a": 99999999999999999999}),
    # another validator
    "validate: constraint: maxLength counts combining marks": Difference(
        "lengths are in characters, as JSON Schema says, not in what is seen as one",
        {
            "": {
                "error": {
                    "message": 'Validation failed for tool "t":\n  - a: must not have more than 1 characters\n\n'
                    'Received arguments:\n{\n  "a": "e\u0301"\n}'
                }
            }
        },
    ),
    "validate: additionalProperties schema coerces": Difference(
        FAULT,
        {
            "error.message": 'Validation failed for tool "t":\n  - c: must be number\n\nReceived arguments:\n'
            '{\n  "a": 1,\n  "b": "2",\n  "c": "x"\n}'
        },
    ),
    "validate: property name with slash and dot": Difference(
        FAULT,
        {
            "error.message": 'Validation failed for tool "t":\n  - x/y: must be number\n  - x.y: must be number\n\n'
            'Received arguments:\n{\n  "x/y": "bad",\n  "x.y": "bad"\n}'
        },
    ),
}


def rule(given: dict[str, Any], recorded: dict[str, Any]) -> Difference | None:
    """Return the difference that a kind of cases makes: nulls, references, lengths of text."""
    if given["fn"] != "validateToolArguments":
        return None
    schema, args = given["schema"], given["args"]
    if has_null(args) and "expected" in recorded:
        ours, is_refused = settle_nulls(schema, args, recorded["expected"]["args"])
        return _refused(given, NULL) if is_refused else _args(NULL, ours)
    if "$ref" in json.dumps(schema):
        plain = run({**given, "schema": _resolved(schema, schema)})
        return Difference("values are coerced through a reference too, since others make schemas with them", {"": plain})
    lengths = {
        name: (len(args[name]), inner)
        for name, inner in (schema.get("properties") or {}).items()
        if isinstance(inner, dict) and isinstance(args, dict) and isinstance(args.get(name), str)
    }
    is_long = any(size > inner.get("maxLength", size) for size, inner in lengths.values())
    if "expected" in recorded and is_long:
        return _refused(given, LENGTH)
    is_short = any(size < inner.get("minLength", 0) for size, inner in lengths.values())
    has_marks = any(unicodedata.combining(char) for name in lengths for char in args[name])
    if "error" in recorded and has_marks and not (is_long or is_short):
        return _args(LENGTH, args)
    return None


def _refused(given: dict[str, Any], reason: str) -> Difference:
    received = json.dumps(given["args"], indent=2, ensure_ascii=False)
    message = f'Validation failed for tool "{given.get("tool", "t")}":\n  - its faults\n\nReceived arguments:\n{received}'
    return Difference(reason, {"": {"error": {"message": message}}})


def _resolved(schema: Any, root: Any, depth: int = 0) -> Any:
    """Return a schema with what its references refer to in their place; a schema inside itself ends after some rounds."""
    if isinstance(schema, list):
        return [_resolved(member, root, depth) for member in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/") and depth < 8:
        target: Any = root
        for step in reference[2:].split("/"):
            target = target[step.replace("~1", "/").replace("~0", "~")]
        rest = {key: member for key, member in schema.items() if key != "$ref"}
        return _resolved({**target, **rest}, root, depth + 1)
    return {key: _resolved(member, root, depth) for key, member in schema.items() if key not in ("$defs", "definitions")}


def _tool(name: str, parameters: Any) -> AgentTool:
    return AgentTool(name, name, "", parameters, lambda: AgentToolResult())


def run(given: dict[str, Any]) -> dict[str, Any]:
    """Validate the arguments of a case and give what came of it in the words of the recording."""
    before = copy.deepcopy(given)
    try:
        if given["fn"] == "validateToolCall":
            tools = [_tool(tool["name"], tool["parameters"]) for tool in given["tools"]]
            return {"expected": {"args": validate_tool_call(tools, ToolCall("1", **given["call"]))}}
        name = given.get("tool", "t")
        args = validate_tool_arguments(_tool(name, given["schema"]), ToolCall("1", name, given["args"]))
        return {"expected": {"args": args, "original_unchanged": given == before}}
    except ToolArgumentsError as error:
        assert given == before
        return {"error": {"message": str(error)}}


def _applies(case: dict[str, Any]) -> bool:
    return case["input"]["fn"] in ("validateToolArguments", "validateToolCall") and not case["input"].get("typed")


@pytest.mark.pythons
@pytest.mark.parametrize("case", case_params("validation.json", _applies))
def test_validation(case: dict[str, Any]) -> None:
    """The arguments come back, or the error says, as recorded or as the list of differences says."""
    recorded: dict[str, Any] = {key: copy.deepcopy(case[key]) for key in ("expected", "error") if key in case}
    recorded.get("error", {}).pop("name", None)
    put_our_texts(recorded, call_of(case["input"]))
    listed = DIFFERENCES.get(case["name"]) if data_folder() == HERE else None
    wanted = with_difference(recorded, listed or rule(case["input"], recorded))
    check(without_foreign_faults(wanted), without_foreign_faults(run(case["input"])))


def test_the_rules_say_what_the_list_says() -> None:
    """What is listed for the wording of its faults is else what the rules expect."""
    for case in json.loads((HERE / "functions" / "validation.json").read_text("utf-8")):
        if case["name"] in DIFFERENCES:
            recorded: dict[str, Any] = {key: case[key] for key in ("expected", "error") if key in case}
            recorded.get("error", {}).pop("name", None)
            listed = with_difference(recorded, DIFFERENCES[case["name"]])
            check(hide_faults(listed), hide_faults(with_difference(recorded, rule(case["input"], recorded))))
