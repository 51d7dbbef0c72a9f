"""Prompt templates: Markdown files whose text, with arguments put in, is a prompt.

    $1, $2, …        one argument; empty where there is none
    $@, $ARGUMENTS   all of them, joined by blanks
    ${@:2}           those from the second on; ${@:2:3} three of them

All are replaced in one pass, so an argument that looks like a placeholder stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentcore.harness.resource_files import ResourceDiagnostic, ResourcePath, ResourcePaths, ResourceReader, path_list
from agentcore.tools.environment import ExecutionEnvironment

MAX_DESCRIPTION_CHARS = 60


@dataclass
class PromptTemplate:
    """A text with placeholders, and what it is for."""

    name: str
    content: str
    description: str = ""


@dataclass
class SourcedPromptTemplate:
    """A template, and where it was loaded from, as the caller named it."""

    prompt_template: PromptTemplate
    source: Any


@dataclass
class LoadedPromptTemplates:
    """What was found, in the order of the paths and of the names in a folder, and what is wrong with some files."""

    prompt_templates: list[PromptTemplate] = field(default_factory=list)
    diagnostics: list[ResourceDiagnostic] = field(default_factory=list)


@dataclass
class LoadedSourcedPromptTemplates:
    """The same, each with its source."""

    prompt_templates: list[SourcedPromptTemplate] = field(default_factory=list)
    diagnostics: list[ResourceDiagnostic] = field(default_factory=list)


def load_prompt_templates(environment: ExecutionEnvironment, paths: ResourcePaths) -> LoadedPromptTemplates:
    """Load templates from `.md` files and from folders, whose own `.md` files are taken (none further down).

    A template is named after its file. Its description is that of the front matter, else the beginning of its first line. A path
    that leads to nothing is passed over.
    """
    reader = ResourceReader(environment)
    found: list[PromptTemplate] = []
    for path in path_list(paths):
        there = reader.find(path)
        if there is None:
            continue
        members = [member for member, _ in reader.members(there.path)] if there.kind == "directory" else [there]
        for member in members:
            if member.kind == "file" and member.name.endswith(".md"):
                template = _load(reader, member.path, member.name.removesuffix(".md"))
                if template is not None:
                    found.append(template)
    return LoadedPromptTemplates(found, reader.diagnostics)


def load_sourced_prompt_templates(
    environment: ExecutionEnvironment, inputs: Iterable[tuple[ResourcePath, Any]]
) -> LoadedSourcedPromptTemplates:
    """Load templates from pairs of a path and a source; each result carries its source."""
    made = LoadedSourcedPromptTemplates()
    for path, source in inputs:
        loaded = load_prompt_templates(environment, path)
        made.prompt_templates += [SourcedPromptTemplate(template, source) for template in loaded.prompt_templates]
        made.diagnostics += [replace(diagnostic, source=source) for diagnostic in loaded.diagnostics]
    return made


def _load(reader: ResourceReader, path: str, name: str) -> PromptTemplate | None:
    parts = reader.read(path)
    if parts is None:
        return None
    front_matter, content = parts
    description = front_matter.get("description")
    if not isinstance(description, str) or not description:
        description = next((line for line in content.split("\n") if line.strip()), "")
        if len(description) > MAX_DESCRIPTION_CHARS:
            description = description[:MAX_DESCRIPTION_CHARS] + "..."
    return PromptTemplate(name, content, description)


# --- arguments -------------------------------------------------------------------------------------------------------

_PIECE = re.compile(r"""[^ \t"']+|"[^"]*"?|'[^']*'?|[ \t]+""")
_PLACEHOLDER = re.compile(r"\$\{@:([0-9]{1,9})(?::([0-9]{1,9}))?\}|\$([0-9]+)|\$ARGUMENTS|\$@")


def parse_command_args(text: str) -> list[str]:
    """Split a text at blanks and tabs into arguments; what stands in quotes stays together, and may be empty.

    A quote that is not closed goes on to the end. A backslash means nothing.
    """
    args: list[str] = []
    current: str | None = None
    for piece in _PIECE.findall(text):
        if piece[0] in " \t":
            if current is not None:
                args.append(current)
            current = None
        elif piece[0] in "\"'":
            is_closed = len(piece) > 1 and piece[-1] == piece[0]
            current = (current or "") + (piece[1:-1] if is_closed else piece[1:])
        else:
            current = (current or "") + piece
    return args if current is None else [*args, current]


def substitute_args(content: str, args: Sequence[str]) -> str:
    """Return a text with its placeholders replaced by arguments."""

    def replace_one(match: re.Match[str]) -> str:
        start, count, number = match.groups()
        if number is not None:
            digits = number.lstrip("0")
            index = int(digits) if digits and len(digits) < 10 else 0
            return args[index - 1] if 0 < index <= len(args) else ""
        if start is None:
            return " ".join(args)
        first = max(int(start) - 1, 0)
        return " ".join(args[first:] if count is None else args[first : first + int(count)])

    return _PLACEHOLDER.sub(replace_one, content)


def format_prompt_template_invocation(template: PromptTemplate, args: Sequence[str] = ()) -> str:
    """Return the prompt that a template makes of some arguments."""
    return substitute_args(template.content, args)
