"""Which files of a folder tree are to be left out: `.gitignore` and its relatives, and walking without them.

A rule holds in the folder of its file and below. Of all rules that fit a path the last one counts: those of a deeper folder come
after those of the folders above, and within a folder the files come in the order of their names' list. What lies in an ignored
folder is ignored, whatever rules say otherwise. Needs `pathspec`, which is imported with the first ignore file found.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentcore.abort import AbortSignal
from agentcore.errors import EnvironmentFileError
from agentcore.tools.environment import ExecutionEnvironment, FileInfo
from agentcore.tools.workspace import raise_if_aborted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
"""Names of the files with rules; a later one overrules an earlier one."""

ALWAYS_IGNORED = frozenset({".git", ".hg", ".jj", ".svn"})
"""Folders of version control, which no tool lists or searches."""


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that hold in one folder: its own, and those of the folders above.

    `layers` are the ignore files that count, those that decide first coming first, each with its folder.
    """

    layers: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def with_rules(self, folder: str, text: str) -> IgnoreRules:
        """Return these rules and those of the ignore file `text` in `folder`, which decide first."""
        from pathspec import GitIgnoreSpec

        lines = text.removeprefix("\ufeff").split("\n")
        return IgnoreRules(((folder, GitIgnoreSpec.from_lines(line.removesuffix("\r") for line in lines)), *self.layers))

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether the rules leave out the file or folder at the absolute `path`; those of folders above it are not asked."""
        for folder, spec in self.layers:
            relative = path[len(folder.rstrip("/")) + 1 :]
            decision = spec.check_file(relative + "/" if is_directory else relative).include
            if decision is not None:
                return decision
        return False


def enter_folder(
    environment: ExecutionEnvironment, folder: str, rules: IgnoreRules, names: Sequence[str] = IGNORE_FILES
) -> IgnoreRules:
    """Return the rules that hold in `folder`, `rules` being those of the folder above it. What cannot be read is no rule."""
    for name in names:
        path = posixpath.join(folder, name)
        try:
            if environment.file_info(path).kind == "file":
                rules = rules.with_rules(folder, environment.read_text_file(path))
        except EnvironmentFileError:
            continue
    return rules


def rules_above(environment: ExecutionEnvironment, folder: str, top: str) -> IgnoreRules | None:
    """Return the rules that hold for `folder` by the folders from `top` down to the one above it.

    None if they leave `folder` out. Without effect where `folder` does not lie below `top`.
    """
    rules = IgnoreRules()
    if not folder.startswith(top.rstrip("/") + "/"):
        return rules
    current = top
    for name in folder[len(top.rstrip("/")) + 1 :].split("/"):
        rules = enter_folder(environment, current, rules)
        current = posixpath.join(current, name)
        if rules.ignores(current, is_directory=True):
            return None
    return rules


def walk(environment: ExecutionEnvironment, folder: str, rules: IgnoreRules, signal: AbortSignal | None) -> Iterator[FileInfo]:
    """Yield all that lies in `folder` and below and is not ignored: a folder before what is in it, all sorted by name.

    Links are yielded and not followed. A folder below that cannot be read is passed over.

    Raises:
        AgentAbortedError: The signal is set.
        EnvironmentFileError: `folder` itself cannot be read.
    """
    open_folders = [_members(environment, folder, rules)]
    while open_folders:
        raise_if_aborted(signal)
        members, inner = open_folders[-1]
        found = next(members, None)
        if found is None:
            open_folders.pop()
            continue
        yield found
        if found.kind == "directory":
            try:
                open_folders.append(_members(environment, found.path, inner))
            except EnvironmentFileError:
                continue


def _members(environment: ExecutionEnvironment, folder: str, rules: IgnoreRules) -> tuple[Iterator[FileInfo], IgnoreRules]:
    listed = environment.list_dir(folder)
    names = {info.name for info in listed if info.kind == "file"}
    inner = enter_folder(environment, folder, rules, [name for name in IGNORE_FILES if name in names])
    return (info for info in listed if not is_ignored(info, inner)), inner


def is_ignored(found: FileInfo, rules: IgnoreRules) -> bool:
    """Whether a member of a folder is left out by the rules of that folder, or is a folder of version control."""
    is_directory = found.kind == "directory"
    return (is_directory and found.name in ALWAYS_IGNORED) or rules.ignores(found.path, is_directory=is_directory)
