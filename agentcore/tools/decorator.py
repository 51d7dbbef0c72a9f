"""`@tool`: an AgentTool out of a typed function with a docstring.

    @tool
    def weather(city: str, days: Annotated[int, "how many days ahead"] = 1) -> dict[str, float]:
        \"\"\"Forecast the temperature.

        Args:
            city: Where.
        \"\"\"

The JSON Schema comes from the annotations, the descriptions from the docstring (Google, NumPy and reST styles) or from
`Annotated`. Parameters named `signal`, `on_update`, `context` and `tool_call_id` are no arguments of the model's: they are filled
with what the call brings. The function gets real dataclasses, enums, sets, tuples and paths, not what JSON has for them.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import functools
import inspect
import math
import pathlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, overload

from agentcore.codec import dumps
from agentcore.messages import AgentToolResult, ImageContent, TextContent
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode

INJECTED = ("signal", "on_update", "context", "tool_call_id")
NO_OUTPUT = "(no output)"
"""What the model reads of a tool that returned None."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Schema = dict[str, Any]
_Convert = Callable[[Any], Any]


@overload
def tool(function: Callable[..., Any], /) -> AgentTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    execution_mode: ToolExecutionMode | Literal["sequential", "parallel"] | None = None,
) -> Callable[[Callable[..., Any]], AgentTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    execution_mode: ToolExecutionMode | Literal["sequential", "parallel"] | None = None,
) -> AgentTool | Callable[[Callable[..., Any]], AgentTool]:
    """Make an `AgentTool` out of a function, as `@tool` or as `@tool(timeout=30)`.

    The function may return a string, image bytes, content blocks, an `AgentToolResult`, None, or whatever has a JSON form (the
    model then reads that). If it raises, the model gets the text of the exception as an error. `on_update` takes the same kinds
    of values as the function returns.

    Args:
        name: What the model calls it by; default: the function's name.
        label: What a person sees; default: the name.
        description: What it does, for the model; default: the docstring without its sections.
        timeout: Seconds after which a call is given up with an error.
        execution_mode: `"sequential"` if no other call may run at the same time.

    Raises:
        TypeError: A parameter has no annotation, or one that no JSON Schema can express; the text names it. Or the function is
            asynchronous or a generator.
        ValueError: The name has a character that providers refuse.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> agent = Agent(tools=[add])
    """
    if isinstance(function, AgentTool):
        raise TypeError(f"{function.name!r} is a tool already: use it as it is, or give @tool the function")
    if function is not None and not callable(function):
        raise TypeError(f"@tool takes a function, not {function!r}: give options by name, as in @tool(name={function!r})")
    scope = sys._getframe(1).f_locals  # for annotations as text that name a class of the function around

    def make(wrapped: Callable[..., Any]) -> AgentTool:
        return _make(wrapped, scope, name, label, description, timeout, execution_mode)

    return make if function is None else make(function)


def _make(
    function: Callable[..., Any],
    scope: Mapping[str, Any],
    given_name: str | None,
    label: str | None,
    description: str | None,
    timeout: float | None,
    execution_mode: ToolExecutionMode | str | None,
) -> AgentTool:
    inner = _innermost(function)
    name = given_name or str(getattr(inner, "__name__", type(inner).__name__))
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a tool's name: give one of letters, digits, _ and - with @tool(name=…)")
    _refuse_other_kinds(function, name)
    summary, by_name = _read_docstring(inspect.getdoc(inner))
    builder = _Builder(f"the tool {name!r}", scope)
    members: list[_Member] = []
    injected: list[str] = []
    positional: list[str] = []
    for parameter in _signature(function, name).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            shown = str(parameter).partition(":")[0]
            raise TypeError(f"the tool {name!r} takes {shown}, which no schema can describe: name its parameters")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        if parameter.name in INJECTED:
            injected.append(parameter.name)
            continue
        what = f"the parameter {parameter.name!r} of the tool {name!r}"
        if parameter.annotation is parameter.empty:
            if parameter.name in ("self", "cls") and not members:
                raise TypeError(f"{name!r} is a method without its object: make the tool of a bound one, as in tool(thing.{name})")
            raise TypeError(f"{what} has no annotation: say what it takes, as in {parameter.name}: str")
        annotation = _resolve(parameter.annotation, function, scope, what)
        default = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
        members.append(builder.member(parameter.name, annotation, default, by_name.get(parameter.name), what))

    def execute(tool_call_id: str, args: dict[str, Any], signal: Any, on_update: Any, context: Any) -> AgentToolResult:
        available = {"signal": signal, "on_update": _lenient(on_update), "context": context, "tool_call_id": tool_call_id}
        values = {key: available[key] for key in injected}
        for member in members:
            if member.name in args:
                values[member.name] = member.convert(args[member.name]) if member.convert else args[member.name]
        first: list[Any] = []
        for key in positional:
            if key not in values:
                break  # left out, so it has a default, and so has what follows
            first.append(values.pop(key))
        return to_result(function(*first, **values))

    made = AgentTool(
        name=name,
        label=label or name,
        description=summary if description is None else description,
        parameters=builder.object_schema(members),
        execute=execute,
        execution_mode=cast("ToolExecutionMode | None", execution_mode),  # a text is made one there
        timeout=timeout,
    )
    made.function = function
    if isinstance(inner, types.FunctionType):
        made.home = (inner.__module__, inner.__qualname__)
    return made


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:  # some built-in ones
        raise TypeError(f"the tool {name!r} does not tell what it takes: wrap it in a function with annotations") from error


def _refuse_other_kinds(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"the tool {name!r} is asynchronous, and agentcore has no event loop: use def, and asyncio.run inside it")
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"the tool {name!r} is a generator: return the result, and report what comes before with on_update")


def _read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of the whole, and of each parameter."""
    if not text:
        return "", {}
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = [part for part in (parsed.short_description, parsed.long_description) if part]
    return "\n\n".join(parts), {entry.arg_name: entry.description for entry in parsed.params if entry.description}


def _innermost(function: Any) -> Any:
    """Return the function inside a bound method, a `functools.partial` or a decorator's wrapper."""
    while isinstance(function, (types.MethodType, functools.partial)):
        function = function.__func__ if isinstance(function, types.MethodType) else function.func
    return inspect.unwrap(function)


def _resolve(annotation: Any, function: Any, scope: Mapping[str, Any], what: str) -> Any:
    """Return an annotation as what it means, also where it is text (`from __future__ import annotations`)."""
    function = _innermost(function)
    if not hasattr(function, "__globals__"):
        function = type(function).__call__  # an object that can be called
    module = getattr(function, "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, module, dict(scope), include_extras=True)["it"]
    except NameError as error:
        raise TypeError(
            f"the annotation of {what} cannot be read: {error}; import it at run time, not for type checkers only"
        ) from error


# Schemas


@dataclasses.dataclass
class _Shape:
    """What a value looks like in JSON, and how it is made into what the function wants (None: it is that already)."""

    schema: _Schema
    convert: _Convert | None = None


@dataclasses.dataclass
class _Member:
    name: str
    schema: _Schema
    convert: _Convert | None
    is_required: bool


class _Builder:
    """Turns annotations into schemas. One for each tool, because classes that hold themselves become its `$defs`."""

    def __init__(self, what: str, scope: Mapping[str, Any]) -> None:
        self._what = what
        self._scope = scope
        self._open: list[type] = []
        self._recursive: set[type] = set()
        self._definitions: dict[str, _Schema] = {}
        self._converters: dict[type, _Convert] = {}

    def object_schema(self, members: Sequence[_Member]) -> _Schema:
        """Return the schema of an object with these members, and of all classes that need a name."""
        schema = _object_schema(members)
        if self._definitions:
            schema["$defs"] = self._definitions
        return schema

    def member(self, name: str, annotation: Any, default: Any, description: str | None, what: str) -> _Member:
        """Describe one parameter or field. `default` is `dataclasses.MISSING` where there is none."""
        has_default = default is not dataclasses.MISSING
        if has_default and default is None:
            annotation = _without_none(annotation)  # null is taken as "not given", so the schema need not offer it
        shape = self.shape(annotation, what)
        schema = dict(shape.schema)
        is_described = get_origin(annotation) is Annotated and any(isinstance(extra, str) for extra in get_args(annotation)[1:])
        if description and not is_described:
            schema = {**schema, "description": description}
        if has_default and default is not None:
            plain = default.value if isinstance(default, enum.Enum) else default
            is_number = isinstance(plain, float) and math.isfinite(plain)  # others have no JSON form
            if is_number or isinstance(plain, (str, int, bool)) or plain in ([], {}):
                schema["default"] = plain
        return _Member(name, schema, shape.convert, not has_default)

    def shape(self, annotation: Any, what: str) -> _Shape:
        """Return the shape of an annotation.

        Raises:
            TypeError: No schema can express it. `what` names whose annotation it is.
        """
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:  # asked first: with a mapping in it, it cannot be looked up
            return self._annotated(arguments, what)
        if isinstance(annotation, collections.abc.Hashable) and annotation in _SIMPLE:
            return _Shape(dict(_SIMPLE[annotation]))
        if origin is Literal:
            return self._choices(list(arguments), what)
        if origin is Union or origin is getattr(types, "UnionType", None):
            return self._union(arguments, what)
        if isinstance(annotation, TypeVar):
            return self.shape(annotation.__bound__ or Any, what)
        inner = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
        if inner is not None and not isinstance(annotation, type):  # NewType, and the type statement of 3.12
            return self.shape(inner, what)
        kind = origin or annotation
        if isinstance(kind, type):
            if issubclass(kind, enum.Enum):
                return self._choices(list(kind), what)
            if dataclasses.is_dataclass(kind):
                return self._class(kind, self._dataclass, what)
            if issubclass(kind, dict) and hasattr(kind, "__total__"):  # a TypedDict, also that of typing_extensions
                return self._class(kind, self._typed_dict, what)
            if issubclass(kind, tuple) and not hasattr(kind, "_fields"):
                return self._tuple(arguments, what)
            if kind in _SETS:
                return self._array(arguments, what, _SETS[kind], is_set=True)
            if kind in _LISTS:
                return self._array(arguments, what, None)
            if kind in _MAPPINGS:
                return self._mapping(arguments, what)
            if issubclass(kind, pathlib.PurePath):
                return _Shape({"type": "string"}, kind if kind is not pathlib.PurePath else pathlib.PurePath)
        shown = annotation.__name__ if isinstance(annotation, type) else annotation
        raise TypeError(
            f"{what} is annotated as {shown}, which has no JSON Schema: use str, int, float, bool, list, dict, Literal, an Enum, "
            "a dataclass or a TypedDict"
        )

    def _annotated(self, arguments: tuple[Any, ...], what: str) -> _Shape:
        shape = self.shape(arguments[0], what)
        for extra in arguments[1:]:
            if isinstance(extra, str):
                shape = _Shape({**shape.schema, "description": extra}, shape.convert)
            elif isinstance(extra, Mapping):
                shape = _Shape({**shape.schema, **extra}, shape.convert)
        return shape

    def _choices(self, choices: list[Any], what: str) -> _Shape:
        values = [choice.value if isinstance(choice, enum.Enum) else choice for choice in choices]
        kinds = {_SIMPLE.get(type(value), {}).get("type") for value in values}
        if not values or None in kinds:
            raise TypeError(f"{what} has choices that JSON has no form for: {choices}; use texts, numbers or booleans")
        # With its type each: 1 and True are two choices.
        by_value = {(type(value) is bool, value): choice for value, choice in zip(values, choices, strict=True)}
        schema: _Schema = {"enum": [value for _, value in by_value]}
        if len(kinds) == 1:
            schema = {"type": kinds.pop(), **schema}
        has_enums = any(isinstance(choice, enum.Enum) for choice in choices)
        return _Shape(schema, (lambda value: by_value.get((type(value) is bool, value), value)) if has_enums else None)

    def _union(self, arguments: tuple[Any, ...], what: str) -> _Shape:
        shapes = [self.shape(argument, what) for argument in arguments]
        schema: _Schema = {"anyOf": [shape.schema for shape in shapes]}
        if all(shape.convert is None for shape in shapes):
            return _Shape(schema)

        def convert(value: Any) -> Any:
            for shape in shapes:
                if self._looks_like(value, shape.schema):
                    return shape.convert(value) if shape.convert else value
            return value

        return _Shape(schema, convert)

    def _looks_like(self, value: Any, schema: _Schema) -> bool:
        """Whether a value that fits one member of a union is of this member, told by its type, its keys and its tags."""
        reference = schema.get("$ref")
        if reference:
            schema = self._definitions[reference.rpartition("/")[2]]
        if "enum" in schema and not any(value == choice and type(value) is type(choice) for choice in schema["enum"]):
            return False
        if "anyOf" in schema:
            return any(self._looks_like(value, member) for member in schema["anyOf"])
        kind = schema.get("type")
        if kind is not None and not isinstance(value, _TYPES[kind]):
            return False
        if isinstance(value, bool) and kind in ("integer", "number"):
            return False
        if isinstance(value, dict) and "properties" in schema:
            known: _Schema = schema["properties"]
            return all(key in value for key in schema.get("required", ())) and all(
                self._looks_like(member, known[key]) for key, member in value.items() if key in known
            )
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return all(self._looks_like(member, schema["items"]) for member in value)
        return True

    def _array(self, arguments: tuple[Any, ...], what: str, make: Any, *, is_set: bool = False) -> _Shape:
        schema: _Schema = {"type": "array"}
        convert = None
        if arguments:
            inner = self.shape(arguments[0], what)
            schema["items"], convert = inner.schema, inner.convert
        if is_set:
            schema["uniqueItems"] = True
        if convert is None:
            return _Shape(schema, make)
        one = convert
        return _Shape(schema, lambda value: (make or list)([one(member) for member in value]))

    def _tuple(self, arguments: tuple[Any, ...], what: str) -> _Shape:
        if not arguments or arguments[-1] is Ellipsis:
            return self._array(arguments[:1], what, tuple)
        shapes = [self.shape(argument, what) for argument in arguments]
        schema: _Schema = {
            "type": "array",
            "prefixItems": [shape.schema for shape in shapes],
            "minItems": len(shapes),
            "maxItems": len(shapes),
        }
        return _Shape(
            schema,
            lambda value: tuple(s.convert(member) if s.convert else member for s, member in zip(shapes, value, strict=False)),
        )

    def _mapping(self, arguments: tuple[Any, ...], what: str) -> _Shape:
        if not arguments:
            return _Shape({"type": "object"})
        if arguments[0] not in (str, Any):
            raise TypeError(f"{what} is a mapping with keys that are no texts, which JSON does not have: use dict[str, …]")
        inner = self.shape(arguments[1], what)
        schema = {"type": "object", "additionalProperties": inner.schema or True}
        if inner.convert is None:
            return _Shape(schema)
        one = inner.convert
        return _Shape(schema, lambda value: {key: one(member) for key, member in value.items()})

    def _class(self, cls: type, describe: Callable[[type, str], tuple[_Schema, _Convert]], what: str) -> _Shape:
        reference = {"$ref": f"#/$defs/{cls.__name__}"}
        if cls in self._open:
            self._recursive.add(cls)
            return _Shape(reference, lambda value: self._converters[cls](value))
        if cls in self._recursive:
            return _Shape(reference, self._converters[cls])
        self._open.append(cls)
        try:
            schema, convert = describe(cls, what)
        finally:
            self._open.pop()
        self._converters[cls] = convert
        if cls not in self._recursive:
            return _Shape(schema, convert)
        self._definitions[cls.__name__] = schema
        return _Shape(reference, convert)

    def _class_hints(self, cls: type, what: str) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, include_extras=True)
        except NameError:
            pass
        try:
            return typing.get_type_hints(cls, localns=dict(self._scope), include_extras=True)
        except NameError as error:
            raise TypeError(
                f"an annotation of {cls.__name__}, used by {what}, cannot be read: {error}; define it at module level"
            ) from error

    def _dataclass(self, cls: type, what: str) -> tuple[_Schema, _Convert]:
        summary, by_name = _read_docstring(_own_docstring(cls))
        hints = self._class_hints(cls, what)
        members = []
        for field in dataclasses.fields(cls):
            if field.init:
                default = field.default
                if field.default_factory is not dataclasses.MISSING:
                    default = field.default_factory()
                name = f"the field {field.name!r} of {cls.__name__} in {self._what}"
                members.append(self.member(field.name, hints[field.name], default, by_name.get(field.name), name))
        converters = {member.name: member.convert for member in members}

        def convert(value: Any) -> Any:
            given = {key: member for key, member in value.items() if key in converters}  # others are the model's own ideas
            return cls(**{key: (one(member) if (one := converters[key]) else member) for key, member in given.items()})

        return _object_schema(members, summary), convert

    def _typed_dict(self, cls: type, what: str) -> tuple[_Schema, _Convert]:
        summary, by_name = _read_docstring(_own_docstring(cls))
        required: Iterable[str] = cls.__required_keys__  # type: ignore[attr-defined]
        members = []
        for key, hint in self._class_hints(cls, what).items():
            is_required = key in required
            form = str(get_origin(hint)).rpartition(".")[2]
            if form in ("Required", "NotRequired", "ReadOnly"):  # a hint as text hides them from __required_keys__
                is_required = is_required if form == "ReadOnly" else form == "Required"
                hint = get_args(hint)[0]
            name = f"the key {key!r} of {cls.__name__} in {self._what}"
            member = self.member(key, hint, dataclasses.MISSING, by_name.get(key), name)
            members.append(dataclasses.replace(member, is_required=is_required))
        converters = {member.name: member.convert for member in members if member.convert}

        def convert(value: Any) -> Any:
            return {key: converters[key](member) if key in converters else member for key, member in value.items()}

        return _object_schema(members, summary), convert


_SIMPLE: dict[Any, _Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
_LISTS = (
    list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable, collections.abc.Collection,
)  # fmt: skip
_SETS: dict[Any, Any] = {set: set, frozenset: frozenset, collections.abc.Set: frozenset, collections.abc.MutableSet: set}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _object_schema(members: Sequence[_Member], description: str = "") -> _Schema:
    schema: _Schema = {"type": "object", "properties": {member.name: member.schema for member in members}}
    required = [member.name for member in members if member.is_required]
    if required:
        schema["required"] = required
    return {"description": description, **schema} if description else schema


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        return Annotated[(_without_none(inner), *extras)]
    if get_origin(annotation) in (Union, getattr(types, "UnionType", None)):
        rest = tuple(member for member in get_args(annotation) if member is not type(None))
        return Union[rest] if rest else annotation
    return annotation


def _own_docstring(cls: type) -> str | None:
    text = cls.__dict__.get("__doc__")
    # A dataclass without one gets its signature as docstring.
    return None if not text or text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)


# Results


def to_result(value: Any) -> AgentToolResult:
    """Return what a tool returned as an `AgentToolResult`.

    A string is text, image bytes are an image, content blocks are taken as they are, also mixed with those in a list; None is
    `(no output)`; anything else is the text of its JSON form.

    Raises:
        TypeError: Bytes are neither an image nor UTF-8 text; or it is a coroutine.
    """
    if isinstance(value, AgentToolResult):
        return value
    if value is None:
        return AgentToolResult([TextContent(NO_OUTPUT)])
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the tool returned a coroutine, and agentcore has no event loop: use def, and asyncio.run inside it")
    if isinstance(value, (list, tuple)) and any(isinstance(member, _BLOCKS) for member in value):
        return AgentToolResult([_to_block(member) for member in value])
    return AgentToolResult([_to_block(value)])


_BLOCKS = (TextContent, ImageContent, bytes, bytearray)


def _to_block(value: Any) -> TextContent | ImageContent:
    if isinstance(value, (TextContent, ImageContent)):
        return value
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return TextContent(value)
    if isinstance(value, (bytes, bytearray)):
        return _bytes_block(bytes(value))
    return TextContent(dumps(_plain(value)))


def _bytes_block(value: bytes) -> TextContent | ImageContent:
    from agentcore.tools.images import detect_image_type

    kind = detect_image_type(value)
    if kind is not None:
        return ImageContent(base64.b64encode(value).decode("ascii"), kind)
    try:
        return TextContent(value.decode("utf-8"))
    except UnicodeDecodeError:
        raise TypeError(
            f"the tool returned {len(value)} bytes that are neither an image nor text: return text or an image"
        ) from None


def _plain(value: Any) -> Any:
    """Return a value in JSON's own types as far as `codec.dumps` does not see to that itself."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "to_dict"):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key.value if isinstance(key, enum.Enum) else key): _plain(member) for key, member in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(member) for member in value]
    return value


def _lenient(on_update: Any) -> Any:
    return None if on_update is None else lambda partial: on_update(to_result(partial))
