"""The recorded cases of custom messages and their form for a model (`functions/messages.json`)."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.codec import decode_tagged, encode
from agentcore.custom_messages import (
    BashExecutionMessage,
    bash_execution_to_text,
    create_branch_summary_message,
    create_compaction_summary_message,
    create_custom_message,
)
from agentcore.messages import TextContent, content_text
from agentcore.transcript import convert_to_llm
from tests.conformance.cases import case_params, check, expand


@pytest.mark.parametrize("case", case_params("messages.json"))
def test_recorded(case: dict[str, Any]) -> None:
    """Each function gives what the reference gives; a content that is a string is one text block for us."""
    expected = _strings_as_blocks(case["expected"])
    if isinstance(expected, dict) and expected.get("timestamp") == {"$number": "NaN"}:
        expected["timestamp"] = 0  # a time that cannot be read: not a number would be written as null
    check(expected, call(**expand(case["input"])))


def call(fn: str, **given: Any) -> Any:
    """Call the function that a case names."""
    if fn == "convertToLlm":
        return [encode(message) for message in convert_to_llm([decode_tagged(raw) for raw in given["messages"]])]
    if fn == "bashExecutionToText":
        return bash_execution_to_text(BashExecutionMessage.from_dict(given["message"]))
    if fn == "createBranchSummaryMessage":
        return encode(create_branch_summary_message(given["summary"], given["fromId"], given["timestamp"]))
    if fn == "createCompactionSummaryMessage":
        return encode(create_compaction_summary_message(given["summary"], given["tokensBefore"], given["timestamp"]))
    if fn == "createCustomMessage":
        content = given["content"] if isinstance(given["content"], str) else list(map(decode_tagged, given["content"]))
        message = create_custom_message(given["customType"], content, given["display"], given.get("details"), given["timestamp"])
        return encode(message)
    if fn == "contentText":
        content = given["content"] if isinstance(given["content"], str) else list(map(decode_tagged, given["content"]))
        return content_text(content, given["separator"]) if "separator" in given else content_text(content)
    raise AssertionError(f"no function {fn!r} here: add it to the runner")


def _strings_as_blocks(expected: Any) -> Any:
    if isinstance(expected, list):
        return [_strings_as_blocks(member) for member in expected]
    if isinstance(expected, dict) and isinstance(expected.get("content"), str):
        return {**expected, "content": [encode(TextContent(expected["content"]))]}
    return expected
