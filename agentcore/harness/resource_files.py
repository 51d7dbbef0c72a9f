"""What skills and prompt templates share: walking folders, front matter, and what is said of files that are not as they should be.

Front matter is YAML between two lines of `---` at the top of a file, by the core schema of YAML 1.2: `yes`, `on` and dates are
texts, `017` is a number, and a key that is given twice is an error. Needs PyYAML, which is imported with the first front matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from agentcore.errors import EnvironmentFileError
from agentcore.tools.environment import ExecutionEnvironment, FileInfo
from agentcore.tools.ignore import IgnoreRules, enter_folder

RESOURCE_IGNORE_FILES = (".gitignore", ".ignore", ".fdignore")

ResourcePath = Union[str, "os.PathLike[str]"]
"""Where a skill or a template is looked for."""

ResourcePaths = Union[ResourcePath, Iterable[ResourcePath]]
"""One such path, or several."""

DiagnosticCode = Literal[
    "file_info_failed", "list_failed", "read_failed", "parse_failed", "invalid_metadata", "name_collision"
]  # fmt: skip


@dataclass(frozen=True)
class ResourceDiagnostic:
    """What is wrong with a file, and how that showed. `source` is where it was loaded from, as the caller named it."""

    code: DiagnosticCode
    message: str
    path: str
    source: Any = None
    type: Literal["warning"] = "warning"


def path_list(paths: ResourcePaths) -> list[str]:
    """Return one path, or several, as a list of texts."""
    return [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]


# --- front matter ----------------------------------------------------------------------------------------------------


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter of a text and the rest of it, with line breaks as LF.

    The rest is trimmed where there is a front matter. One that is no mapping counts as empty, one without an end as none.

    Raises:
        ValueError: The front matter is no YAML. The text says where and why.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    opening = re.match(r"---[ \t]*(?=\n)", text)
    end = text.find("\n---", opening.end()) if opening else -1
    if opening is None or end == -1:
        return {}, text
    # What stands behind the closing dashes belongs to the rest, as in the reference.
    return parse_yaml(text[opening.end() + 1 : end + 1]), text[end + 4 :].strip()


def parse_yaml(text: str) -> dict[str, Any]:
    """Return a YAML mapping; anything else is an empty one.

    Raises:
        ValueError: The text is no YAML. The error says where and why.
    """
    import yaml

    try:
        parsed = yaml.load(text, Loader=_core_loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ValueError(f"{where}{getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return parsed if isinstance(parsed, dict) else {}


_loader: Any = None


def _core_loader() -> Any:
    """Return a loader for the core schema of YAML 1.2; PyYAML's own are for YAML 1.1."""
    global _loader
    if _loader is not None:
        return _loader
    import yaml

    class CoreLoader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key_node, value_node in node.value:
                key = self.construct_object(key_node, deep=True)
                try:
                    is_known = key in made
                except TypeError:
                    raise yaml.constructor.ConstructorError(None, None, "a key must be a text", key_node.start_mark) from None
                if is_known:
                    raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is there twice", key_node.start_mark)
                made[key] = self.construct_object(value_node, deep=True)
            return made

        def construct_whole_mapping(self, node: Any) -> dict[Any, Any]:
            return self.construct_mapping(node, deep=True)

        def construct_by_shape(self, node: Any) -> Any:
            if isinstance(node, yaml.ScalarNode):
                return node.value
            return self.construct_mapping(node) if isinstance(node, yaml.MappingNode) else self.construct_sequence(node, deep=True)

        def construct_number(self, node: Any) -> int | float:
            text = node.value.lower().replace(".inf", "inf").replace(".nan", "nan")
            base = 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10
            try:
                return int(text, base)
            except ValueError:
                return float(text)

    CoreLoader.yaml_implicit_resolvers = {}
    for tag, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
        (
            "float",
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            list("-+.0123456789"),
        ),
    ):
        CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)
    CoreLoader.add_constructor("tag:yaml.org,2002:map", CoreLoader.construct_whole_mapping)
    CoreLoader.add_constructor("tag:yaml.org,2002:int", CoreLoader.construct_number)
    CoreLoader.add_constructor("tag:yaml.org,2002:float", CoreLoader.construct_number)
    CoreLoader.add_constructor(None, CoreLoader.construct_by_shape)
    _loader = CoreLoader
    return CoreLoader


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass
class ResourceReader:
    """Reads files through an environment; what goes wrong becomes a diagnostic."""

    environment: ExecutionEnvironment
    diagnostics: list[ResourceDiagnostic] = field(default_factory=list)

    def warn(self, code: DiagnosticCode, message: str, path: str) -> None:
        """Add a diagnostic."""
        self.diagnostics.append(ResourceDiagnostic(code, message, path))

    def find(self, path: str) -> FileInfo | None:
        """Return what a path leads to, links followed, under its own name; None, silently, where it leads to nothing."""
        try:
            found = self.environment.file_info(path)
            return self.follow(found) if found.kind == "symlink" else found
        except EnvironmentFileError as error:
            if error.code != "not_found":
                self.warn("file_info_failed", str(error), path)
            return None

    def follow(self, link: FileInfo) -> FileInfo | None:
        """Return the link as what it leads to; None, silently, where it leads to nothing."""
        try:
            target = self.environment.file_info(self.environment.canonical_path(link.path))
        except EnvironmentFileError as error:
            if error.code != "not_found":
                self.warn("file_info_failed", str(error), link.path)
            return None
        return FileInfo(link.name, link.path, target.kind, target.size_bytes, target.modified_ms)

    def members(self, folder: str) -> list[tuple[FileInfo, bool]]:
        """Return the members of a folder, sorted by name, and whether each is a link.

        A link stands for what it leads to; a broken one is left out.
        """
        try:
            listed = self.environment.list_dir(folder)
        except EnvironmentFileError as error:
            self.warn("list_failed", str(error), folder)
            return []
        found: list[tuple[FileInfo, bool]] = []
        for member in listed:
            is_link = member.kind == "symlink"
            target = self.follow(member) if is_link else member
            if target is not None:
                found.append((target, is_link))
        return found

    def read(self, path: str) -> tuple[dict[str, Any], str] | None:
        """Return the front matter and the rest of a file; None, with a diagnostic, where that is not possible."""
        try:
            return split_front_matter(self.environment.read_text_file(path))
        except EnvironmentFileError as error:
            self.warn("read_failed", str(error), path)
        except ValueError as error:
            self.warn("parse_failed", f"the front matter is no YAML: {error}", path)
        return None

    def rules_in(self, folder: str, rules: IgnoreRules) -> IgnoreRules:
        """Return the ignore rules that hold in a folder, `rules` being those of the folder above."""
        return enter_folder(self.environment, folder, rules, RESOURCE_IGNORE_FILES)
