"""Recorded cases of the edit tool (edit_tool.json), on real files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from agentcore.tools.edit import create_edit_tool, prepare_edit_arguments
from agentcore.tools.text_edits import BOM, normalize_for_fuzzy_match, normalize_to_lf
from tests.conformance.cases import Difference, case_params
from tests.conformance.test_edit_diff import apply_patch
from tests.conformance.tool_cases import check_tool_case, make_place, run_tool_case

OUTSIDE = "bytes outside of the replaced range stay as they are"
LONE = "a lone edit is made a list of one before the validation, which here makes no lists"
EXACT = "a text that is there exactly once is what is meant, whatever resembles it"
FAULT = "the wording of a fault is that of our validator"


def _edited(reason: str, diff: str, hunk: str, first_changed_line: int, content: Any, path: str = "f.txt") -> Difference:
    return Difference(
        reason,
        {
            "": {
                "expected": {
                    "content": [{"type": "text", "text": f"Successfully replaced 1 block(s) in {path}."}],
                    "details": {
                        "diff": diff,
                        "patch": f"--- {path}\n+++ {path}\n{hunk}",
                        "firstChangedLine": first_changed_line,
                    },
                    "files_after": {path: content},
                }
            }
        },
    )


def _content(reason: str, content: Any, path: str = "f.txt") -> Difference:
    return Difference(reason, {"expected.files_after": {path: content}})


def _fault(fault: str, received: str, reason: str = FAULT) -> Difference:
    message = f'Validation failed for tool "edit":\n  - {fault}\n\nReceived arguments:\n{received}'
    return Difference(reason, {"": {"error": {"stage": "validate", "message": message, "files_after": "unchanged"}}})


DIFFERENCES = {
    # quirk: line ends
    "mixed endings, first is CRLF: all become CRLF": _content(OUTSIDE, "a\r\nB\nc\r\nd\n"),
    "mixed endings, first is LF: all become LF": _content(OUTSIDE, "a\nB\r\nc\nd\r\n"),
    "lone CR becomes LF": _content(OUTSIDE, "a\rb\nC\n"),
    "file with only CRs becomes LF": _content(OUTSIDE, "a\rB\rc"),
    # quirk: what is not UTF-8
    "invalid UTF-8 is replaced when the file is written back": Difference(
        OUTSIDE, {"expected.files_after": {"f.bin": {"base64": "Yf9iCkMK"}}}
    ),
    # loose matches touch nothing but what they match
    "fuzzy: touched line is rewritten in normalised form": _edited(
        OUTSIDE,
        "-1 \u201ca\u201d b \u201cc\u201d   \n+1 x \u201cc\u201d   \n 2 next",
        "@@ -1,2 +1,2 @@\n-\u201ca\u201d b \u201cc\u201d   \n+x \u201cc\u201d   \n next\n",
        1,
        "x \u201cc\u201d   \nnext\n",
    ),
    "fuzzy: exact edit and fuzzy edit together": Difference(
        OUTSIDE,
        {
            "expected.details.diff": "-1 alpha  \n-2 beta \u2014 x\n+1 ALPHA  \n+2 BETA\n 3 gamma  ",
            "expected.details.patch": "--- f.txt\n+++ f.txt\n"
            "@@ -1,3 +1,3 @@\n-alpha  \n-beta \u2014 x\n+ALPHA  \n+BETA\n gamma  \n",
            "expected.files_after": {"f.txt": "ALPHA  \nBETA\ngamma  \n"},
        },
    ),
    # quirk: counting
    "fuzzy: duplicates found only after normalising": _edited(
        EXACT,
        ' 1 x = \u201c1\u201d\n-2 x = "1"\n+2 y',
        '@@ -1,2 +1,2 @@\n x = \u201c1\u201d\n-x = "1"\n+y\n',
        2,
        "x = \u201c1\u201d\ny\n",
    ),
    "exact match but fuzzy duplicate elsewhere": _edited(
        EXACT,
        " 1 foo  \n 2 bar\n-3 foo\n-4 bar\n+3 X",
        "@@ -1,4 +1,3 @@\n foo  \n bar\n-foo\n-bar\n+X\n",
        3,
        "foo  \nbar\nX\n",
    ),
    "old text is only trailing whitespace": _edited(
        EXACT, "-1 a  \n+1 a--\n 2 b", "@@ -1,2 +1,2 @@\n-a  \n+a--\n b\n", 1, "a--\nb\n"
    ),
    # plain schemas
    "legacy: edits as a broken JSON string": _fault("edits: must be array", '{\n  "path": "f.txt",\n  "edits": "[{oldText:"\n}'),
    "legacy: edits as a JSON string holding an object": _fault(
        "edits: must be array",
        '{\n  "path": "f.txt",\n  "edits": "{\\"oldText\\":\\"b\\",\\"newText\\":\\"B\\"}"\n}',
    ),
    # quirk: null
    "null newText is coerced to the text null": _fault(
        "edits.0.newText: must be string",
        '{\n  "path": "f.txt",\n  "edits": [\n    {\n      "oldText": "b",\n      "newText": null\n    }\n  ]\n}',
        "null is no text; the file stays as it is",
    ),
}


def rule(given: dict[str, Any], recorded: dict[str, Any], ours: dict[str, Any]) -> Difference | None:
    """Three kinds: line ends and loose matches change nothing outside; what is there exactly once is meant; lone edits."""
    arguments = given["args"]
    if isinstance(arguments.get("edits"), dict) and "expected" in recorded:
        pair = [{key: arguments[key] for key in ("oldText", "newText")}] if "oldText" in arguments else []
        rest = {key: value for key, value in arguments.items() if key not in ("oldText", "newText")}
        return Difference(LONE, {"expected.prepared_args": {**rest, "edits": [arguments["edits"], *pair]}})
    edits = arguments.get("edits")
    if isinstance(edits, list) and any(
        None in (one.get("oldText", ""), one.get("newText", "")) for one in edits if isinstance(one, dict)
    ):
        assert "error" in ours and ours["error"]["stage"] == "validate" and ours["error"]["files_after"] == "unchanged"
        return Difference("null is no text; the file stays as it is", {"": {"error": ours["error"]}})
    prepared = prepare_edit_arguments(arguments)
    edits, path = prepared.get("edits"), prepared.get("path")
    content = given.get("files", {}).get(path)
    if isinstance(content, dict) and "base64" in content and "expected" in recorded and isinstance(edits, list):
        return _edited_bytes(recorded, path, base64.b64decode(content["base64"]), edits)
    if not isinstance(content, str) or not isinstance(edits, list) or "error" in ours:
        return None
    old = normalize_to_lf(content)
    is_exact = all(old.count(normalize_to_lf(str(one["oldText"]))) == 1 for one in edits)
    new = ours["files_after"][path]
    if "error" in recorded:
        wanted = old
        for one in edits:
            wanted = wanted.replace(normalize_to_lf(str(one["oldText"])), normalize_to_lf(str(one["newText"])))
        is_counted = recorded["error"]["message"].startswith("Found ")
        return Difference(EXACT, {"": {"expected": ours}}) if is_exact and is_counted and wanted == normalize_to_lf(new) else None
    if is_exact and "\r" not in content:
        return None
    assert _loosely(new) == _loosely(recorded["expected"]["files_after"][path])
    assert apply_patch(old.removeprefix(BOM), ours["details"]["patch"]) == normalize_to_lf(new).removeprefix(BOM)
    return Difference(OUTSIDE, {"expected.files_after": ours["files_after"], "expected.details": ours["details"]})


def _edited_bytes(recorded: dict[str, Any], path: str, content: bytes, edits: list[dict[str, Any]]) -> Difference | None:
    """Make the edits on the bytes of a file that is not UTF-8, where each text is there exactly once."""
    for edit in edits:
        old = str(edit["oldText"]).encode()
        if content.count(old) != 1:
            return None
        content = content.replace(old, str(edit["newText"]).encode())
    shown = {"base64": base64.b64encode(content).decode("ascii")}
    return Difference(OUTSIDE, {"expected.files_after": {**recorded["expected"]["files_after"], path: shown}})


def _loosely(text: str) -> str:
    return normalize_for_fuzzy_match(normalize_to_lf(text))


@pytest.mark.parametrize("case", case_params("edit_tool.json"))
def test_edit_tool(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool gives what was recorded, or what the list of differences says."""
    place = make_place(case["input"], tmp_path, monkeypatch)
    outcome = run_tool_case(place, create_edit_tool(environment=place.environment))
    check_tool_case(case, outcome, DIFFERENCES, rule=rule)
