"""The find tool: files and directories by name, without those that ignore files leave out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict

from agentcore.abort import AbortSignal
from agentcore.codec import OMIT_NONE, Json, nested
from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment
from agentcore.tools.ignore import rules_above, walk
from agentcore.tools.ls import check_limit, cut_output
from agentcore.tools.truncate import DEFAULT_MAX_BYTES, TruncationResult
from agentcore.tools.workspace import Workspace, raise_if_aborted

DEFAULT_LIMIT = 1000
NOTHING_FOUND = "No files found matching pattern"


class _FindToolRequired(TypedDict):
    pattern: str


class FindToolInput(_FindToolRequired, total=False):
    """The arguments of a call: the glob, the directory, and how many paths to show at most."""

    path: str
    limit: int


@dataclass
class FindToolDetails(Json):
    """What was left out: `result_limit_reached` is the limit if there was more, `truncation` the cut by bytes."""

    result_limit_reached: int | None = field(default=None, metadata=OMIT_NONE)
    truncation: TruncationResult | None = field(default=None, metadata=nested(TruncationResult, omit_none=True))


def create_find_tool(
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> AgentTool:
    """Make the tool `find`.

    Args:
        environment, cwd, root: Where it works (`agentcore.tools.workspace.Workspace`).
    """
    workspace = Workspace(environment, cwd, root)

    def execute(tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None) -> AgentToolResult:
        raise_if_aborted(signal)
        limit = check_limit(args.get("limit"), DEFAULT_LIMIT)
        matches = glob_matcher(args["pattern"])
        folder = search_folder(workspace, args.get("path"))
        rules = rules_above(workspace.environment, folder, workspace.top)
        found: list[str] = []
        shorten = workspace.shortener()
        prefix = folder.rstrip("/") + "/"
        for member in walk(workspace.environment, folder, rules, signal) if rules is not None else ():
            if matches(member.path[len(prefix) :]):
                if len(found) == limit:
                    notices = [f"{limit} results limit reached. Use a narrower pattern, or limit={2 * limit}"]
                    text, truncation = cut_output("\n".join(found), notices)
                    return AgentToolResult([TextContent(text)], FindToolDetails(limit, truncation))
                found.append(shorten(member.path) + ("/" if member.kind == "directory" else ""))
        if not found:
            return AgentToolResult([TextContent(NOTHING_FOUND)])
        text, truncation = cut_output("\n".join(found), [])
        return AgentToolResult([TextContent(text)], None if truncation is None else FindToolDetails(None, truncation))

    return AgentTool(
        name="find",
        label="find",
        description=(
            "Find files and directories by a glob. Hidden ones are found too; what .gitignore and .ignore files leave out is not. "
            f"Paths are relative to the working directory. At most {DEFAULT_LIMIT} or {DEFAULT_MAX_BYTES // 1024} KB of them."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pattern": {
                    "type": "string",
                    "description": "A glob: *.py for names anywhere below, src/**/*.py for paths; * ? [a-z] {a,b} **",
                },
                "path": {"type": "string", "description": "Where to look; by default the working directory"},
                "limit": {"type": "integer", "description": f"How many paths to show at most (default {DEFAULT_LIMIT})"},
            },
            "required": ["pattern"],
        },
        execute=execute,
    )


def search_folder(workspace: Workspace, path: str | None) -> str:
    """Return the absolute path of a directory to look through, all links followed.

    Raises:
        EnvironmentFileError: There is none (`not_found`, `not_directory`).
    """
    folder = workspace.environment.canonical_path(workspace.resolve(path or "."))
    if workspace.environment.file_info(folder).kind != "directory":
        raise EnvironmentFileError(f"{path} is not a directory: name one to look through", code="not_directory", path=folder)
    return folder


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a relative path fits a glob.

    Without a slash the glob is about the last part of the path, else about the whole of it. `*` and `?` stop at slashes, `**` does
    not, `[a-z]` and `[!a-z]` are classes, `{a,b}` is a choice, a backslash takes the next character as it is.

    Raises:
        ValueError: The glob is empty, or has a class or a choice that does not end.
    """
    if not pattern.strip("/"):
        raise ValueError("the pattern is empty: use a glob such as *.py")
    body = pattern.removeprefix("./").strip("/")
    try:
        compiled = re.compile(_regex_of_glob(body), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no glob: {error}; put a backslash before a special character") from error
    if "/" in body or pattern.startswith("/"):
        return lambda path: compiled.fullmatch(path) is not None
    return lambda path: compiled.fullmatch(path.rpartition("/")[2]) is not None


_GLOB_TOKEN = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[(!|\^)?(\]?[^\]/]*)\]|\\.|[{},]|.", re.DOTALL)


def _regex_of_glob(glob: str) -> str:
    parts: list[str] = []
    depth = 0
    for token in _GLOB_TOKEN.finditer(glob):
        text = token.group()
        if text == "**/":
            parts.append("(?:.*/)?" if token.start() == 0 or glob[token.start() - 1] in "/{," else "[^/]*/")
        elif text == "/**":
            parts.append("/.*")
        elif text in ("*", "**"):
            parts.append("[^/]*")
        elif text == "?":
            parts.append("[^/]")
        elif text == "[":
            raise ValueError(f"{glob!r} has a [ without a ]: put a backslash before it if it is meant as it is")
        elif text.startswith("["):
            members = token.group(2).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("&&", "&\\&")
            parts.append(f"(?!/)[{'^' if token.group(1) else ''}{members}]")
        elif text == "{":
            depth += 1
            parts.append("(?:")
        elif text == "}" and depth:
            depth -= 1
            parts.append(")")
        elif text == "," and depth:
            parts.append("|")
        else:
            parts.append(re.escape(text[-1]))
    if depth:
        raise ValueError(f"{glob!r} has a {{ without a }}: put a backslash before it if it is meant as it is")
    return "".join(parts)
