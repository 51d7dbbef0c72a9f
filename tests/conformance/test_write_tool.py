"""Recorded cases of the write tool (write_tool.json), on real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcore.tools.write import create_write_tool
from tests.conformance.cases import Difference, case_params
from tests.conformance.tool_cases import check_tool_case, make_place, run_tool_case

BYTES = "the number is that of the bytes of the file"


DIFFERENCES = {
    # quirk: null
    "null content is coerced to the text null": Difference(
        "null is no content; the file stays as it is",
        {
            "": {
                "error": {
                    "stage": "validate",
                    "message": 'Validation failed for tool "write":\n  - content: must be string\n\nReceived arguments:\n'
                    '{\n  "path": "a.txt",\n  "content": null\n}',
                    "files_after": "unchanged",
                }
            }
        },
    ),
}


def rule(given: dict[str, Any], recorded: dict[str, Any], ours: dict[str, Any]) -> Difference | None:
    """Bytes are counted, where the reference counts the units of its strings; null is refused."""
    path, content = given["args"].get("path"), given["args"].get("content")
    if content is None and "content" in given["args"]:
        assert "error" in ours and ours["error"]["stage"] == "validate" and ours["error"]["files_after"] == "unchanged"
        return Difference("null is no content; the file stays as it is", {"": {"error": ours["error"]}})
    if not isinstance(content, str) or content.isascii() or "expected" not in recorded:
        return None
    size = len(content.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8"))
    return Difference(BYTES, {"expected.content[0].text": f"Successfully wrote {size} bytes to {path}"})


@pytest.mark.parametrize("case", case_params("write_tool.json"))
def test_write_tool(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool gives what was recorded, or what the list of differences says."""
    place = make_place(case["input"], tmp_path, monkeypatch)
    outcome = run_tool_case(place, create_write_tool(environment=place.environment))
    check_tool_case(case, outcome, DIFFERENCES, rule=rule)
