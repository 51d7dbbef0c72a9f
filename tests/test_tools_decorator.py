"""`@tool`: the schema and the descriptions of a function, what it is called with, and what becomes of what it returns."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest

from agentcore import Agent
from agentcore.abort import AbortSignal
from agentcore.codec import dumps, encode
from agentcore.messages import AgentToolResult, ImageContent, TextContent, ToolCall, ToolResultMessage
from agentcore.testing import calls, says, scripted_stream
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode
from agentcore.tools.arguments import validate_tool_arguments
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def call(made: AgentTool, /, **arguments: Any) -> AgentToolResult:
    """Do what the loop does with a call."""
    result: AgentToolResult = made.run(
        "call-1", validate_tool_arguments(made, ToolCall("call-1", made.name, arguments)), None, None, None
    )
    return result


def text(made: AgentTool, /, **arguments: Any) -> str:
    (block,) = call(made, **arguments).content
    assert isinstance(block, TextContent)
    return block.text


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A place on the map.

    Attributes:
        x: To the right.
    """

    x: int
    y: float = 0.0
    color: Color = Color.RED


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


class Options(TypedDict, total=False):
    depth: int
    points: list[Point]


def properties(made: AgentTool) -> dict[str, Any]:
    found: dict[str, Any] = made.parameters["properties"]
    return found


def test_annotations_become_a_schema() -> None:
    """Each kind of annotation has its schema; what has no default is required."""

    @tool
    def everything(
        a: str,
        b: int,
        c: float,
        d: bool,
        e: list[int],
        f: dict[str, float],
        g: Literal["x", "y"],
        h: Color,
        i: Optional[int],  # noqa: UP045 - this spelling is what is tried
        j: Union[int, str],
        k: Annotated[int, "how many", {"minimum": 1}],
        m: tuple[int, str],
        n: Sequence[Point],
        o: set[str],
        p: Any,
        q: Options,
        r: list,  # type: ignore[type-arg]
        s: dict,  # type: ignore[type-arg]
        t: pathlib.Path,
        u: str = "text",
        v: int | None = None,
        w: int | None = 3,
        x: Color = Color.BLUE,
        y: Literal[1, "one"] = 1,
    ) -> None: ...

    point = {
        "type": "object",
        "description": "A place on the map.",
        "properties": {
            "x": {"type": "integer", "description": "To the right."},
            "y": {"type": "number", "default": 0.0},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        "required": ["x"],
    }
    assert properties(everything) == {
        "a": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"type": "number"},
        "d": {"type": "boolean"},
        "e": {"type": "array", "items": {"type": "integer"}},
        "f": {"type": "object", "additionalProperties": {"type": "number"}},
        "g": {"type": "string", "enum": ["x", "y"]},
        "h": {"type": "string", "enum": ["red", "blue"]},
        "i": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "j": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "k": {"type": "integer", "description": "how many", "minimum": 1},
        "m": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        "n": {"type": "array", "items": point},
        "o": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "p": {},
        "q": {"type": "object", "properties": {"depth": {"type": "integer"}, "points": {"type": "array", "items": point}}},
        "r": {"type": "array"},
        "s": {"type": "object"},
        "t": {"type": "string"},
        "u": {"type": "string", "default": "text"},
        "v": {"type": "integer"},
        "w": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3},
        "x": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
        "y": {"enum": [1, "one"], "default": 1},
    }
    assert everything.parameters["required"] == list("abcdefghijkmnopqrst")


def test_the_function_gets_what_it_is_annotated_with() -> None:
    """Dataclasses, enums, sets, tuples and paths are made out of the JSON, deep down too; defaults are the function's own."""
    seen: list[Any] = []

    @tool
    def take(
        point: Point,
        colors: list[Color],
        pair: tuple[int, Color],
        names: set[str],
        either: Union[Point, Color, int],
        options: Options,
        by_name: dict[str, Point],
        path: pathlib.Path,
        missing: Point | None = None,
        number: int = 7,
    ) -> None:
        seen.extend([point, colors, pair, names, either, options, by_name, path, missing, number])

    call(
        take,
        point={"x": "3", "color": "blue", "invented": True},
        colors=["red"],
        pair=["1", "blue"],
        names=["a", "b"],
        either={"x": 1},
        options={"points": [{"x": 2}]},
        by_name={"k": {"x": 4}},
        path="a/b",
        missing=None,
    )
    assert seen == [
        Point(3, 0.0, Color.BLUE),
        [Color.RED],
        (1, Color.BLUE),
        {"a", "b"},
        Point(1),
        {"points": [Point(2)]},
        {"k": Point(4)},
        pathlib.Path("a/b"),
        None,
        7,
    ]
    seen.clear()
    call(take, point={"x": 1}, colors=[], pair=[1, "red"], names=[], either="blue", options={}, by_name={}, path=".")
    assert seen[4] is Color.BLUE


def test_a_class_that_holds_itself_is_a_definition() -> None:
    """A recursive dataclass is referred to by name, and comes as real objects all the way down."""
    seen: list[Tree] = []

    @tool
    def plant(tree: Tree) -> None:
        seen.append(tree)

    assert properties(plant) == {"tree": {"$ref": "#/$defs/Tree"}}
    assert plant.parameters["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    call(plant, tree={"name": "root", "children": [{"name": "leaf", "children": []}]})
    assert seen == [Tree("root", [Tree("leaf")])]


def test_classes_inside_a_function_are_found() -> None:
    """With annotations as text, a class of the function around is known too, and those that it uses."""

    class Size(enum.Enum):
        SMALL = 1

    @dataclass
    class Box:
        size: Size

    @tool
    def pack(box: Box) -> str:
        return repr(box.size)

    assert text(pack, box={"size": 1}) == repr(Size.SMALL)


GOOGLE = """Add up.

Slowly.

Args:
    a: the first
    b (int): the second

Returns:
    The sum.
"""
NUMPY = """Add up.

Slowly.

Parameters
----------
a : int
    the first
b : int
    the second

Returns
-------
int
    The sum.
"""
REST = """Add up.

Slowly.

:param a: the first
:param int b: the second
:returns: The sum.
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST])
def test_descriptions_come_from_the_docstring(docstring: str) -> None:
    """Google, NumPy and reST styles give the tool's description and those of its parameters."""

    def add(a: int, b: int, c: Annotated[int, "the third"] = 0) -> int:
        return a + b + c

    add.__doc__ = docstring
    made = tool(add)
    assert made.description == "Add up.\n\nSlowly."
    assert [member.get("description") for member in properties(made).values()] == ["the first", "the second", "the third"]


def test_options_of_the_decorator() -> None:
    """Name, label, description, timeout and execution mode can be given; without, they come from the function."""

    @tool(name="other", label="Other", description="Does it.", timeout=2.5, execution_mode="sequential")
    def some() -> None:
        """Ignored."""

    @tool
    def plain() -> None:
        """Do nothing."""

    fields = [
        (made.name, made.label, made.description, made.timeout, made.execution_mode, made.parameters) for made in (some, plain)
    ]
    empty = {"type": "object", "properties": {}}
    assert fields == [
        ("other", "Other", "Does it.", 2.5, ToolExecutionMode.SEQUENTIAL, empty),
        ("plain", "plain", "Do nothing.", None, None, empty),
    ]


def test_what_the_call_brings_is_injected() -> None:
    """`signal`, `on_update`, `context` and `tool_call_id` are filled and are no arguments; updates may be plain values."""
    updates: list[AgentToolResult] = []

    @tool
    def work(number: int, signal: AbortSignal, *, on_update: Any, context: Any = "default", tool_call_id: str = "") -> str:
        on_update("half way")
        on_update({"done": number})
        return f"{number} {signal} {context} {tool_call_id}"

    assert list(properties(work)) == ["number"]
    result = work.run("call-7", {"number": 1}, "SIGNAL", updates.append, "CONTEXT")
    assert result.content == [TextContent("1 SIGNAL CONTEXT call-7")]
    assert [update.content for update in updates] == [[TextContent("half way")], [TextContent('{"done":1}')]]


def test_methods_partials_callables_and_positional_parameters() -> None:
    """Whatever can be called with typed parameters can be a tool."""

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, number: int) -> int:
            """Count up."""
            self.count += number
            return self.count

        def __call__(self, number: int = 1) -> int:
            return self.add(number)

    def scale(factor: int, number: int, /, offset: int = 0) -> int:
        """Scale."""
        return factor * number + offset

    counter = Counter()
    method, partial, whole = tool(counter.add), tool(functools.partial(scale, 3)), tool(name="count")(counter)
    assert (method.name, method.description, text(method, number="2")) == ("add", "Count up.", "2")
    assert (partial.name, partial.description, text(partial, number=2, offset=1)) == ("scale", "Scale.", "7")
    assert (whole.name, text(whole)) == ("count", "3")


@dataclass
class Report:
    title: str
    color: Color
    points: list[Point]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("plain", [TextContent("plain")]),
        (None, [TextContent("(no output)")]),
        (5, [TextContent("5")]),
        (True, [TextContent("true")]),
        ({"a": [1, None], "é": Color.RED}, [TextContent('{"a":[1,null],"é":"red"}')]),
        ([1, "x"], [TextContent('[1,"x"]')]),
        ((), [TextContent("[]")]),
        (
            Report("t", Color.BLUE, [Point(1)]),
            [TextContent('{"title":"t","color":"blue","points":[{"x":1,"y":0.0,"color":"red"}]}')],
        ),
        (pathlib.Path("a/b"), [TextContent('"a/b"')]),
        ({"n": float("nan")}, [TextContent('{"n":null}')]),
        (PNG, [ImageContent(base64.b64encode(PNG).decode(), "image/png")]),
        (b"only text", [TextContent("only text")]),
        (["caption", PNG], [TextContent("caption"), ImageContent(base64.b64encode(PNG).decode(), "image/png")]),
        (TextContent("block"), [TextContent("block")]),
    ],
)
def test_what_a_function_returns_becomes_content(value: Any, content: list[Any]) -> None:
    """Text, JSON, images and blocks: the model reads what was returned."""

    @tool
    def give() -> Any:
        return value

    assert call(give).content == content


def test_a_result_object_is_passed_on_as_it_is() -> None:
    """Who wants details or to end the run returns an AgentToolResult."""
    result = AgentToolResult([TextContent("x")], details={"a": 1}, terminate=True)

    @tool
    def give() -> AgentToolResult:
        return result

    assert call(give) is result


def test_bytes_that_are_nothing_are_an_error() -> None:
    """Bytes that are neither an image nor text cannot be shown to a model."""

    @tool
    def give() -> bytes:
        return b"\xff\xfe\x00"

    with pytest.raises(TypeError, match="the tool returned 3 bytes that are neither an image nor text"):
        call(give)


def test_half_a_surrogate_pair_and_nan_are_stored_and_sent() -> None:
    """C094: a result with half a surrogate pair, and NaN in its details, has a valid JSON form in UTF-8."""

    @tool
    def broken() -> AgentToolResult:
        """Return what JSON does not have."""
        return AgentToolResult([TextContent("\ud83d")], details={"n": float("nan")})

    stream = scripted_stream(calls("broken"), says("ok"))
    with Agent(tools=[broken], stream_fn=stream) as agent:
        agent.run("go", timeout=20)
    (result,) = [message for message in stream.requests[1] if isinstance(message, ToolResultMessage)]
    written = dumps(encode(result)).encode("utf-8")
    assert b'"details":{"n":null}' in written and b"NaN" not in written


def test_an_exception_is_an_error_result_for_the_model() -> None:
    """What a tool raises is read by the model, and the run goes on."""

    @tool
    def fail(reason: str) -> str:
        """Fail."""
        raise RuntimeError(f"because of {reason}")

    stream = scripted_stream(calls("fail", reason="rain"), says("I see"))
    with Agent(tools=[fail], stream_fn=stream) as agent:
        agent.run("go", timeout=20)
    (result,) = [message for message in stream.requests[1] if isinstance(message, ToolResultMessage)]
    assert (result.error, result.is_error) == ("because of rain", True)


def test_what_cannot_be_a_tool_is_refused_when_it_is_made() -> None:
    """The text names the function, the parameter, and the way out."""

    def bare(a) -> None: ...  # type: ignore[no-untyped-def]

    def strange(a: complex) -> None: ...

    def keys(a: dict[int, str]) -> None: ...

    def stars(*numbers: int) -> None: ...

    def generator() -> Any:
        yield 1

    async def later() -> None: ...

    def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    def choices(a: Literal[b"x"]) -> None: ...

    texts = []
    for function in (bare, strange, keys, stars, generator, later, unknown, choices):
        with pytest.raises(TypeError) as caught:
            tool(function)
        texts.append(str(caught.value))
    assert texts == [
        "the parameter 'a' of the tool 'bare' has no annotation: say what it takes, as in a: str",
        "the parameter 'a' of the tool 'strange' is annotated as complex, which has no JSON Schema: use str, int, float, bool, "
        "list, dict, Literal, an Enum, a dataclass or a TypedDict",
        "the parameter 'a' of the tool 'keys' is a mapping with keys that are no texts, which JSON does not have: use dict[str, …]",
        "the tool 'stars' takes *numbers, which no schema can describe: name its parameters",
        "the tool 'generator' is a generator: return the result, and report what comes before with on_update",
        "the tool 'later' is asynchronous, and agentcore has no event loop: use def, and asyncio.run inside it",
        "the annotation of the parameter 'a' of the tool 'unknown' cannot be read: name 'Nowhere' is not defined; import it at run "
        "time, not for type checkers only",
        "the parameter 'a' of the tool 'choices' has choices that JSON has no form for: [b'x']; use texts, numbers or booleans",
    ]

    def named_stars(**numbers: int) -> None: ...

    class Thing:
        def work(self, a: int) -> None: ...

    further = []
    odd_ones: list[Any] = [named_stars, Thing.work, int, tool(Thing().work)]
    for odd in odd_ones:
        with pytest.raises(TypeError) as caught:
            tool(odd)
        further.append(str(caught.value))
    assert further == [
        "the tool 'named_stars' takes **numbers, which no schema can describe: name its parameters",
        "'work' is a method without its object: make the tool of a bound one, as in tool(thing.work)",
        "the tool 'int' does not tell what it takes: wrap it in a function with annotations",
        "'work' is a tool already: use it as it is, or give @tool the function",
    ]
    with pytest.raises(ValueError) as refused:
        tool(lambda: None)
    assert str(refused.value) == ("'<lambda>' cannot be a tool's name: give one of letters, digits, _ and - with @tool(name=…)")


def test_a_default_object_is_not_shared_with_the_schema() -> None:
    """A dataclass as a default stays the function's own."""
    default = Point(9)

    @tool
    def take(point: Point = default) -> str:
        return repr(dataclasses.astuple(point))

    assert "default" not in properties(take)["point"]
    assert text(take) == repr((9, 0.0, Color.RED))


def test_a_timeout_is_a_number_of_seconds_above_0() -> None:
    """A timeout that no call could keep is refused when the tool is made."""
    with pytest.raises(ValueError, match=r"the timeout of the tool 'work' is 0: give seconds above 0, or None for no limit"):

        @tool(timeout=0)
        def work() -> None: ...


def test_options_of_a_wrong_kind_are_refused() -> None:
    """A timeout that is no number, an execution mode that is none of the two."""

    def work() -> None: ...

    with pytest.raises(TypeError, match="the timeout of the tool 'work' must be seconds or None, not str"):
        tool(timeout="5")(work)  # type: ignore[call-overload]
    with pytest.raises(
        ValueError, match=r"the execution_mode of the tool 'work' is 'weird': give 'sequential', 'parallel' or None"
    ):
        tool(execution_mode="weird")(work)  # type: ignore[call-overload]


def test_one_and_true_are_two_choices() -> None:
    """Python takes them for the same key of a dictionary."""

    @tool
    def pick(what: Literal["a", 1, True]) -> str:
        return repr(what)

    assert properties(pick) == {"what": {"enum": ["a", 1, True]}}
    assert [text(pick, what=value) for value in ("a", 1, True)] == ["'a'", "1", "True"]


def test_a_default_without_a_json_form_is_left_out() -> None:
    """`Infinity` would spoil every request; an optional value is offered without null also when it is described."""

    @tool
    def wait(limit: float = float("inf"), why: Annotated[str | None, "the reason"] = None) -> str:
        return repr((limit, why))

    assert properties(wait) == {"limit": {"type": "number"}, "why": {"type": "string", "description": "the reason"}}
    assert text(wait, why=None) == "(inf, None)"


def test_a_hidden_coroutine_is_an_error() -> None:
    """An object whose call is asynchronous shows only when it is called; the model does not read a `<coroutine …>`."""

    class Later:
        async def __call__(self) -> str:
            return "x"

    with pytest.raises(TypeError, match="the tool returned a coroutine, and agentcore has no event loop"):
        call(tool(name="later")(Later()))


def test_an_option_without_its_name_is_explained() -> None:
    """`@tool("name")` says how it is written."""
    with pytest.raises(
        TypeError, match=r"@tool takes a function, not 'search': give options by name, as in @tool\(name='search'\)"
    ):
        tool("search")  # type: ignore[call-overload]
