"""The write tool: a whole file, at every moment either the old or the new one."""

from __future__ import annotations

import os
import re
from typing import Any, TypedDict, cast

from agentcore.abort import AbortSignal
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment
from agentcore.tools.workspace import Workspace, raise_if_aborted

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class WriteToolInput(TypedDict):
    """The arguments of a call: the file, and all that it is to hold."""

    path: str
    content: str


def create_write_tool(
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> AgentTool:
    """Make the tool `write`. Missing directories are made; links are followed; mode and owner of an old file are kept.

    Args:
        environment, cwd, root: Where it works (`agentcore.tools.workspace.Workspace`).

    Example:
        >>> agent = Agent(tools=[create_write_tool(root="project")])
    """
    workspace = Workspace(environment, cwd, root)

    def execute(tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None) -> AgentToolResult:
        asked = cast(WriteToolInput, args)
        raise_if_aborted(signal)
        with workspace.changing(asked["path"]) as whole:
            raise_if_aborted(signal)
            data = encode_text(asked["content"])
            workspace.environment.write_file(whole, data, signal=signal)
        return AgentToolResult([TextContent(f"Successfully wrote {len(data)} bytes to {asked['path']}")])

    return AgentTool(
        name="write",
        label="write",
        description="Write a file, with this content and nothing else. An old file is overwritten, missing directories are made.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file: absolute, or relative to the working directory"},
                "content": {"type": "string", "description": "All that the file is to hold"},
            },
            "required": ["path", "content"],
        },
        execute=execute,
    )


def encode_text(text: str) -> bytes:
    """Return a model's text as UTF-8; half a surrogate pair, which has no such form, becomes U+FFFD."""
    return replace_half_pairs(text).encode("utf-8")


def replace_half_pairs(text: str) -> str:
    """Return a text with U+FFFD for every half of a surrogate pair."""
    return _HALF_PAIR.sub("\ufffd", text)
