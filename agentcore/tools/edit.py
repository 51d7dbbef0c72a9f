"""The edit tool: replaces texts of a file, each of which must be there once, and shows what changed.

Bytes outside of the replaced ranges stay as they are, whatever they are: the byte order mark, mixed line ends, what is not UTF-8.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

from agentcore.abort import AbortSignal
from agentcore.codec import OMIT_NONE, Json
from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment
from agentcore.tools.text_edits import (
    TextEdit,
    apply_edits,
    generate_diff_string,
    generate_unified_patch,
    normalize_to_lf,
    strip_bom,
)
from agentcore.tools.workspace import Workspace, raise_if_aborted
from agentcore.tools.write import replace_half_pairs


class EditToolReplacement(TypedDict):
    """One replacement: a text that occurs once, and what is to be in its place."""

    oldText: str
    newText: str


class EditToolInput(TypedDict):
    """The arguments of a call: the file, and the replacements, which all refer to the file as it is before the first."""

    path: str
    edits: list[EditToolReplacement]


@dataclass
class EditToolDetails(Json):
    """What changed: `diff` for people, with line numbers; `patch` as a unified patch; the number of the first changed line."""

    diff: str
    patch: str
    first_changed_line: int | None = field(default=None, metadata=OMIT_NONE)


def create_edit_tool(
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> AgentTool:
    """Make the tool `edit`. Several edits of one file take turns, in the order of the calls.

    Args:
        environment, cwd, root: Where it works (`agentcore.tools.workspace.Workspace`).

    Example:
        >>> agent = Agent(tools=[create_read_tool(root="project"), create_edit_tool(root="project")])
    """
    workspace = Workspace(environment, cwd, root)

    def execute(tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None) -> AgentToolResult:
        asked = cast(EditToolInput, args)
        path = asked["path"]
        edits = [TextEdit(replace_half_pairs(one["oldText"]), replace_half_pairs(one["newText"])) for one in asked["edits"]]
        raise_if_aborted(signal)
        if not edits:
            raise ValueError("Edit tool input is invalid. edits must contain at least one replacement.")
        with workspace.changing(path) as whole:
            old, new = _edit_file(workspace, whole, path, edits, signal)
        diff, first_changed_line = generate_diff_string(old, new)
        details = EditToolDetails(diff, generate_unified_patch(path, old, new), first_changed_line)
        return AgentToolResult([TextContent(f"Successfully replaced {len(edits)} block(s) in {path}.")], details)

    return AgentTool(
        name="edit",
        label="edit",
        description=(
            "Change parts of a file by replacing exact texts. Each oldText must occur once in the file as it is now, and no two "
            "may overlap: take as many lines as it needs to be unique, and no more. Make all changes of one file in one call."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file: absolute, or relative to the working directory"},
                "edits": {
                    "type": "array",
                    "description": "The replacements; each is looked for in the file as it is before the first",
                    "items": {
                        "type": "object",
                        "properties": {
                            "oldText": {"type": "string", "description": "What is there now, exactly, with blanks and line breaks"},
                            "newText": {"type": "string", "description": "What is to be there; empty to delete"},
                        },
                        "required": ["oldText", "newText"],
                    },
                },
            },
            "required": ["path", "edits"],
        },
        execute=execute,
        prepare_arguments=prepare_edit_arguments,
    )


def prepare_edit_arguments(arguments: Any) -> Any:
    """Return the arguments in today's form, where a model uses another one: `edits` as JSON text or as one object, or one pair
    of `oldText` and `newText` beside it.
    """
    if not isinstance(arguments, dict):
        return arguments
    made = dict(arguments)
    edits = made.get("edits")
    if isinstance(edits, str):
        try:
            parsed = json.loads(edits)
        except ValueError:
            parsed = None
        if isinstance(parsed, list):
            made["edits"] = edits = parsed
    elif isinstance(edits, dict):
        made["edits"] = edits = [edits]
    if isinstance(made.get("oldText"), str) and isinstance(made.get("newText"), str):
        pair = {"oldText": made.pop("oldText"), "newText": made.pop("newText")}
        made["edits"] = [*(edits if isinstance(edits, list) else []), pair]
    return arguments if made == arguments else made


def _edit_file(
    workspace: Workspace, whole: str, shown_path: str, edits: list[TextEdit], signal: AbortSignal | None
) -> tuple[str, str]:
    """Edit the file; returns the texts before and after, as they are to be shown."""
    raise_if_aborted(signal)
    try:
        if workspace.environment.file_info(whole).kind == "directory":
            raise EnvironmentFileError(f"Could not edit file: {shown_path}. Path is not a file.", code="is_directory", path=whole)
        # The bytes that are no UTF-8 become halves of surrogate pairs, and those the same bytes again.
        old = workspace.read(whole, signal).decode("utf-8", "surrogateescape")
    except EnvironmentFileError as error:
        if error.code in ("permission_denied", "not_found", "is_directory") and not str(error).startswith("Could not"):
            text = f"Could not edit file: {shown_path}. Error code: {error.code}."
            raise EnvironmentFileError(text, code=error.code, path=error.path) from error
        raise
    bom, old_text = strip_bom(old)
    new_text = apply_edits(old_text, edits, shown_path)
    raise_if_aborted(signal)
    workspace.environment.write_file(whole, (bom + new_text).encode("utf-8", "surrogateescape"), signal=signal)
    return _shown(old_text), _shown(new_text)


def _shown(text: str) -> str:
    return normalize_to_lf(replace_half_pairs(text))
