"""Recorded cases of checking tool arguments (validation.json, the validate functions).

Tools have plain schemas here, so the cases that were recorded with the reference's own schema builder (`typed`) do not apply.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from agentcore.errors import ToolArgumentsError
from agentcore.messages import AgentToolResult, ToolCall
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.arguments import validate_tool_arguments, validate_tool_call
from tests.conformance.cases import Difference, case_params, check, with_difference
from tests.conformance.tool_texts import call_of, put_our_texts, without_foreign_faults

NULL = "null stands for what was not given: left out where optional, refused where required, kept where allowed"
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
    recorded = {key: copy.deepcopy(case[key]) for key in ("expected", "error") if key in case}
    recorded.get("error", {}).pop("name", None)
    put_our_texts(recorded, call_of(case["input"]))
    wanted = with_difference(recorded, DIFFERENCES.get(case["name"]))
    check(without_foreign_faults(wanted), without_foreign_faults(run(case["input"])))
