"""The grep tool: lines that match a pattern, in the files that ignore files do not leave out.

Where ripgrep is installed it picks the files, which saves reading all others; the lines come from Python's `re` either way, so the
result is the same. A pattern that ripgrep does not understand (it has no look-around), or understands otherwise, is searched for
without it. Python's `re` can take exponential time for patterns such as `(a+)+$`, and nothing can interrupt it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

from agentcore.abort import AbortSignal
from agentcore.codec import OMIT_NONE, Json, nested
from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment
from agentcore.tools.find import glob_matcher
from agentcore.tools.ignore import ALWAYS_IGNORED, IgnoreRules, enter_folder, rules_above, walk
from agentcore.tools.ls import check_limit, cut_output
from agentcore.tools.truncate import DEFAULT_MAX_BYTES, DEFAULT_MAX_LINE_CHARACTERS, TruncationResult, truncate_line
from agentcore.tools.workspace import ABORTED, MAX_FILE_BYTES, Workspace, raise_if_aborted

DEFAULT_LIMIT = 100
NOTHING_FOUND = "No matches found"
_BEFORE_MATCH = 100
"""Characters of a long line that are shown before a match."""

_RIPGREP_FLAGS = (
    "--files-with-matches", "--null", "--no-messages", "--no-config", "--color=never", "--hidden", "--text", "--crlf",
    "--no-require-git", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent",
)  # fmt: skip
"""So that ripgrep finds all files that the walk finds: what it finds beyond them is taken out afterwards."""

_MEANS_SOMETHING_ELSE = re.compile(r"\\[AZz<>]|\[\[|\[\^?:|&&|--|~~|\(\?(?!:|P<)")
"""What ripgrep reads in another way than Python: the ends of the text, sets of characters, flags."""


class _GrepToolRequired(TypedDict):
    pattern: str


class GrepToolInput(_GrepToolRequired, total=False):
    """The arguments of a call: what to look for, where, and how much to show."""

    path: str
    glob: str
    ignoreCase: bool
    literal: bool
    context: int
    limit: int


@dataclass
class GrepToolDetails(Json):
    """What was left out: `match_limit_reached` is the limit if there was more, `lines_truncated` whether long lines were cut."""

    match_limit_reached: int | None = field(default=None, metadata=OMIT_NONE)
    lines_truncated: bool | None = field(default=None, metadata=OMIT_NONE)
    truncation: TruncationResult | None = field(default=None, metadata=nested(TruncationResult, omit_none=True))


def create_grep_tool(
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    use_ripgrep: bool = True,
) -> AgentTool:
    """Make the tool `grep`.

    Args:
        environment, cwd, root: Where it works (`agentcore.tools.workspace.Workspace`).
        use_ripgrep: Whether ripgrep may pick the files, where it is installed on this machine.
    """
    workspace = Workspace(environment, cwd, root)

    def execute(tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None) -> AgentToolResult:
        raise_if_aborted(signal)
        search = _Search(workspace, args, signal, use_ripgrep)
        return search.result()

    return AgentTool(
        name="grep",
        label="grep",
        description=(
            "Search the lines of text files for a regular expression (Python's) or a text. What .gitignore and .ignore files leave "
            f"out is not searched. Gives path:line: text, at most {DEFAULT_LIMIT} matches or {DEFAULT_MAX_BYTES // 1024} KB; lines "
            f"are cut at {DEFAULT_MAX_LINE_CHARACTERS} characters."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The regular expression, or the text if literal is true"},
                "path": {"type": "string", "description": "A directory or a file; by default the working directory"},
                "glob": {"type": "string", "description": "Only files that fit this glob: *.py or src/**/*.py"},
                "ignoreCase": {"type": "boolean", "description": "Whether upper and lower case are the same (default false)"},
                "literal": {"type": "boolean", "description": "Whether the pattern is a text (default false)"},
                "context": {"type": "integer", "description": "Lines to show before and after each match (default 0)"},
                "limit": {"type": "integer", "description": f"How many matches to show at most (default {DEFAULT_LIMIT})"},
            },
            "required": ["pattern"],
        },
        execute=execute,
    )


class _Search:
    """One call: which files, which lines, how they are shown."""

    def __init__(self, workspace: Workspace, args: dict[str, Any], signal: AbortSignal | None, use_ripgrep: bool) -> None:
        self._environment = workspace.environment
        self._signal = signal
        self._use_ripgrep = use_ripgrep
        self._limit = check_limit(args.get("limit"), DEFAULT_LIMIT)
        self._context = args.get("context", 0)
        if self._context < 0:
            raise ValueError(f"context is {self._context}: it must be 0 or more, or be left out")
        self._text: str = args["pattern"]
        self._is_literal: bool = args.get("literal", False)
        self._ignores_case: bool = args.get("ignoreCase", False)
        self._regex = self._compile()
        self._fits: Callable[[str], bool] = glob_matcher(args["glob"]) if args.get("glob") else lambda path: True
        self._top = workspace.top
        self._shorten = workspace.shortener()
        # With a root the path is inside it, and stays there: links below are not followed.
        self._start = self._environment.canonical_path(workspace.resolve(args.get("path") or "."))
        self._is_any_line_cut = False
        self._known_rules: dict[str, IgnoreRules] = {}

    def _compile(self) -> re.Pattern[str]:
        if not self._text:
            raise ValueError("the pattern is empty: say what to look for")
        if "\n" in self._text:
            raise ValueError("the pattern has a line break, but lines are searched one by one: look for one of its lines")
        try:
            return re.compile(re.escape(self._text) if self._is_literal else self._text, re.IGNORECASE if self._ignores_case else 0)
        except re.error as error:
            raise ValueError(
                f"{self._text!r} is no regular expression: {error}; correct it, or set literal to look for the text itself"
            ) from error

    def result(self) -> AgentToolResult:
        shown: list[str] = []
        count = 0
        is_more = False
        for path in self._files():
            raise_if_aborted(self._signal)
            lines = self._read_lines(path)
            if lines is None:
                continue
            hits = [number for number, line in enumerate(lines) if self._regex.search(line)]
            is_more = count + len(hits) > self._limit
            hits = hits[: self._limit - count]
            if hits:
                if shown and self._context:
                    shown.append("--")
                shown += self._format(self._shorten(path), lines, hits)
                count += len(hits)
            if is_more:
                break
        if not count:
            return AgentToolResult([TextContent(NOTHING_FOUND)])
        notices = [f"{self._limit} matches limit reached. Use a narrower pattern, or limit={2 * self._limit}"] if is_more else []
        if self._is_any_line_cut:
            notices.append(f"Some lines are cut at {DEFAULT_MAX_LINE_CHARACTERS} characters. Use read to see them whole")
        text, truncation = cut_output("\n".join(shown), notices)
        details = GrepToolDetails(self._limit if is_more else None, self._is_any_line_cut or None, truncation)
        return AgentToolResult([TextContent(text)], None if details == GrepToolDetails() else details)

    def _format(self, path: str, lines: list[str], hits: list[int]) -> Iterator[str]:
        matched = set(hits)
        wanted = sorted(
            {near for hit in hits for near in range(max(hit - self._context, 0), min(hit + self._context + 1, len(lines)))}
        )
        previous = None
        for number in wanted:
            if previous is not None and number > previous + 1 and self._context:
                yield "--"
            previous = number
            text = self._cut(lines[number])
            yield f"{path}:{number + 1}: {text}" if number in matched else f"{path}-{number + 1}- {text}"

    def _cut(self, line: str) -> str:
        """Return a long line cut to what is around the match in it, or to its beginning."""
        if len(line) <= DEFAULT_MAX_LINE_CHARACTERS:
            return line
        self._is_any_line_cut = True
        match = self._regex.search(line)
        begin = 0 if match is None else max(match.start() - _BEFORE_MATCH, 0)
        return ("..." if begin else "") + truncate_line(line[begin:])[0]

    def _read_lines(self, path: str) -> list[str] | None:
        """Return the lines of a text file; None where it cannot be read, is too large, or holds a NUL byte."""
        try:
            if self._environment.file_info(path).size_bytes > MAX_FILE_BYTES:
                return None
            content = self._environment.read_binary_file(path, signal=self._signal)
        except EnvironmentFileError:
            raise_if_aborted(self._signal)
            return None
        if b"\0" in content:
            return None
        lines = content.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines]

    # Which files

    def _files(self) -> Iterable[str]:
        if self._environment.file_info(self._start).kind == "file":
            return [self._start]
        rules = rules_above(self._environment, self._start, self._top)
        if rules is None:
            return []
        picked = self._picked_by_ripgrep() if self._use_ripgrep else None
        if picked is None:
            found = (info.path for info in walk(self._environment, self._start, rules, self._signal) if info.kind == "file")
        else:
            found = (path for path in picked if self._is_wanted(path, rules))
        prefix = self._start.rstrip("/") + "/"
        return (path for path in found if self._fits(path[len(prefix) :]))

    def _is_wanted(self, path: str, rules: IgnoreRules) -> bool:
        """Whether the walk would come by this file."""
        folder = self._start
        steps = path[len(self._start.rstrip("/")) + 1 :].split("/")
        for index, name in enumerate(steps):
            rules = self._rules_in(folder, rules)
            folder = f"{folder.rstrip('/')}/{name}"
            is_directory = index < len(steps) - 1
            if (is_directory and name in ALWAYS_IGNORED) or rules.ignores(folder, is_directory=is_directory):
                return False
        return True

    def _rules_in(self, folder: str, above: IgnoreRules) -> IgnoreRules:
        if folder not in self._known_rules:
            self._known_rules[folder] = enter_folder(self._environment, folder, above)
        return self._known_rules[folder]

    def _picked_by_ripgrep(self) -> list[str] | None:
        """Return the files with matches, in the order of the walk; None where ripgrep is missing or refuses the pattern."""
        program = shutil.which("rg") if isinstance(self._environment, LocalEnvironment) else None
        if program is None or (not self._is_literal and _MEANS_SOMETHING_ELSE.search(self._text)):
            return None
        flags = [*_RIPGREP_FLAGS, *(["--fixed-strings"] if self._is_literal else []), *(["-i"] if self._ignores_case else [])]
        parts: list[bytes] = []
        command = shlex.join([program, *flags, f"--regexp={self._text}", "--", self._start])
        try:
            code = self._environment.run_command(
                command, lambda stream, data: parts.append(data) if stream == "stdout" else None, signal=self._signal
            )
        except EnvironmentFileError as error:
            if error.code == "aborted":
                raise_if_aborted(self._signal)
                raise EnvironmentFileError(ABORTED, code="aborted") from error
            return None
        if code not in (0, 1):
            return None
        paths = b"".join(parts).split(b"\0")[:-1]
        return sorted((os.fsdecode(path) for path in paths), key=lambda path: path.split("/"))
