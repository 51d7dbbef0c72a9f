"""Partial and nearly right JSON behaves as recorded, but for a listed few."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agentcore.llm.partial_json import parse_json_with_repair, parse_streaming_json, repair_json
from tests.conformance.cases import case_params, check, expand

_BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|u[0-9a-fA-F]{0,3}$|$)|\\')


def escaped(text: str) -> str:
    """Write a JSON text with its raw line breaks, and its backslashes that begin no escape, as they should have been written."""
    text = _BAD_ESCAPE.sub(lambda match: match[0] if len(match[0]) > 1 or match.end() == len(text) else "\\\\", text)
    return re.sub(r"[\n\r\t]", lambda match: json.dumps(match[0])[1:-1], text)


def without_halves(value: Any) -> Any:
    """Leave the halves of surrogate pairs out: no value of ours ever holds one."""
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "", value)
    if isinstance(value, list):
        return [without_halves(member) for member in value]
    return {key: without_halves(member) for key, member in value.items()} if isinstance(value, dict) else value


def our_expectation(given: dict[str, Any], recorded: Any) -> Any:
    """Return the recorded value, but for two rules.

    - What could be read of a string with a raw line break or a bad escape is kept, as of the text in which these are written well;
      the reference loses it until the text is complete.
    - No value ever holds half of a surrogate pair.
    """
    if not given["fn"].startswith("parseStreamingJson"):
        return recorded
    if recorded == {} and "text" in given and escaped(given["text"]) != given["text"]:
        return parse_streaming_json(escaped(given["text"]))
    return without_halves(recorded)


@pytest.mark.parametrize("case", case_params("validation.json", lambda case: case["input"]["fn"].startswith(("parse", "repair"))))
def test_partial_json_reads_as_recorded(case: dict[str, Any]) -> None:
    """A text gives the recorded value, or the recorded failure."""
    given = expand(case["input"])
    if "error" in case:
        with pytest.raises(ValueError):
            parse_json_with_repair(given["text"])
        return
    if given["fn"] == "parseStreamingJson_prefixes":
        document = given["document"]
        result: Any = [parse_streaming_json(document[:end]) for end in range(len(document) + 1)]
    else:
        functions = {
            "parseStreamingJson": parse_streaming_json,
            "parseJsonWithRepair": parse_json_with_repair,
            "repairJson": repair_json,
        }
        result = functions[given["fn"]](given["text"])
    check(our_expectation(given, case["expected"]), result)


@pytest.mark.parametrize(
    ("text", "well_written"),
    [
        ('{"a":"x\ny', '{"a":"x\\ny'),
        ('{"a":"C:\\dir', '{"a":"C:\\\\dir'),
        ('{"a":"\\u00zz"}', '{"a":"\\\\u00zz"}'),
        ('{"a":"\\n"}', '{"a":"\\n"}'),
    ],
)
def test_what_well_written_means(text: str, well_written: str) -> None:
    """The rule's own reading of a text escapes what should be, and nothing else."""
    assert escaped(text) == well_written
