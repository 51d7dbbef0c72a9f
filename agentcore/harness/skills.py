"""Skills (agentskills.io): folders with a `SKILL.md` that a model reads when a task fits its description.

A folder with a `SKILL.md` is a skill, and nothing below it is looked at. In the folder that is searched, each `.md` file is a skill
too. Hidden files and folders, `node_modules` and what ignore files name are passed over. Links are followed, but no real folder is
searched twice.
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from xml.sax.saxutils import escape

from agentcore.errors import EnvironmentFileError
from agentcore.harness.resource_files import ResourceDiagnostic, ResourcePath, ResourcePaths, ResourceReader, path_list
from agentcore.tools.environment import ExecutionEnvironment, FileInfo
from agentcore.tools.ignore import IgnoreRules

SKILL_FILE = "SKILL.md"
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024


@dataclass
class Skill:
    """Instructions for a kind of task.

    `content` is the text of the file `file_path` without its front matter. With `disable_model_invocation` only the user can
    call it up: the model is not told of it.
    """

    name: str
    description: str
    content: str
    file_path: str
    disable_model_invocation: bool = False


@dataclass
class SourcedSkill:
    """A skill, and where it was loaded from, as the caller named it."""

    skill: Skill
    source: Any


@dataclass
class LoadedSkills:
    """What was found, in the order of the folders and of the paths in them, and what is wrong with some files."""

    skills: list[Skill] = field(default_factory=list)
    diagnostics: list[ResourceDiagnostic] = field(default_factory=list)


@dataclass
class LoadedSourcedSkills:
    """The same, each with its source."""

    skills: list[SourcedSkill] = field(default_factory=list)
    diagnostics: list[ResourceDiagnostic] = field(default_factory=list)


# --- loading ---------------------------------------------------------------------------------------------------------


def load_skills(environment: ExecutionEnvironment, dirs: ResourcePaths) -> LoadedSkills:
    """Load the skills of folders. A folder that is not there is passed over.

    Skills that miss a description or have unreadable front matter are left out with a diagnostic; other faults are reported
    only. Skills of one name are all there: `unique_skills` chooses among them.
    """
    made = LoadedSkills()
    for path in path_list(dirs):
        search = _Search(environment)
        search.run(path)
        made.skills += search.skills
        made.diagnostics += search.reader.diagnostics
    return made


def load_sourced_skills(environment: ExecutionEnvironment, inputs: Iterable[tuple[ResourcePath, Any]]) -> LoadedSourcedSkills:
    """Load skills from pairs of a folder and a source; each result carries its source."""
    made = LoadedSourcedSkills()
    for path, source in inputs:
        loaded = load_skills(environment, path)
        made.skills += [SourcedSkill(skill, source) for skill in loaded.skills]
        made.diagnostics += [replace(diagnostic, source=source) for diagnostic in loaded.diagnostics]
    return made


def unique_skills(environment: ExecutionEnvironment, skills: Iterable[Skill]) -> LoadedSkills:
    """Return the first skill of each name, with a diagnostic for each other one, unless it is the same file by another path.

    So the order decides: give the skills of the project before those of the user.
    """
    chosen: dict[str, Skill] = {}
    made = LoadedSkills()
    for skill in skills:
        winner = chosen.setdefault(skill.name, skill)
        if winner is skill:
            made.skills.append(skill)
        elif _real_path(environment, winner.file_path) != _real_path(environment, skill.file_path):
            text = f'the skill "{skill.name}" is hidden by the one in {winner.file_path}: rename one of them'
            made.diagnostics.append(ResourceDiagnostic("name_collision", text, skill.file_path))
    return made


def _real_path(environment: ExecutionEnvironment, path: str) -> str:
    try:
        return environment.canonical_path(path)
    except EnvironmentFileError:
        return path


class _Search:
    """Looks for the skills of one folder.

    Folders behind links come last, so that a folder that can be reached both ways is found under its own path.
    """

    def __init__(self, environment: ExecutionEnvironment) -> None:
        self.environment = environment
        self.reader = ResourceReader(environment)
        self.skills: list[Skill] = []
        self._root = ""
        self._seen: set[str] = set()  # real paths of the folders that were searched
        self._linked: deque[tuple[str, IgnoreRules]] = deque()

    def run(self, path: str) -> None:
        root = self.reader.find(path)
        if root is None or root.kind != "directory":
            return
        self._root = root.path
        self._enter(root.path, IgnoreRules())
        while self._linked:
            self._enter(*self._linked.popleft())
        self.skills.sort(key=lambda skill: skill.file_path.split("/"))
        self.reader.diagnostics.sort(key=lambda diagnostic: diagnostic.path.split("/"))

    def _enter(self, folder: str, rules: IgnoreRules) -> None:
        real = _real_path(self.environment, folder)
        if real in self._seen:
            return
        self._seen.add(real)
        rules = self.reader.rules_in(folder, rules)
        members = [found for found in self.reader.members(folder) if not self._is_passed_over(found[0], rules)]
        for member, _ in members:
            if member.name == SKILL_FILE and member.kind == "file":
                self._load(member.path, posixpath.basename(folder), posixpath.basename(folder))
                return
        for member, is_link in members:
            if member.kind == "directory" and is_link:
                self._linked.append((member.path, rules))
            elif member.kind == "directory":
                self._enter(member.path, rules)
            elif member.name.endswith(".md") and folder == self._root:
                self._load(member.path, member.name.removesuffix(".md"), posixpath.basename(folder))

    @staticmethod
    def _is_passed_over(member: FileInfo, rules: IgnoreRules) -> bool:
        if member.name.startswith(".") or member.name == "node_modules":
            return True
        return rules.ignores(member.path, is_directory=member.kind == "directory")

    def _load(self, path: str, default_name: str, folder_name: str) -> None:
        parts = self.reader.read(path)
        if parts is None:
            return
        front_matter, content = parts
        given = front_matter.get("name")
        name = given if isinstance(given, str) and given else default_name
        given = front_matter.get("description")
        description = given if isinstance(given, str) and given.strip() else ""
        if not description:
            self.reader.warn("invalid_metadata", "description is required", path)
        elif len(description) > MAX_DESCRIPTION_CHARS:
            text = f"description exceeds {MAX_DESCRIPTION_CHARS} characters ({len(description)})"
            self.reader.warn("invalid_metadata", text, path)
        for fault in _name_faults(name, default_name, folder_name):
            self.reader.warn("invalid_metadata", fault, path)
        if description:
            is_hidden = front_matter.get("disable-model-invocation") is True
            self.skills.append(Skill(name, description, content, path, is_hidden))


def _name_faults(name: str, default_name: str, folder_name: str) -> list[str]:
    faults: list[str] = []
    if name not in (default_name, folder_name):
        faults.append(f'name "{name}" does not match parent directory "{folder_name}"')
    if len(name) > MAX_NAME_CHARS:
        faults.append(f"name exceeds {MAX_NAME_CHARS} characters ({len(name)})")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        faults.append("name contains invalid characters (must be lowercase a-z, 0-9, hyphens only)")
    if name.startswith("-") or name.endswith("-"):
        faults.append("name must not start or end with a hyphen")
    if "--" in name:
        faults.append("name must not contain consecutive hyphens")
    return faults


# --- what a model reads ----------------------------------------------------------------------------------------------

_INTRODUCTION = """\
The following skills provide specialized instructions for specific tasks.
Read the full skill file when the task matches its description.
When a skill file references a relative path, resolve it against the skill directory \
(parent of SKILL.md / dirname of the path) and use that absolute path in tool commands."""


def format_skills_for_system_prompt(skills: Iterable[Skill]) -> str:
    """Return the block that tells a model which skills there are; empty where it may use none."""
    blocks = [
        f"  <skill>\n    <name>{_xml(skill.name)}</name>\n    <description>{_xml(skill.description)}</description>\n"
        f"    <location>{_xml(skill.file_path)}</location>\n  </skill>\n"
        for skill in skills
        if not skill.disable_model_invocation
    ]
    return f"{_INTRODUCTION}\n\n<available_skills>\n{''.join(blocks)}</available_skills>" if blocks else ""


def _xml(text: str) -> str:
    return escape(text, {'"': "&quot;", "'": "&apos;"})


def format_skill_invocation(skill: Skill, additional_instructions: str | None = None) -> str:
    """Return the prompt that calls a skill up: its text, and what the user wants with it."""
    folder = skill.file_path.rstrip("/").rpartition("/")[0] or "/"
    block = (
        f'<skill name="{skill.name}" location="{skill.file_path}">\n'
        f"References are relative to {folder}.\n\n{skill.content}\n</skill>"
    )
    return f"{block}\n\n{additional_instructions}" if additional_instructions else block
