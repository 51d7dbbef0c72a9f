"""Checks the arguments of a tool call against the tool's JSON Schema, after making them fit where that is safe.

Models send `"5"` for 5 and `1` for true. What can only mean one thing is taken as that; the rest is an error whose text is
written for the model. The caller's arguments are never changed.

- Text becomes a number, `"true"` and `"false"`, 1 and 0 become booleans, numbers and booleans become text, `""`, 0 and false
  become null, each only where the schema wants that type and does not take the value as it is.
- Of an `anyOf` or `oneOf` the first member that the value can be made to fit wins.
- Null stands for "not given": it is left out where a property is optional, refused where it is required, kept where the schema
  allows it. (The reference makes it 0, false or an empty text, so `limit: null` reads nothing and `content: null` empties a file.)
- An integral float becomes an integer where the schema wants one, so that a tool gets an `int`.

A schema is compiled once, by its identity: change a tool's `parameters` by giving it a new dictionary.
"""

from __future__ import annotations

import functools
import json
import math
import re
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from agentcore.errors import ToolArgumentsError
from agentcore.messages import ToolCall
from agentcore.tools.agent_tool import AgentTool

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_QUOTED_CHARS = 500
"""How much of an argument text that is not JSON an error quotes."""

MAX_RECEIVED_CHARS = 20_000
"""How much of the received arguments a validation error shows: the model wrote them, a second whole copy is of no use."""


def validate_tool_arguments(tool: AgentTool, tool_call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call in the form that the tool's schema asks for.

    Raises:
        ToolArgumentsError: They do not fit, or the model's text was not JSON. The text names every fault, by path.
        ValueError: The tool's schema is no JSON Schema, or refers to one that is not inside it.

    Threads:
        Any. The first call imports jsonschema.
    """
    if tool_call.raw_arguments is not None:
        raise ToolArgumentsError(unreadable_arguments_text(tool_call))
    compiled = _compiled(tool)
    try:
        arguments = compiled.coerce(tool_call.arguments)
        faults = compiled.faults(arguments)
    except RecursionError:
        raise ToolArgumentsError(
            f'The arguments of tool "{tool.name}" are nested too deeply to be checked, so it was not run. Call it again with '
            "flatter ones."
        ) from None
    if faults:
        lines = "".join(f"\n  - {path}: {message}" for path, message in faults)
        received = _received(tool_call.arguments)
        raise ToolArgumentsError(f'Validation failed for tool "{tool.name}":{lines}\n\nReceived arguments:\n{received}')
    made: dict[str, Any] = arguments
    return made


def validate_tool_call(tools: Sequence[AgentTool], tool_call: ToolCall) -> dict[str, Any]:
    """Find the tool of a call and return the arguments as `validate_tool_arguments` does.

    Raises:
        ToolArgumentsError: There is no tool of that name, or the arguments do not fit.
    """
    for tool in tools:
        if tool.name == tool_call.name:
            return validate_tool_arguments(tool, tool_call)
    raise ToolArgumentsError(unknown_tool_text(tool_call.name, tools))


def unknown_tool_text(name: str, tools: Sequence[AgentTool]) -> str:
    """Say that there is no such tool, and which there are."""
    known = ", ".join(tool.name for tool in tools)
    return f'Tool "{name}" not found. ' + (f"Use one of: {known}" if known else "There are no tools: answer without one")


def unreadable_arguments_text(tool_call: ToolCall) -> str:
    """Say that the argument text of a call is not JSON, quoting at most `MAX_QUOTED_CHARS` of it."""
    raw = tool_call.raw_arguments or ""
    size = f", the first {MAX_QUOTED_CHARS} of {len(raw)} characters" if len(raw) > MAX_QUOTED_CHARS else ""
    return (
        f'The arguments of tool "{tool_call.name}" are not valid JSON, so it was not run. Call it again with one complete JSON '
        f"object.\n\nReceived{size}:\n{raw[:MAX_QUOTED_CHARS]}"
    )


def _received(arguments: Any) -> str:
    text = json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
    if len(text) <= MAX_RECEIVED_CHARS:
        return text
    return f"{text[:MAX_RECEIVED_CHARS]}\n… ({len(text) - MAX_RECEIVED_CHARS} more characters)"


# Schemas, each compiled once

# _compiled_lock guards _compiled_schemas. A schema is compiled outside it: two threads may do so at the same time, one wins.
_compiled_lock = threading.Lock()
_compiled_schemas: dict[int, tuple[Any, _Schema]] = {}
_MAX_COMPILED = 1000


def _compiled(tool: AgentTool) -> _Schema:
    key = id(tool.parameters)
    found = _compiled_schemas.get(key)
    if found is not None and found[0] is tool.parameters:  # kept alive by its entry, so its id cannot be another's
        return found[1]
    made = _Schema(tool.name, tool.parameters)
    with _compiled_lock:
        if len(_compiled_schemas) >= _MAX_COMPILED:
            del _compiled_schemas[next(iter(_compiled_schemas))]
        _compiled_schemas[key] = (tool.parameters, made)
    return made


class _Schema:
    """One schema, ready to coerce and to check."""

    def __init__(self, tool_name: str, schema: Any) -> None:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, extend, validator_for
        from referencing import Registry

        self._tool_name = tool_name
        self._root = _in_order(schema, is_new_draft=not (isinstance(schema, dict) and "$schema" in schema))
        kind = validator_for(self._root, default=Draft202012Validator)
        try:
            kind.check_schema(self._root)
        except SchemaError as error:
            where = ".".join(map(str, error.absolute_path)) or "the top"
            raise ValueError(
                f"the parameters of the tool {tool_name!r} are no JSON Schema: at {where}, {error.message}; correct them"
            ) from error
        # An empty registry: a reference to another document is an error, never a request over the network.
        registry: Registry[Any] = Registry()
        checker = extend(kind, {"multipleOf": _multiple_of})  # type: ignore[no-untyped-call]
        self._validator: Any = checker(self._root, format_checker=_format_checker(), registry=registry)

    def faults(self, value: Any) -> list[tuple[str, str]]:
        """Return (path, message) of each fault, in the order of the schema."""
        from referencing.exceptions import Unresolvable

        try:
            faults = [fault for error in self._validator.iter_errors(value) for fault in _faults_of(error)]
        except (Unresolvable, re.error) as error:
            raise ValueError(
                f"the parameters of the tool {self._tool_name!r} cannot be checked: {error}; put every definition under '$defs' "
                "and use patterns that Python understands"
            ) from error
        # jsonschema reports each missing property by itself; one line names them all.
        return [fault for index, fault in enumerate(faults) if not (_is_missing(fault) and fault in faults[:index])]

    def coerce(self, value: Any) -> Any:
        """Return a copy of `value` in the form that the schema asks for, as far as that is safe."""
        return self._coerce(value, self._root, frozenset())

    def _coerce(self, value: Any, schema: Any, seen: frozenset[str]) -> Any:
        if not isinstance(schema, dict):
            return _copy(value)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in seen:
                return _copy(value)
            value = self._coerce(value, self._lookup(reference), seen | {reference})
        for member in schema.get("allOf", ()):
            value = self._coerce(value, member, seen)
        for members in (schema.get("anyOf"), schema.get("oneOf")):
            if members:
                value = self._coerce_to_first(value, members, seen)
        types = schema.get("type")
        if types is not None:
            value = self._coerce_to_type(value, [types] if isinstance(types, str) else types)
        if isinstance(value, dict):
            return self._coerce_object(value, schema)
        if isinstance(value, list):
            return self._coerce_list(value, schema)
        return value

    def _lookup(self, reference: str) -> Any:
        node: Any = self._root
        if not reference.startswith("#"):
            return None
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                node = node[int(step)] if step.isdecimal() and int(step) < len(node) else None
            else:
                node = node.get(step) if isinstance(node, dict) else None
        return node

    def _coerce_to_first(self, value: Any, members: list[Any], seen: frozenset[str]) -> Any:
        if value is None and any(self._fits(None, member) for member in members):
            return None
        for member in members:
            candidate = self._coerce(value, member, seen)
            if self._fits(candidate, member):
                return candidate
        return value

    def _fits(self, value: Any, schema: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def _coerce_to_type(self, value: Any, types: list[str]) -> Any:
        for kind in types:
            if _is_of_type(value, kind):
                return int(value) if kind == "integer" and isinstance(value, float) and "number" not in types else value
        if isinstance(value, (dict, list)):
            return value
        for kind in types:
            candidate = _to_type(value, kind)
            if _is_of_type(candidate, kind):
                return candidate
        return value

    def _coerce_object(self, value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        required = schema.get("required") or ()
        made: dict[str, Any] = {}
        for name, member in value.items():
            if name not in properties:
                made[name] = _copy(member) if member is None else self._coerce(member, rest, frozenset())
            elif member is not None:
                made[name] = self._coerce(member, properties[name], frozenset())
            elif name in required or self._fits(None, properties[name]):
                made[name] = None
        return made

    def _coerce_list(self, value: list[Any], schema: dict[str, Any]) -> list[Any]:
        first, rest = schema.get("prefixItems", []), schema.get("items")
        if isinstance(rest, list):  # an older draft
            first, rest = rest, schema.get("additionalItems")
        made = [self._coerce(member, known, frozenset()) for member, known in zip(value, first, strict=False)]
        made.extend(self._coerce(member, rest, frozenset()) for member in value[len(first) :])
        return made


_FIRST_KEYWORDS = ("$schema", "$ref", "type", "const", "enum", "required", "additionalProperties")
_LAST_KEYWORDS = ("not", "allOf", "anyOf", "oneOf")
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_PLAIN_VALUES = ("const", "enum", "default", "examples", "required")


def _in_order(schema: Any, *, is_new_draft: bool) -> Any:
    """Copy a schema with its keywords in one order, because faults are reported in the order of the keywords.

    A list of `items`, as older drafts have it, is put as the current draft says it.
    """
    if isinstance(schema, list):
        return [_in_order(member, is_new_draft=is_new_draft) for member in schema]
    if not isinstance(schema, dict):
        return schema

    def rank(keyword: str) -> int:
        if keyword in _FIRST_KEYWORDS:
            return _FIRST_KEYWORDS.index(keyword)
        return len(_FIRST_KEYWORDS) + (keyword in _LAST_KEYWORDS)

    made: dict[str, Any] = {}
    for keyword in sorted(schema, key=rank):
        member = schema[keyword]
        if keyword in _SCHEMAS_BY_NAME and isinstance(member, dict):
            made[keyword] = {name: _in_order(inner, is_new_draft=is_new_draft) for name, inner in member.items()}
        else:
            made[keyword] = member if keyword in _PLAIN_VALUES else _in_order(member, is_new_draft=is_new_draft)
    if is_new_draft and isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    return made


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


# Those that jsonschema checks with further libraries only, hardly (`email`: any text with an @), or wrongly (`time`: no zone).
_FORMATS = {
    "email": r"[^\s@\"(),:;<>\[\\\]]+@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*",
    "hostname": r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]*",
    "url": r"[A-Za-z][A-Za-z0-9+.-]*://[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+",
    "duration": r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)",
    "time": r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]\d\d:\d\d)?",
    "json-pointer": r"(/([^~/]|~[01])*)*",
}


@functools.cache
def _format_checker() -> Any:
    from datetime import datetime

    from jsonschema import FormatChecker

    checker = FormatChecker()
    for name, pattern in _FORMATS.items():
        compiled = re.compile(pattern)
        checker.checks(name)(lambda value, wanted=compiled: not isinstance(value, str) or wanted.fullmatch(value) is not None)

    @checker.checks("date-time", raises=ValueError)
    def is_date_time(value: object) -> bool:
        if not isinstance(value, str):
            return True
        if not _DATE_TIME.fullmatch(value):
            return False
        datetime.fromisoformat(value[:19].replace(" ", "T"))
        return True

    return checker


# Making a value fit


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_copy(member) for member in value]
    return value


def _is_of_type(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return kind == "number" and isinstance(value, (int, float))


def _to_type(value: Any, kind: str) -> Any:
    """Return a text, number, boolean or null as the same thing of another type; `value` itself where there is no such thing."""
    if kind == "string":
        return _to_text(value)
    if kind in ("number", "integer"):
        return _to_number(value, kind)
    if kind == "boolean":
        if value is None:
            return False
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value, value)
        return bool(value) if value in (0, 1) else value
    if kind == "null":
        return None if value in ("", 0) else value
    return value


def _to_text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number_text(value)
    return str(value) if isinstance(value, int) else value


def _number_text(value: float) -> str:
    """Write a number as JSON writers of other languages do: no `.0`, exponents only below 1e-6 and from 1e21 on."""
    if not math.isfinite(value):
        return json.dumps(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        from decimal import Decimal

        return format(Decimal(repr(value)), "f")
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent):+d}"


_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_OTHER_BASES = re.compile(r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+")
_MAX_DIGITS = 400  # longer ones are no number that anybody means, and int() takes quadratic time for them


def _to_number(value: Any, kind: str) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if len(text) > _MAX_DIGITS:
        return value
    if _OTHER_BASES.fullmatch(text):
        return int(text, 0)
    if not _DECIMAL.fullmatch(text):
        return value
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        return value
    return int(number) if kind == "integer" and number.is_integer() else number


def _multiple_of(validator: Any, divisor: float, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `multipleOf` as people count: 19.99 is a multiple of 0.01, which is not so for the fractions that a float holds."""
    from fractions import Fraction

    from jsonschema.exceptions import ValidationError

    if not _is_of_type(value, "number") or (isinstance(value, float) and not math.isfinite(value)):
        return
    if isinstance(value, int) and isinstance(divisor, int):
        is_multiple = value % divisor == 0
    else:
        quotient = Fraction(value) / Fraction(divisor)
        is_multiple = abs(quotient - round(quotient)) <= max(Fraction(1), abs(quotient)) / 10**10
    if not is_multiple:
        yield ValidationError(f"{value!r} is not a multiple of {divisor}")


# Saying what is wrong


def _faults_of(error: ValidationError) -> Iterator[tuple[str, str]]:
    for inner in error.context or ():
        yield from _faults_of(inner)
    path = [str(step) for step in error.absolute_path]
    keyword, limit = error.validator, cast(Any, error.validator_value)
    if keyword == "required" and isinstance(error.instance, dict):
        missing = [str(name) for name in limit if name not in error.instance]
        yield ".".join([*path, missing[0]]), f"must have required properties {', '.join(missing)}"
    else:
        yield ".".join(path) or "root", _message(str(keyword), limit, error.message)


def _is_missing(fault: tuple[str, str]) -> bool:
    return fault[1].startswith("must have required")


def _message(keyword: str, limit: Any, otherwise: str) -> str:
    if keyword == "type":
        return f"must be {limit}" if isinstance(limit, str) else f"must be either {' or '.join(limit)}"
    simple = _MESSAGES.get(keyword)
    if simple is None:
        return otherwise
    return simple.format(json.dumps(limit) if isinstance(limit, bool) else limit)


_MESSAGES = {
    "const": "must be equal to constant",
    "enum": "must be equal to one of the allowed values",
    "minLength": "must not have fewer than {} characters",
    "maxLength": "must not have more than {} characters",
    "pattern": 'must match pattern "{}"',
    "format": 'must match format "{}"',
    "minimum": "must be >= {}",
    "maximum": "must be <= {}",
    "exclusiveMinimum": "must be > {}",
    "exclusiveMaximum": "must be < {}",
    "multipleOf": "must be multiple of {}",
    "minItems": "must not have fewer than {} items",
    "maxItems": "must not have more than {} items",
    "uniqueItems": "must not have duplicate items",
    "minProperties": "must not have fewer than {} properties",
    "maxProperties": "must not have more than {} properties",
    "additionalProperties": "must not have additional properties",
    "not": "must not be valid",
    "anyOf": "must match a schema in anyOf",
    "oneOf": "must match exactly one schema in oneOf",
}
