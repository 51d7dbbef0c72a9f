"""Partial and nearly right JSON behaves as recorded, but for a listed few."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.llm.partial_json import parse_json_with_repair, parse_streaming_json, repair_json
from tests.conformance.cases import Difference, case_params, check, expand, with_difference

_KEPT = "what could be read of an unfinished string is kept; the reference loses it until the text is complete"
_PAIRS = "no value ever holds half of a surrogate pair"
DIFFERENCES = {
    # kept instead of lost
    "streaming: raw newline in an unfinished string": Difference(_KEPT, {"": {"a": "line1\nli"}}),
    "streaming: bad escape in an unfinished string": Difference(_KEPT, {"": {"p": "C:\\dir\\qfi"}}),
    "streaming: bad unicode escape": Difference("an escape that is none is taken as it stands", {"": {"p": "\\u00zz!"}}),
    # surrogates
    "streaming: half surrogate pair": Difference(_PAIRS, {"": {"p": ""}}),
    "prefixes: escapes": Difference(_PAIRS, {f"[{n}].s": 'q"uote \\ back / é ' for n in range(38, 44)}),
    # numbers
    "streaming: big number": Difference("integers are exact", {"": {"a": 12345678901234567890}}),
}


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
    check(with_difference(case["expected"], DIFFERENCES.get(case["name"])), result)


def test_every_listed_difference_is_a_case() -> None:
    """The list names nothing that is not there."""
    names = {param.id for param in case_params("validation.json")}
    assert not names or set(DIFFERENCES) <= names
