"""JSON that is still coming, and JSON that is nearly right: what models make of the arguments of a call.

- `parse_streaming_json` reads the beginning of a JSON text: what is there so far, never an exception.
- `parse_json_with_repair` reads a whole text, forgiving two faults inside strings: raw control characters and bad escapes.

Both cost what they read, so they run when somebody looks, not with every delta.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

_BLANKS = re.compile(r"[ \t\n\r\ufeff]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TORN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)?(?:\.\d*)?(?:[eE][+-]?\d*)?\Z")
_PLAIN = re.compile(r'[^"\\]*')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORDS = (
    ("true", True),
    ("false", False),
    ("null", None),
    ("NaN", float("nan")),
    ("Infinity", float("inf")),
    ("-Infinity", float("-inf")),
)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_FAULTS = (ValueError, RecursionError)


def parse_streaming_json(text: str) -> Any:
    """Return what can be read from the beginning of a JSON text; `{}` where nothing can, or where it is no JSON.

    A string that has not ended is given as far as it came, but never with half of a surrogate pair or of an escape; a key
    without its value is left out. What follows the end of the value is passed over.
    """
    if not text or text.isspace():
        return {}
    try:
        return json.loads(text)
    except _FAULTS:
        pass
    try:
        return _Reader(text.rstrip()).read()
    except _NoJson:
        return {}


def parse_json_with_repair(text: str) -> Any:
    """Read a JSON text, with raw control characters and bad escapes in its strings mended.

    Raises:
        ValueError: It is no JSON even then.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError:
        return json.loads(repair_json(text))


def repair_json(text: str) -> str:
    """Return a JSON text with the control characters in its strings escaped, and backslashes that escape nothing doubled."""
    pieces: list[str] = []
    position = 0
    in_string = False
    for match in re.finditer(r'"|\\|[\x00-\x1f]', text):
        start = match.start()
        if start < position:
            continue
        char = match.group()
        if char == '"':
            in_string = not in_string
        elif in_string:
            pieces.append(text[position:start])
            if char != "\\":
                pieces.append(json.dumps(char)[1:-1])
                position = start + 1
            elif text[start + 1 : start + 2] in (*_ESCAPES, "u"):
                pieces.append(text[start : start + 2])
                position = start + 2
            else:
                pieces.append("\\\\")
                position = start + 1
    pieces.append(text[position:])
    return "".join(pieces)


class _NoJson(Exception):
    """The text breaks a rule of JSON, other than by ending too soon."""


_MORE: Any = object()  # the text ended before there was a value


class _Reader:
    """Reads one value of a text that may end anywhere. Not recursive: models nest as deep as they like."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def read(self) -> Any:
        open_values: list[tuple[Any, Any]] = []  # each container that is open, and the key under which the next value goes
        while True:
            value = self._start_value()
            if value is _MORE:
                return open_values[0][0] if open_values else {}
            if isinstance(value, (dict, list)):
                open_values.append((value, None))
            elif not open_values:
                return value
            else:
                self._put(open_values[-1], value)
                self._skip_comma(open_values[-1][0])
            # Close what ends here, until a container wants another member.
            while True:
                container, _ = open_values[-1]
                key = self._next_member(container)
                if key is _MORE:
                    self._close_all(open_values)
                    return open_values[0][0]
                if key is not _END:
                    open_values[-1] = (container, key)
                    break
                open_values.pop()
                if not open_values:
                    return container
                self._put(open_values[-1], container)
                self._skip_comma(open_values[-1][0])

    def _close_all(self, open_values: list[tuple[Any, Any]]) -> None:
        for (container, key), (inner, _) in itertools.pairwise(open_values):
            self._put((container, key), inner)

    @staticmethod
    def _put(place: tuple[Any, Any], value: Any) -> None:
        container, key = place
        if isinstance(container, list):
            container.append(value)
        else:
            container[key] = value

    def _peek(self) -> str:
        match = _BLANKS.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        return self.text[self.position : self.position + 1]

    def _start_value(self) -> Any:
        """Return a whole value, an empty container that has just begun, or `_MORE`."""
        char = self._peek()
        if not char:
            return _MORE
        if char in "{[":
            self.position += 1
            return {} if char == "{" else []
        if char == '"':
            text, _ = self._string()
            return text
        rest = self.text[self.position : self.position + 9]
        for word, value in _WORDS:
            if rest.startswith(word):
                self.position += len(word)
                return value
            if rest != "-" and word.startswith(rest) and self.position + len(rest) == len(self.text):
                self.position += len(rest)
                return value
        return self._number()

    def _number(self) -> Any:
        match = _NUMBER.match(self.text, self.position)
        torn = _TORN_NUMBER.match(self.text, self.position)
        if torn is not None and (match is None or match.end() < torn.end()):
            # `1e` is 1 so far, but `1.` and `-` are nothing yet.
            self.position = len(self.text)
            whole = match.group() if match is not None else ""
            return json.loads(whole) if whole and torn.group()[len(whole)] == "e" else _MORE
        if match is None:
            raise _NoJson
        self.position = match.end()
        return json.loads(match.group())

    def _next_member(self, container: Any) -> Any:
        """Return the key of the next member (True in a list), `_END` where the container ends, `_MORE` where the text does."""
        char = self._peek()
        if not char:
            return _MORE
        if char == ("]" if isinstance(container, list) else "}"):
            self.position += 1
            return _END
        if isinstance(container, list):
            return True
        if char != '"':
            raise _NoJson
        key, is_whole = self._string()
        if not is_whole:
            return _MORE
        char = self._peek()
        if not char:
            return _MORE
        if char != ":":
            raise _NoJson
        self.position += 1
        return key if self._peek() else _MORE

    def _skip_comma(self, container: Any) -> None:
        char = self._peek()
        if char == ",":
            self.position += 1
        elif char and char != ("]" if isinstance(container, list) else "}"):
            raise _NoJson

    def _string(self) -> tuple[str, bool]:
        """Return a string as far as it goes, and whether it has ended."""
        text = self.text
        position = self.position + 1
        pieces: list[str] = []
        while True:
            match = _PLAIN.match(text, position)
            assert match is not None
            pieces.append(match.group())
            position = match.end()
            if position >= len(text):
                break
            if text[position] == '"':
                self.position = position + 1
                return _join_surrogates("".join(pieces)), True
            escaped = text[position + 1 : position + 2]
            if not escaped:
                break
            if escaped in _ESCAPES:
                pieces.append(_ESCAPES[escaped])
                position += 2
            elif escaped != "u":
                pieces.append("\\")  # an escape of nothing: what was meant is the backslash itself
                position += 1
            elif _HEX.match(text, position + 2):
                pieces.append(chr(int(text[position + 2 : position + 6], 16)))
                position += 6
            elif len(text) < position + 6:
                break
            else:
                pieces.append("\\")
                position += 1
        self.position = len(text)
        return _without_half_pair(_join_surrogates("".join(pieces))), False


_END: Any = object()  # the container ends here


def _join_surrogates(text: str) -> str:
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _without_half_pair(text: str) -> str:
    return text[:-1] if text and "\ud800" <= text[-1] <= "\udbff" else text
