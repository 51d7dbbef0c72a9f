"""Recorded cases of the string functions under the edit tool (edit_diff.json)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agentcore.tools.text_edits import (
    detect_line_ending,
    fuzzy_find_text,
    generate_diff_string,
    generate_unified_patch,
    normalize_for_fuzzy_match,
    normalize_to_lf,
    restore_line_endings,
    strip_bom,
)
from tests.conformance.cases import Difference, case_params, check, expand, with_difference

DIFFERENCES = {
    # utf16: positions in code points
    "fuzzyFindText: astral before": Difference(
        "a character outside the basic plane is one character here, two units there", {"index": 2}
    ),
}


def run(arguments: dict[str, Any]) -> Any:
    """Call the function of a case and give its result in the words of the recording."""
    fn = arguments["fn"]
    if fn == "detectLineEnding":
        return detect_line_ending(arguments["text"])
    if fn == "normalizeToLF":
        return normalize_to_lf(arguments["text"])
    if fn == "normalizeForFuzzyMatch":
        return normalize_for_fuzzy_match(arguments["text"])
    if fn == "restoreLineEndings":
        return restore_line_endings(arguments["text"], arguments["ending"])
    if fn == "stripBom":
        bom, text = strip_bom(arguments["text"])
        return {"bom": bom, "text": text}
    if fn == "fuzzyFindText":
        match = fuzzy_find_text(arguments["content"], arguments["oldText"])
        return {
            "found": match.found,
            "index": match.index,
            "matchLength": match.length,
            "usedFuzzyMatch": match.is_loose,
            "contentForReplacement": match.content,
        }
    context = arguments.get("context", 4)
    if fn == "generateDiffString":
        diff, first_changed_line = generate_diff_string(arguments["old"], arguments["new"], context)
        return {"diff": diff, "firstChangedLine": first_changed_line}
    if fn == "generateUnifiedPatch":
        return generate_unified_patch(arguments["path"], arguments["old"], arguments["new"], context)
    raise AssertionError(f"unknown function {fn!r}")


@pytest.mark.pythons
@pytest.mark.parametrize("case", case_params("edit_diff.json"))
def test_edit_diff(case: dict[str, Any]) -> None:
    """The function returns what was recorded, or what the list of differences says; a patch does what it says."""
    given = expand(case["input"])
    ours = run(given)
    expected = with_difference(case["expected"], DIFFERENCES.get(case["name"]))
    if given["fn"] == "fuzzyFindText" and expected["found"] and case["name"] not in DIFFERENCES:
        # Positions in characters: one outside the basic plane is two units in the reference.
        units = expected["contentForReplacement"].encode("utf-16-le", "surrogatepass")
        begin, end = expected["index"], expected["index"] + expected["matchLength"]
        index = len(units[: 2 * begin].decode("utf-16-le", "surrogatepass"))
        length = len(units[2 * begin : 2 * end].decode("utf-16-le", "surrogatepass"))
        expected = {**expected, "index": index, "matchLength": length}
    check(expected, ours)
    if given["fn"] == "generateUnifiedPatch":
        assert apply_patch(given["old"], ours) == given["new"]


def apply_patch(text: str, patch: str) -> str:
    """Apply a unified patch to a text, strictly: every line that it names must be there."""
    old = re.findall("[^\n]*\n|[^\n]+", text)
    made: list[str] = []
    position = 0
    lines = re.findall("[^\n]*\n|[^\n]+", patch)[2:]
    for index, line in enumerate(lines):
        if line.startswith("@@"):
            start, count = map(int, re.findall(r"-(\d+),(\d+)", line)[0])
            begin = start - (count > 0)
            made += old[position:begin]
            position = begin
        elif not line.startswith("\\"):
            is_open = index + 1 < len(lines) and lines[index + 1].startswith("\\")
            content = line[1:-1] if is_open else line[1:]
            if line[0] != "+":
                assert old[position] == content
                position += 1
            if line[0] != "-":
                made.append(content)
    return "".join(made + old[position:])
