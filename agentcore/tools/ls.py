"""The ls tool: what is in a directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, TypedDict

from agentcore.abort import AbortSignal
from agentcore.codec import OMIT_NONE, Json, nested
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment, FileInfo
from agentcore.tools.truncate import DEFAULT_MAX_BYTES, TruncationResult, format_size, truncate_head
from agentcore.tools.workspace import Workspace, raise_if_aborted
from agentcore.tools.write import replace_half_pairs

DEFAULT_LIMIT = 500


class LsToolInput(TypedDict, total=False):
    """The arguments of a call: the directory, and how many members to show at most."""

    path: str
    limit: int


@dataclass
class LsToolDetails(Json):
    """What was left out: `entry_limit_reached` is the limit if there were more members, `truncation` the cut by bytes."""

    entry_limit_reached: int | None = field(default=None, metadata=OMIT_NONE)
    truncation: TruncationResult | None = field(default=None, metadata=nested(TruncationResult, omit_none=True))


def create_ls_tool(
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> AgentTool:
    """Make the tool `ls`. Hidden and ignored members are shown too.

    Args:
        environment, cwd, root: Where it works (`agentcore.tools.workspace.Workspace`).
    """
    workspace = Workspace(environment, cwd, root)

    def execute(tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None) -> AgentToolResult:
        raise_if_aborted(signal)
        limit = check_limit(args.get("limit"), DEFAULT_LIMIT)
        listed = workspace.environment.list_dir(workspace.resolve(args.get("path") or "."), signal=signal)
        names = sorted(map(_shown, listed), key=lambda name: (name.casefold(), name))
        if not names:
            return AgentToolResult([TextContent("(empty directory)")])
        reached = limit if len(names) > limit else None
        notices = [f"{len(names) - limit} more entries. Use limit={len(names)} to see all"] if reached else []
        text, truncation = cut_output("\n".join(names[:limit]), notices)
        details = LsToolDetails(reached, truncation) if reached or truncation else None
        return AgentToolResult([TextContent(text)], details)

    return AgentTool(
        name="ls",
        label="ls",
        description=(
            "List a directory, sorted by name, hidden members too. Directories end with a slash, links with an at sign. At most "
            f"{DEFAULT_LIMIT} entries or {DEFAULT_MAX_BYTES // 1024} KB are shown."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The directory; by default the working directory"},
                "limit": {"type": "integer", "description": f"How many entries to show at most (default {DEFAULT_LIMIT})"},
            },
        },
        execute=execute,
    )


def _shown(member: FileInfo) -> str:
    return member.name + {"directory": "/", "symlink": "@", "file": ""}[member.kind]


def check_limit(limit: int | None, default: int) -> int:
    """Return the limit that holds.

    Raises:
        ValueError: It is less than 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}: it must be 1 or more, or be left out")
    return default if limit is None else limit


def cut_output(text: str, notices: list[str]) -> tuple[str, TruncationResult | None]:
    """Return a listing cut to what a result may hold, with the notices below it; and the cut, if there was one.

    What a name has that is no UTF-8 is shown as U+FFFD: half a surrogate pair would spoil the request to a model.
    """
    cut = truncate_head(replace_half_pairs(text), max_lines=len(text) + 1)
    if cut.truncated:
        notices = [*notices, f"{format_size(DEFAULT_MAX_BYTES)} limit reached: {cut.output_lines} of {cut.total_lines} lines shown"]
    below = "\n\n[" + ". ".join(notices) + "]" if notices else ""
    return cut.content + below, cut if cut.truncated else None
