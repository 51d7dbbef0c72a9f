"""The read tool: a file as text, by lines, or as an image."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, cast

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.codec import Json, nested
from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, ImageContent, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment
from agentcore.tools.files import clean_path, other_spellings
from agentcore.tools.images import ReadImageProcessorResult, detect_image_type, process_image
from agentcore.tools.truncate import DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, TruncationResult, format_size, truncate_head, utf8_length
from agentcore.tools.workspace import Workspace


class ReadImageProcessor(Protocol):
    """Makes an image fit for a model, in place of Pillow.

    Args:
        content: The bytes of the file.
        mime_type: `image/png`, `image/jpeg`, `image/gif`, `image/webp` or `image/bmp`, told by the content.
        options: Those of the tool; `auto_resize_images` says whether a large image is to be made smaller.

    Threads:
        Called on a tool worker, several times at once.
    """

    def __call__(self, content: bytes, mime_type: str, options: ReadToolOptions, /) -> ReadImageProcessorResult: ...


@dataclass
class ReadToolOptions:
    """How a read tool is made.

    `image_processor` None: images are scaled down and converted by Pillow where it is installed, else passed on as they are.
    """

    auto_resize_images: bool = True
    image_processor: ReadImageProcessor | None = None


class _ReadToolRequired(TypedDict):
    path: str


class ReadToolInput(_ReadToolRequired, total=False):
    """The arguments of a call: the file, its first line to read, counted from 1, and the number of lines."""

    offset: int
    limit: int


@dataclass
class ReadToolDetails(Json):
    """What was left out of a text; None if nothing was."""

    truncation: TruncationResult | None = field(default=None, metadata=nested(TruncationResult, omit_none=True))


def create_read_tool(
    options: ReadToolOptions | None = None,
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> AgentTool:
    """Make the tool `read`.

    Args:
        options: What becomes of images.
        environment, cwd, root: Where it works (`agentcore.tools.workspace.Workspace`).

    Example:
        >>> agent = Agent(tools=[create_read_tool(root="project")])
    """
    made = options or ReadToolOptions()
    process: Callable[[bytes, str, ReadToolOptions], ReadImageProcessorResult] | None = None
    if made.image_processor is not None:
        process = fit_callback(made.image_processor, ("content", "mime_type", "options"), what="image_processor")
    workspace = Workspace(environment, cwd, root)

    def execute(tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None) -> AgentToolResult:
        asked = cast(ReadToolInput, args)
        if asked.get("limit", 1) < 1:
            raise ValueError(f"limit is {asked['limit']}: it must be 1 or more, or be left out")
        content = _read(workspace, asked["path"], signal)
        mime_type = detect_image_type(content)
        if mime_type is not None:
            if process is not None:
                return _image_result(mime_type, process(content, mime_type, made))
            return _image_result(mime_type, process_image(content, mime_type, auto_resize=made.auto_resize_images))
        return _text_result(content.decode("utf-8", "replace").removeprefix("\ufeff"), asked)

    return AgentTool(
        name="read",
        label="read",
        description=(
            f"Read a file. Text comes as it is, at most {DEFAULT_MAX_LINES} lines or {DEFAULT_MAX_BYTES // 1024} KB at once: go on "
            "with offset where the result says so. Images (PNG, JPEG, GIF, WebP, BMP) come as images."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file: absolute, or relative to the working directory"},
                "offset": {"type": "integer", "description": "The first line to read, counted from 1"},
                "limit": {"type": "integer", "description": "How many lines to read"},
            },
            "required": ["path"],
        },
        execute=execute,
    )


def _read(workspace: Workspace, path: str, signal: AbortSignal | None) -> bytes:
    try:
        return workspace.read(workspace.resolve(path), signal)
    except EnvironmentFileError as error:
        if error.code != "not_found":
            raise
        whole = workspace.environment.absolute_path(clean_path(path))
        for name in other_spellings(whole):
            if workspace.environment.exists(name):
                return workspace.read(workspace.check(name, shown=path), signal)
        raise


def _image_result(mime_type: str, made: ReadImageProcessorResult) -> AgentToolResult:
    if not made.ok:
        return AgentToolResult([TextContent(f"Read image file [{mime_type}]\n{made.message}")])
    text = "\n".join([f"Read image file [{made.mime_type}]", *made.hints])
    return AgentToolResult([TextContent(text), ImageContent(made.data, made.mime_type)])


def _text_result(text: str, asked: ReadToolInput) -> AgentToolResult:
    """Return the lines asked for. The piece after a final line feed counts as a line, as it does for `offset`."""
    first = max(asked.get("offset", 1), 1)
    total = text.count("\n") + 1
    if first > total:
        raise ValueError(f"Offset {first} is beyond end of file ({total} lines total)")
    begin = _line_start(text, first - 1)
    last = min(first - 1 + asked["limit"], total) if "limit" in asked else total
    end = len(text) if last == total else _line_start(text, last, begin, first - 1) - 1
    cut = truncate_head(text[begin:end])
    if cut.first_line_exceeds_limit:
        size = format_size(utf8_length(text[begin:end].partition("\n")[0]))
        notice = (
            f"[Line {first} is {size}, exceeds {format_size(DEFAULT_MAX_BYTES)} limit. Use bash: sed -n '{first}p' "
            f"{_quote(asked['path'])} | head -c {DEFAULT_MAX_BYTES}]"
        )
        return AgentToolResult([TextContent(notice)], ReadToolDetails(cut))
    if cut.truncated:
        shown = first + cut.output_lines - 1
        limit = f" ({format_size(DEFAULT_MAX_BYTES)} limit)" if cut.truncated_by == "bytes" else ""
        notice = f"\n\n[Showing lines {first}-{shown} of {total}{limit}. Use offset={shown + 1} to continue.]"
        return AgentToolResult([TextContent(cut.content + notice)], ReadToolDetails(cut))
    if last < total:
        notice = f"\n\n[{total - last} more lines in file. Use offset={last + 1} to continue.]"
        return AgentToolResult([TextContent(cut.content + notice)])
    return AgentToolResult([TextContent(cut.content)])


def _quote(path: str) -> str:
    """Return a path as one word of a shell command, in which `~/` still means the home directory."""
    return "~/" + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)


def _line_start(text: str, number: int, position: int = 0, known: int = 0) -> int:
    """Return where line `number`, counted from 0, begins; line `known` begins at `position`."""
    for _ in range(number - known):
        position = text.index("\n", position) + 1
    return position
