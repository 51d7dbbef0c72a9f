"""Keep the head or the tail of a long text, by lines and by bytes; clean what a command prints.

Pure functions. A line ends at a line feed and nothing else; a final line feed ends the last line and does not begin another.
Bytes are those of the text as UTF-8 (half a surrogate pair counts three). No cut leaves half a character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agentcore.codec import Json

DEFAULT_MAX_LINES = 2000
DEFAULT_MAX_BYTES = 50 * 1024
DEFAULT_MAX_LINE_CHARACTERS = 500

# C0 controls but tab, line feed and carriage return, and the interlinear annotation characters.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufff9-\ufffb]")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass
class TruncationResult(Json):
    """What was kept of a text, and how much there was.

    `truncated_by` is the limit that was reached first, None when all was kept. `last_line_partial` says that only the end of
    the last line was kept (tail), `first_line_exceeds_limit` that nothing was kept, since the first line is too long (head).
    """

    content: str
    truncated: bool
    truncated_by: Literal["lines", "bytes"] | None
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    last_line_partial: bool
    first_line_exceeds_limit: bool
    max_lines: int
    max_bytes: int


def truncate_head(content: str, *, max_lines: int = DEFAULT_MAX_LINES, max_bytes: int = DEFAULT_MAX_BYTES) -> TruncationResult:
    """Keep whole lines from the beginning, at most `max_lines` and `max_bytes` of them."""
    result = _measure(content, max_lines, max_bytes)
    if not result.truncated:
        return result
    result.content = ""
    if utf8_length(_line_at(content, 0)) > max_bytes:
        result.truncated_by, result.first_line_exceeds_limit = "bytes", True
        return result
    position = 0
    while result.output_lines < min(max_lines, result.total_lines):
        line = _line_at(content, position)
        size = utf8_length(line) + (result.output_lines > 0)  # with the line feed before it
        if result.output_bytes + size > max_bytes:
            result.truncated_by = "bytes"
            break
        result.output_lines += 1
        result.output_bytes += size
        position += len(line) + 1
    if result.output_lines:
        result.content = content[: position - 1]
    return result


def truncate_tail(content: str, *, max_lines: int = DEFAULT_MAX_LINES, max_bytes: int = DEFAULT_MAX_BYTES) -> TruncationResult:
    """Keep whole lines from the end, at most `max_lines` and `max_bytes` of them.

    Where not even the last line fits, its last `max_bytes` bytes are kept, from the next character on.
    """
    result = _measure(content, max_lines, max_bytes)
    if not result.truncated:
        return result
    stop = len(content) - content.endswith("\n")
    begin = stop + 1  # where the kept text begins; one more as long as there is no line feed to count
    while result.output_lines < min(max_lines, result.total_lines):
        line_begin = content.rfind("\n", 0, begin - 1) + 1
        size = utf8_length(content[line_begin : begin - 1]) + (result.output_lines > 0)
        if result.output_bytes + size > max_bytes:
            result.truncated_by = "bytes"
            if result.output_lines == 0:
                line = _HALF_PAIR.sub("\ufffd", content[line_begin:stop])
                result.content = _last_bytes(line, max_bytes)
                result.output_lines, result.output_bytes = 1, utf8_length(result.content)
                result.last_line_partial = True
                return result
            break
        result.output_lines += 1
        result.output_bytes += size
        begin = line_begin
    result.content = content[begin:stop]
    return result


def truncate_line(line: str, max_characters: int = DEFAULT_MAX_LINE_CHARACTERS) -> tuple[str, bool]:
    """Cut a line after `max_characters` characters and say so in it; the second value tells whether it was cut."""
    if len(line) <= max_characters:
        return line, False
    return f"{line[:max_characters]}... [truncated]", True


def format_size(size_bytes: int) -> str:
    """Return a size for people: `512B`, `1.3KB`, `50.0MB`. Exact halves of the last digit go up."""
    if size_bytes < 1024:
        return f"{size_bytes}B"
    unit, name = (1024, "KB") if size_bytes < 1024 * 1024 else (1024 * 1024, "MB")
    tenths = (size_bytes * 20 + unit) // (2 * unit)
    return f"{tenths // 10}.{tenths % 10}{name}"


def sanitize_binary_output(content: str) -> str:
    """Take out control characters other than tab, line feed and carriage return, and interlinear annotation characters."""
    return _CONTROLS.sub("", content)


def utf8_length(text: str) -> int:
    """Return how many bytes a text takes as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _measure(content: str, max_lines: int, max_bytes: int) -> TruncationResult:
    """Return the result for a text that fits; for one that does not, everything that is known before cutting."""
    total_lines = content.count("\n") + (not content.endswith("\n")) if content else 0
    total_bytes = utf8_length(content)
    fits = total_lines <= max_lines and total_bytes <= max_bytes
    return TruncationResult(
        content=content,
        truncated=not fits,
        truncated_by=None if fits else "lines",
        total_lines=total_lines,
        total_bytes=total_bytes,
        output_lines=total_lines if fits else 0,
        output_bytes=total_bytes if fits else 0,
        last_line_partial=False,
        first_line_exceeds_limit=False,
        max_lines=max_lines,
        max_bytes=max_bytes,
    )


def _line_at(content: str, position: int) -> str:
    end = content.find("\n", position)
    return content[position:] if end < 0 else content[position:end]


def _last_bytes(text: str, max_bytes: int) -> str:
    encoded = text[-max_bytes:].encode() if max_bytes > 0 else b""
    # "ignore" drops what is left of a character that the cut went through.
    return encoded[max(0, len(encoded) - max_bytes) :].decode("utf-8", "ignore")
