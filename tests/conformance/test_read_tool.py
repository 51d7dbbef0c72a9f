"""Recorded cases of the read tool (read_tool.json), on real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcore.tools.images import ReadImageProcessorResult
from agentcore.tools.read import ReadToolOptions, create_read_tool
from tests.conformance.cases import Difference, case_params
from tests.conformance.tool_cases import Place, check_tool_case, make_place, run_tool_case

WHOLE = "lines are counted in whole numbers"


def _limit(limit: int) -> Difference:
    message = f"limit is {limit}: it must be 1 or more, or be left out"
    error = {"stage": "execute", "message": message, "files_after": "unchanged"}
    return Difference("a limit below 1 can only be a mistake", {"": {"error": error}})


def _not_whole(name: str, value: str) -> Difference:
    message = (
        f'Validation failed for tool "read":\n  - {name}: must be integer\n\nReceived arguments:\n'
        f'{{\n  "path": "a.txt",\n  "{name}": {value}\n}}'
    )
    return Difference(WHOLE, {"": {"error": {"stage": "validate", "message": message, "files_after": "unchanged"}}})


DIFFERENCES = {
    # quirk: offset and limit
    "limit 0": _limit(0),
    "negative limit": _limit(-2),
    "negative limit with offset": _limit(-1),
    "fractional offset": _not_whole("offset", "2.5"),
    "fractional limit": _not_whole("limit", "2.5"),
    "offset as a word is refused by validation": _not_whole("offset", '"nine"'),
    "null offset is coerced to 0": Difference(
        "null stands for what was not given",
        {"expected.content[0].text": "".join(f"line {number}\n" for number in range(1, 11))},
    ),
    # images
    "text beginning with GIF is taken for an image": Difference(
        "a GIF begins with GIF87a or GIF89a", {"expected.content": [{"type": "text", "text": "GIFT ideas\n"}]}
    ),
}


def _text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def rule(given: dict[str, Any], recorded: dict[str, Any], ours: dict[str, Any]) -> Difference | None:
    """A limit below 1 is refused, and so is half a line."""
    for name in ("offset", "limit"):
        value = given["args"].get(name)
        if isinstance(value, float) and not value.is_integer():
            received = json.dumps(given["args"], indent=2, ensure_ascii=False)
            message = f'Validation failed for tool "read":\n  - {name}: must be integer\n\nReceived arguments:\n{received}'
            return Difference(WHOLE, {"": {"error": {"stage": "validate", "message": message, "files_after": "unchanged"}}})
    content = given.get("files", {}).get(given["args"].get("path"))
    is_plain = {key for key, value in given["args"].items() if value is not None} == {"path"}
    if isinstance(content, str) and is_plain and ("limit" in given["args"] or "offset" in given["args"]):
        return Difference("null stands for what was not given", {"": {"expected": {**ours, "content": [_text(content)]}}})
    if isinstance(content, str) and content.startswith("GIF") and content[3:6] not in ("87a", "89a"):
        return Difference("a GIF begins with GIF87a or GIF89a", {"expected.content": [_text(content)]})
    limit = given["args"].get("limit", 1)
    return _limit(int(limit)) if isinstance(limit, (int, float)) and limit < 1 else None


def _options(place: Place) -> ReadToolOptions:
    given = place.input.get("options", {})
    assert set(given) <= {"autoResizeImages", "imageProcessor"}, f"unknown options of the read tool: {given}"
    auto_resize = given.get("autoResizeImages", True)
    answer = given.get("imageProcessor")
    if answer is None:
        return ReadToolOptions(auto_resize)

    def process(content: bytes, mime_type: str, options: ReadToolOptions) -> ReadImageProcessorResult:
        place.seen.setdefault("image_processor_calls", []).append(
            {"bytes": len(content), "mimeType": mime_type, "options": {"autoResizeImages": options.auto_resize_images}}
        )
        return ReadImageProcessorResult(
            ok=answer["ok"],
            data=answer.get("data", ""),
            mime_type=answer.get("mimeType", ""),
            hints=answer.get("hints", []),
            message=answer.get("message", ""),
        )

    return ReadToolOptions(auto_resize, process)


@pytest.mark.parametrize("case", case_params("read_tool.json"))
def test_read_tool(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool gives what was recorded, or what the list of differences says."""
    place = make_place(case["input"], tmp_path, monkeypatch)
    outcome = run_tool_case(place, create_read_tool(_options(place), environment=place.environment))
    check_tool_case(case, outcome, DIFFERENCES, rule=rule)
