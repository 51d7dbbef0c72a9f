"""JSON: camelCase keys, two words that differ in files, unions told apart by their tag.

The JSON is that of pi's session format, version 3. Two names differ between memory and file, and are mapped here and nowhere else:
the tag of a tool call (`"tool"` ↔ `"toolCall"`) and the good stop reason (`"done"` ↔ `"stop"`).

There are two ways through the same field metadata:

- `to_dict`, `from_dict`, `to_json`, `from_json` of every `Json` class: the public way, carried by dataclasses-json. It is imported
  by the first of these calls, which equips all classes at once (a nested class that is not equipped keeps snake_case).
- `encode`, `decode`, `decode_tagged`: the same result at a hundredth of the price, for everything that runs once a message.

Three traps of dataclasses-json 0.6.7 shape the metadata: a decoder is not called when the value already has the annotated type, so
tags and stop reasons are annotated as `Literal`; a union of classes decodes to the first class whose fields all have defaults, so
every union has a decoder by tag; None is written as null, so each optional field has an `exclude` of its own: nulls inside
`arguments` and `details` stay.

Texts are written as UTF-8. Half a surrogate pair is written as a `\\udXXX` escape, NaN and the infinities as null. A null in a file
is read like a key that is absent. What has no JSON form (a path, a time) is written as its text.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T", bound="Json")
Metadata = dict[str, Any]

_MISSING: Any = dataclasses.MISSING
_KEY = "dataclasses_json"


class Json:
    """Base of all classes that have a JSON form. They are dataclasses."""

    @classmethod
    def from_dict(cls: type[T], raw: Mapping[str, Any]) -> T:
        """Make an object from its JSON form.

        Raises:
            ValueError: A key that has no default is missing. The text names it.
        """
        mixin = _equip()
        given = {key: value for key, value in raw.items() if value is not None}
        for item in _plan(cls):
            if item.is_required and item.key not in given and item.name not in given:
                given[item.key] = _empty(cls, item, raw)
        made: T = mixin.from_dict.__func__(cls, given)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, in the words of the file."""
        made: dict[str, Any] = _equip().to_dict(self)
        return made

    @classmethod
    def from_json(cls: type[T], text: str | bytes) -> T:
        """Make an object from JSON text."""
        return cls.from_dict(json.loads(text))

    def to_json(self) -> str:
        """Return the JSON form as text."""
        return dumps(self.to_dict())

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _waiting.append(cls)
        for tag in ("role", "type"):
            word = cls.__dict__.get(tag)
            if isinstance(word, dataclasses.Field):
                encoder = word.metadata.get(_KEY, {}).get("encoder")
                word = encoder(word.default) if encoder else word.default
            if isinstance(word, str):
                _by_tag[tag, word] = cls


_by_tag: dict[tuple[str, str], type[Json]] = {}
_waiting: list[type[Json]] = []  # classes that dataclasses-json has not been told of yet
# _equipping guards taking classes off _waiting: a second thread must not go on while a class that it needs is half equipped.
_equipping = threading.Lock()


def _equip() -> Any:
    from dataclasses_json import DataClassJsonMixin, LetterCase, config

    if _waiting:
        with _equipping:
            while _waiting:
                cls: Any = _waiting[0]
                cls.dataclass_json_config = config(letter_case=LetterCase.CAMEL)[_KEY]
                del _waiting[0]
    return DataClassJsonMixin


# --- what a field may say of its JSON form ---------------------------------------------------------------------------


def _is_none(value: object) -> bool:
    return value is None


def _always(value: object) -> bool:
    return True


OMIT_NONE: Metadata = {_KEY: {"exclude": _is_none}}
"""The key is absent where the value is None."""

HIDDEN: Metadata = {_KEY: {"exclude": _always}}
"""The field is never written."""

STOP_REASON: Metadata = {
    _KEY: {
        "encoder": lambda reason: "stop" if reason == "done" else reason,
        "decoder": lambda reason: "done" if reason == "stop" else reason,
    }
}
"""`"done"` in memory is `"stop"` in files."""

TOOL_CALL_TAG: Metadata = {_KEY: {"encoder": lambda tag: "toolCall", "decoder": lambda tag: "tool"}}
"""`"tool"` in memory is `"toolCall"` in files."""


def named(key: str, *, omit_none: bool = False) -> Metadata:
    """Give a field a key that camelCase would not make of its name."""
    return {_KEY: {"letter_case": lambda _: key, **(OMIT_NONE[_KEY] if omit_none else {})}}


def anything(*, omit_none: bool = False) -> Metadata:
    """Say that a field holds whatever the program put there; objects of `Json` classes inside it are written in their JSON form."""
    return _as(None, omit_none)


def nested(cls: type[Json], *, omit_none: bool = False) -> Metadata:
    """Say that a field holds an object of `cls`."""
    return _as(lambda raw: _decode_if_raw(cls, raw), omit_none)


def tagged() -> Metadata:
    """Say that a field holds one of a union of classes, told apart by `role` or `type`."""
    return _as(decode_tagged)


def tagged_list() -> Metadata:
    """Say that a field holds a list of such objects."""
    return _as(lambda raw: [decode_tagged(member) for member in raw])


def tagged_blocks() -> Metadata:
    """Say that a field holds content: a list of blocks, or in a file a string, which is read as one text block."""
    return _as(_decode_blocks)


def _as(decoder: Callable[[Any], Any] | None, omit_none: bool = False) -> Metadata:
    # With an encoder, dataclasses-json hands the value over as it is, instead of walking it first.
    return {_KEY: {"encoder": encode, "decoder": decoder, **(OMIT_NONE[_KEY] if omit_none else {})}}


_BLOCK_TAGS = frozenset({"text", "image", "thinking", "toolCall"})


def _decode_if_raw(cls: type[Json], raw: Any) -> Any:
    if isinstance(raw, Mapping):
        return decode(cls, raw)
    if isinstance(raw, cls):
        return raw
    raise ValueError(f"the JSON of {cls.__name__} must be an object, not {type(raw).__name__}")


def _decode_blocks(raw: Any) -> list[Any]:
    if isinstance(raw, str):
        return [decode_tagged({"type": "text", "text": raw})]
    if not isinstance(raw, list):
        return []
    # A block of an unknown kind has no place in memory; the stored line keeps it.
    return [_decode_if_raw(_by_tag["type", block["type"]], block) for block in raw if _is_block(block)]


def _is_block(raw: Any) -> bool:
    return isinstance(raw, Mapping) and raw.get("type") in _BLOCK_TAGS


# --- the fast way ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str
    key: str
    default: Any
    default_factory: Any
    encoder: Callable[[Any], Any] | None
    decoder: Callable[[Any], Any] | None
    is_hidden: bool
    omits_none: bool

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING and self.default_factory is _MISSING


_plans: dict[type, tuple[_Field, ...]] = {}


def _plan(cls: type) -> tuple[_Field, ...]:
    plan = _plans.get(cls)
    if plan is None:
        # The tag first, as pi writes it: who looks at a line sees at once what it is.
        fields = sorted(dataclasses.fields(cls), key=lambda item: item.name not in ("role", "type"))
        plan = _plans[cls] = tuple(_read_field(item) for item in fields)
    return plan


def _read_field(item: dataclasses.Field[Any]) -> _Field:
    says = item.metadata.get(_KEY, {})
    rename = says.get("letter_case")
    return _Field(
        name=item.name,
        key=rename(item.name) if rename else camel_case(item.name),
        default=item.default,
        default_factory=item.default_factory,
        encoder=says.get("encoder"),
        decoder=says.get("decoder"),
        is_hidden=says.get("exclude") is _always,
        omits_none=says.get("exclude") is _is_none,
    )


def camel_case(name: str) -> str:
    """Return a snake_case name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


_PLAIN = (str, int, float)


def encode(value: Any) -> Any:
    """Return the JSON form of an object; lists and dicts are copied and walked, all else is passed on as it is."""
    if isinstance(value, Json):
        own = getattr(value, "_encode", None)
        if own is not None:
            return own()
        made: dict[str, Any] = {}
        attributes = value.__dict__
        for item in _plan(type(value)):
            if item.is_hidden:
                continue
            member = attributes[item.name] if item.name in attributes else getattr(value, item.name)
            if member is None:
                if not item.omits_none:
                    made[item.key] = None
            elif item.encoder is not None:
                made[item.key] = item.encoder(member)
            elif isinstance(member, _PLAIN):
                made[item.key] = member
            else:
                made[item.key] = encode(member)
        return made
    if isinstance(value, (list, tuple)):
        return [encode(member) for member in value]
    if isinstance(value, dict):
        return {key: encode(member) for key, member in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel_case(item.name): encode(getattr(value, item.name)) for item in dataclasses.fields(value)}
    return value


def decode(cls: type[T], raw: Mapping[str, Any]) -> T:
    """Make an object of `cls` from its JSON form. Unknown keys are passed over; snake_case keys are understood.

    Raises:
        ValueError: A key that has no default is missing. The text names it.
    """
    own = getattr(cls, "_decode", None)
    if own is not None:
        made: T = own(raw)
        return made
    made = object.__new__(cls)
    attributes = made.__dict__
    for item in _plan(cls):
        value = raw.get(item.key)
        if value is None:
            value = raw.get(item.name)
        if value is not None:
            if item.decoder is not None:
                value = item.decoder(value)
        elif item.default is not _MISSING:
            value = item.default
        elif item.default_factory is not _MISSING:
            value = item.default_factory()
        else:
            value = _empty(cls, item, raw)
        attributes[item.name] = value
    prepare = getattr(made, "__post_init__", None)
    if prepare is not None:
        prepare()
    return made


def _empty(cls: type, item: _Field, raw: Mapping[str, Any]) -> Any:
    """Return what a required field gets that is null in the file: no blocks, or None."""
    if item.key in raw or item.name in raw:
        return [] if item.decoder is _decode_blocks else None
    raise ValueError(f"the JSON of {cls.__name__} has no key {item.key!r}: it has {', '.join(map(str, raw)) or 'none'}")


def decode_tagged(raw: Any) -> Any:
    """Make an object of the class that the `role` or `type` of its JSON form names.

    Raises:
        ValueError: No class has such a tag, or this is no JSON object at all.
    """
    if not isinstance(raw, Mapping):
        if isinstance(raw, (str, int, float, list)):
            raise ValueError(f"an object with a role or type was expected, not {type(raw).__name__}")
        return raw  # it is made already
    for tag in ("role", "type"):
        word = raw.get(tag)
        if word is None:
            continue
        if not isinstance(word, str):
            raise ValueError(f"{tag} must be a string, not {type(word).__name__}")
        cls = _by_tag.get((tag, word)) or _by_tag.get((tag, "*"))
        if cls is not None:
            return decode(cls, raw)
        raise ValueError(f"unknown {tag} {word!r}: no class of the library is written so")
    raise ValueError(f"JSON without role or type: it has {', '.join(raw) or 'no keys'}")


def dumps(value: Any) -> str:
    """Return JSON text without blanks or line breaks, fit to be written as UTF-8.

    Raises:
        ValueError: The value holds itself, or its lists and dicts lie too deep in one another.
    """
    try:
        text = _encoder.encode(value)
    except RecursionError as error:
        raise ValueError("the value is nested too deeply to be written as JSON: make it flatter") from error
    except (ValueError, TypeError) as error:  # NaN or an infinity; a key of a dict that is no string
        if "Circular" in str(error):
            raise ValueError("the value holds itself, so it cannot be written as JSON: leave the reference out") from error
        text = _encoder.encode(_plain(value))
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text


def _default(value: Any) -> Any:
    if isinstance(value, Json) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return encode(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    return _number(value)


def _number(value: Any) -> Any:
    import numbers

    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_default)


def _plain(value: Any) -> Any:
    """Return a value of nothing but what JSON has."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _plain_key(key): _plain(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    return _plain(_default(value))


def _plain_key(key: Any) -> str:
    return json.dumps(key) if key is None or isinstance(key, (bool, int)) else str(key)
