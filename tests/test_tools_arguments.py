"""What a model reads of bad arguments, and what is made to fit."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

from agentcore.errors import ToolArgumentsError
from agentcore.messages import AgentToolResult, ToolCall
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.arguments import validate_tool_arguments, validate_tool_call

pytestmark = pytest.mark.pythons
PATIENCE = 20.0


def make(parameters: Any, name: str = "t") -> AgentTool:
    return AgentTool(name, name, "", parameters, lambda: AgentToolResult())


def validate(parameters: Any, arguments: Any) -> dict[str, Any]:
    return validate_tool_arguments(make(parameters), ToolCall("1", "t", arguments))


def fault(parameters: Any, arguments: Any) -> list[str]:
    with pytest.raises(ToolArgumentsError) as caught:
        validate(parameters, arguments)
    head, _, _ = str(caught.value).partition("\n\nReceived arguments:\n")
    return head.split("\n  - ")[1:]


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}, "o": {"type": ["string", "null"]}}, "required": ["n"]}


def test_null_means_not_given() -> None:
    """Null is left out where the property is optional, kept where null is allowed, refused where it is required."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert validate(schema, {"a": None, "b": None, "c": None}) == {"b": None, "c": None}
    assert validate(OBJECT, {"n": 1, "o": None}) == {"n": 1, "o": None}
    assert fault(OBJECT, {"n": None}) == ["n: must be integer"]


def test_an_integral_float_becomes_an_int() -> None:
    """A tool that asks for an integer gets an int; one that asks for a number gets what was sent."""
    made = validate({"type": "object", "properties": {"i": {"type": "integer"}, "n": {"type": "number"}}}, {"i": 2.0, "n": 2.0})
    assert [type(made["i"]), type(made["n"])] == [int, float]


@pytest.mark.parametrize("text", ["1_000", "٣", "1e999", "-inf", "nan", "0x", "1" * 5000, " ", "1,5", "--1", "1e"])
def test_what_is_no_number_stays_text(text: str) -> None:
    """Only plain numbers are read out of a text: none that is endless, in other digits, or thousands of digits long."""
    assert fault({"type": "object", "properties": {"n": {"type": "number"}}}, {"n": text}) == ["n: must be number"]


def test_references_inside_the_schema_work_also_in_circles() -> None:
    """Values are coerced and checked through $ref, as other libraries write schemas, also of recursive types."""
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                "required": ["n"],
            }
        },
    }
    tree = {"n": "1", "children": [{"n": "2", "children": [{"n": "3"}]}]}
    assert validate(schema, {"tree": tree}) == {"tree": {"n": 1, "children": [{"n": 2, "children": [{"n": 3}]}]}}
    assert fault(schema, {"tree": {"n": 1, "children": [{}]}}) == ["tree.children.0.n: must have required properties n"]


def test_a_reference_to_elsewhere_is_an_error_and_no_request() -> None:
    """A schema that refers to another document fails with a text that says what to do; nothing is fetched."""
    with pytest.raises(ValueError, match=r"the parameters of the tool 't' cannot be checked: .* put every definition under"):
        validate({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}, {"a": 1})


def test_a_schema_that_is_none_is_named() -> None:
    """A wrong schema is the fault of the program, and the text says where it is wrong."""
    with pytest.raises(ValueError) as caught:
        validate({"type": "object", "properties": {"a": {"type": "strin"}}}, {"a": "x"})
    text = str(caught.value)
    assert text.startswith("the parameters of the tool 't' are no JSON Schema: at properties.a.type, 'strin' is not valid")
    assert text.endswith("; correct them")


def test_schemas_of_older_drafts_are_read_as_they_say() -> None:
    """A `$schema` is obeyed: in draft 7 a list of items is a tuple."""
    items = {"type": "object", "properties": {"a": {"items": [{"type": "integer"}], "additionalItems": {"type": "string"}}}}
    for schema in (items, {"$schema": "http://json-schema.org/draft-07/schema#", **items}):
        assert validate(schema, {"a": ["1", 2]}) == {"a": [1, "2"]}
        assert fault(schema, {"a": ["x"]}) == ["a.0: must be integer"]


def test_arguments_that_are_not_json_are_quoted_up_to_a_limit() -> None:
    """C053: the text says that the tool was not run, and quotes at most 500 characters of what came."""
    call = ToolCall("1", "write", {"path": "a.txt"}, raw_arguments='{"path": "a.txt", "content": "' + "x" * 5000)
    with pytest.raises(ToolArgumentsError) as caught:
        validate_tool_arguments(make(OBJECT, "write"), call)
    text = str(caught.value)
    assert text.startswith(
        'The arguments of tool "write" are not valid JSON, so it was not run. Call it again with one complete JSON object.\n\n'
        'Received, the first 500 of 5030 characters:\n{"path": "a.txt", "content": "xxx'
    )
    assert len(text) < 750


def test_an_unknown_tool_is_answered_with_those_that_there_are() -> None:
    """C058: the model reads which tools it can call."""
    tools = [make(OBJECT, "read"), make(OBJECT, "search")]
    with pytest.raises(ToolArgumentsError) as caught:
        validate_tool_call(tools, ToolCall("1", "serch", {}))
    assert str(caught.value) == 'Tool "serch" not found. Use one of: read, search'
    with pytest.raises(ToolArgumentsError) as caught:
        validate_tool_call([], ToolCall("1", "serch", {}))
    assert str(caught.value) == 'Tool "serch" not found. There are no tools: answer without one'
    assert validate_tool_call(tools, ToolCall("1", "search", {"n": "1"})) == {"n": 1}


def test_a_large_argument_is_not_sent_back_whole() -> None:
    """The error shows the beginning of what was received and says how much more there was."""
    with pytest.raises(ToolArgumentsError) as caught:
        validate(OBJECT, {"n": "x" * 100_000})
    assert str(caught.value).endswith("\n… (80013 more characters)")
    assert len(str(caught.value)) < 21_000


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("email", ["a@b", "first.last+tag@ex-ample.org"], ["a", "@", "a b@c", "a@-b", "a@b."]),
        ("hostname", ["localhost", "a.b-c.org"], ["", "-a", "a_b", "a..b", "a" * 64]),
        ("uri", ["https://x.org/y?a=b#c", "mailto:a@b"], ["x", "not a uri", "http://é"]),
        ("url", ["http://x"], ["mailto:a@b"]),
        ("duration", ["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P2W"], ["P", "PT", "1D", "P1DT"]),
        ("json-pointer", ["", "/a/0", "/~0~1"], ["a", "/~2"]),
        ("time", ["10:00:00Z", "23:59:60.5+01:00", "10:00:00"], ["25:00:00", "10:00", "x"]),
        ("date", ["2024-02-29"], ["2023-02-29", "20240229", "today"]),
        ("date-time", ["2024-01-01T10:00:00Z"], ["2024-01-01", "2024-13-01T10:00:00Z"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
        ("ipv4", ["1.2.3.4"], ["1.2.3", "256.1.1.1"]),
        ("ipv6", ["::1"], ["1::2::3"]),
        ("regex", ["a+"], ["("]),
    ],
)
def test_formats_are_checked_without_further_libraries(name: str, good: list[str], bad: list[str]) -> None:
    """Each of the usual ones, of texts only."""
    schema = {"type": "object", "properties": {"a": {"format": name}}}
    for value in (*good, 5):
        assert validate(schema, {"a": value}) == {"a": value}
    for value in bad:
        assert fault(schema, {"a": value}) == [f'a: must match format "{name}"'], value


def test_multiples_are_counted_as_people_count() -> None:
    """A price in cents is a multiple of 0.01, although no float is exactly that."""
    schema = {"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.01}}}
    for value in (19.99, 0.3, 1e15, 0, 7, 10**400):
        assert validate(schema, {"a": value}) == {"a": value}
    for value in (0.005, 19.995, 1e-9):
        assert fault(schema, {"a": value}) == ["a: must be multiple of 0.01"]
    whole = {"type": "object", "properties": {"a": {"multipleOf": 3}}}
    assert validate(whole, {"a": 9.0}) == {"a": 9.0}
    assert fault(whole, {"a": 10}) == ["a: must be multiple of 3"]
    assert validate(whole, {"a": True}) == {"a": True}


def test_arguments_without_a_bottom_are_refused() -> None:
    """Lists in lists by the thousand are an error for the model like any other, not one of Python's."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ToolArgumentsError) as caught:
        validate({"type": "object"}, {"a": deep})
    assert str(caught.value) == (
        'The arguments of tool "t" are nested too deeply to be checked, so it was not run. Call it again with flatter ones.'
    )


def test_the_caller_s_arguments_are_never_changed_or_shared() -> None:
    """What the tool gets can be changed without a trace in the message."""
    arguments = {"n": "1", "list": [{"a": 1}], "other": {"b": []}}
    before = copy.deepcopy(arguments)
    made = validate({"type": "object", "properties": {"n": {"type": "integer"}, "list": {}}}, arguments)
    made["list"][0]["a"] = 2
    made["other"]["b"].append(1)
    assert arguments == before


def test_a_new_dictionary_is_a_new_schema() -> None:
    """A tool whose parameters are replaced is checked against the new ones."""
    tool = make({"type": "object", "properties": {"a": {"type": "integer"}}})
    assert validate_tool_arguments(tool, ToolCall("1", "t", {"a": "1"})) == {"a": 1}
    tool.parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert validate_tool_arguments(tool, ToolCall("1", "t", {"a": 1})) == {"a": "1"}


def test_many_threads_may_validate_at_once() -> None:
    """The first use of a schema by several threads at the same time gives each the right result."""
    tool = make({"type": "object", "properties": {"a": {"type": "integer"}}})
    results: list[Any] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait(PATIENCE)
        results.append(validate_tool_arguments(tool, ToolCall("1", "t", {"a": str(number)})))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(result["a"] for result in results) == list(range(8))
