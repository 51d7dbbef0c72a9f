"""Recorded cases of cutting long texts, sizes, and cleaning binary output (truncate.json)."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.codec import encode
from agentcore.tools.truncate import format_size, sanitize_binary_output, truncate_head, truncate_line, truncate_tail
from tests.conformance.cases import Difference, case_params, check, expand, with_difference

CODE_POINTS = "a character outside the basic plane is one character here, two units there"

DIFFERENCES = {
    # utf16: lengths in code points
    "line: surrogate pair counts two": Difference(CODE_POINTS, {"text": "😀😀😀", "wasTruncated": False}),
    "line: surrogate pair cut in half": Difference(
        f"{CODE_POINTS}; and no character is ever cut in half", {"text": "😀😀😀", "wasTruncated": False}
    ),
}


def run(arguments: dict[str, Any]) -> Any:
    """Call the function of a case and give its result in the words of the recording."""
    fn = arguments["fn"]
    if fn in ("truncateHead", "truncateTail"):
        options = arguments.get("options", {})
        names = {"maxLines": "max_lines", "maxBytes": "max_bytes"}
        truncate = truncate_head if fn == "truncateHead" else truncate_tail
        return encode(truncate(arguments["content"], **{names[key]: value for key, value in options.items()}))
    if fn == "truncateLine":
        limit = {"max_characters": arguments["maxChars"]} if "maxChars" in arguments else {}
        text, was_truncated = truncate_line(arguments["content"], **limit)
        return {"text": text, "wasTruncated": was_truncated}
    if fn == "formatSize":
        return format_size(arguments["bytes"])
    if fn == "sanitizeBinaryOutput":
        return sanitize_binary_output(arguments["content"])
    raise AssertionError(f"unknown function {fn!r}")


@pytest.mark.pythons
@pytest.mark.parametrize("case", case_params("truncate.json"))
def test_truncate(case: dict[str, Any]) -> None:
    """The function returns what was recorded, or what the list of differences says."""
    given = expand(case["input"])
    expected = with_difference(case["expected"], DIFFERENCES.get(case["name"]))
    if given["fn"] == "truncateLine" and any(ord(character) > 0xFFFF for character in given["content"]):
        content, limit = given["content"], given.get("maxChars", 500)
        is_cut = len(content) > limit  # in characters, see CODE_POINTS
        expected = {"text": f"{content[:limit]}... [truncated]" if is_cut else content, "wasTruncated": is_cut}
    check(expected, run(given))
