"""Null in arguments stands for what was not given: what we expect where the reference makes 0, false or an empty text of it.

It is left out where a property is optional, refused where it is required, kept where the schema allows it. A null in a list has
nothing to be left out of: there we do as the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def allows_null(schema: Any) -> bool:
    """Whether a schema takes null as it is."""
    if not isinstance(schema, Mapping):
        return schema is not False
    for key in ("anyOf", "oneOf"):
        if key in schema and not any(map(allows_null, schema[key])):
            return False
    if "enum" in schema and None not in schema["enum"]:
        return False
    if "const" in schema and schema["const"] is not None:
        return False
    types = schema.get("type")
    return types is None or "null" in ([types] if isinstance(types, str) else types)


def has_null(arguments: Any) -> bool:
    """Whether there is a null anywhere in the arguments."""
    if isinstance(arguments, dict):
        return any(map(has_null, arguments.values()))
    return any(map(has_null, arguments)) if isinstance(arguments, list) else arguments is None


def settle_nulls(schema: Any, raw: Any, recorded: Any) -> tuple[Any, bool]:
    """Return the arguments as ours are, where the reference has the recorded ones, and whether they are refused.

    Args:
        raw: What the model sent.
        recorded: What the reference made of it.
    """
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(raw, dict) and isinstance(recorded, dict):
        properties = schema.get("properties") or {}
        made: dict[str, Any] = {}
        is_refused = False
        for name, value in recorded.items():
            inner = properties.get(name, schema.get("additionalProperties", {}))
            if name in raw and raw[name] is None:
                if allows_null(inner):
                    made[name] = None
                elif name in (schema.get("required") or ()) or name not in properties:
                    is_refused = True
                continue
            made[name], is_inner_refused = settle_nulls(inner, raw.get(name), value)
            is_refused |= is_inner_refused
        return made, is_refused
    if isinstance(raw, list) and isinstance(recorded, list) and len(raw) == len(recorded):
        pairs = [settle_nulls(schema.get("items", {}), one, other) for one, other in zip(raw, recorded, strict=True)]
        return [made for made, _ in pairs], any(refused for _, refused in pairs)
    return recorded, False
