"""Recorded cases of the write tool (write_tool.json), on real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcore.tools.write import create_write_tool
from tests.conformance.cases import Difference, case_params
from tests.conformance.tool_cases import check_tool_case, make_place, run_tool_case

BYTES = "the number is that of the bytes of the file"


def _bytes(count: int, path: str = "a.txt") -> Difference:
    return Difference(BYTES, {"expected.content[0].text": f"Successfully wrote {count} bytes to {path}"})


DIFFERENCES = {
    # quirk, utf16: sizes
    "two-byte characters": _bytes(6),
    "three-byte characters": _bytes(9),
    "four-byte characters": _bytes(8),
    "lone surrogate is written as a replacement character": _bytes(5),
    "BOM in the content is written": _bytes(7),
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


@pytest.mark.parametrize("case", case_params("write_tool.json"))
def test_write_tool(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool gives what was recorded, or what the list of differences says."""
    place = make_place(case["input"], tmp_path, monkeypatch)
    outcome = run_tool_case(place, create_write_tool(environment=place.environment))
    check_tool_case(case, outcome, DIFFERENCES)
