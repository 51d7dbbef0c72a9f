"""Where skills and prompt templates differ from the recordings on purpose, as rules.

Each takes the input, the recording and a way to play another input in a fresh place, and gives what we expect.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pathspec

Given = dict[str, Any]
Play = Callable[[Given], Any]
IGNORE_FILES = (".gitignore", ".ignore", ".fdignore")
BOM = "\ufeff"


def arguments_are_literal(given: Given, recorded: Any, play: Play) -> Any:
    """C110: placeholders are replaced in one pass, and arguments are put in as they are."""
    arguments = given.get("args") or []
    if given["fn"] not in ("substituteArgs", "formatPromptTemplateInvocation") or not any("$" in one for one in arguments):
        return recorded
    content = given["content"] if "content" in given else given["template"]["content"]

    def value(match: re.Match[str]) -> str:
        if match["number"]:
            number = int(match["number"])
            return arguments[number - 1] if 0 < number <= len(arguments) else ""
        if match["start"]:
            start = max(int(match["start"]) - 1, 0)
            return " ".join(arguments[start : start + int(match["length"]) if match["length"] else None])
        return " ".join(arguments)

    pattern = r"\$(?P<number>\d+)|\$\{@:(?P<start>\d+)(?::(?P<length>\d+))?\}|\$ARGUMENTS|\$@"
    return re.sub(pattern, value, content)


def empty_arguments_are_meant(given: Given, recorded: Any, play: Play) -> Any:
    """An empty argument in quotes stands where a word in quotes would."""
    marked = re.sub(r"""(?<!\S)(?:""|'')(?!\S)""", '"\ue000"', given.get("text", ""))
    if given["fn"] != "parseCommandArgs" or marked == given["text"]:
        return recorded
    return ["" if one == "\ue000" else one for one in play({**given, "text": marked})]


def byte_order_mark_is_no_text(given: Given, recorded: Any, play: Play) -> Any:
    """A file gives what it gives without its mark."""
    return _as_with(given, recorded, play, lambda text: text.removeprefix(BOM))


def lengths_are_characters(given: Given, recorded: Any, play: Play) -> Any:
    """Texts are cut by code points: a character outside of the basic plane is cut as any other."""
    outside = sorted({char for text in _texts(given).values() for char in text if ord(char) > 0xFFFF})
    inside = {ord(char): chr(0xE000 + number) for number, char in enumerate(outside)}
    back = {ord(other): chr(char) for char, other in inside.items()}
    if not re.search("[\ud800-\udfff]", json.dumps(recorded, ensure_ascii=False)):
        return recorded  # no half of a character was recorded
    return _translated(_as_with(given, recorded, play, lambda text: text.translate(inside)), back)


def front_matter_begins_with_three_dashes(given: Given, recorded: Any, play: Play) -> Any:
    """A template that begins with more than a line of three dashes has no front matter: all of it is content."""
    texts = {posixpath.basename(name).removesuffix(".md"): text for name, text in _texts(given).items()}

    def fix(template: Any) -> Any:
        text = texts.get(template["name"], "")
        first = re.split(r"\r\n?|\n", text)[0]
        if not first.startswith("---") or first.rstrip() == "---":
            return template
        return {**template, "description": first if len(first) <= 60 else first[:60] + "...", "content": text}

    return _each(recorded, "promptTemplates", "promptTemplate", fix)


def lone_files_are_named_after_themselves(given: Given, recorded: Any, play: Play) -> Any:
    """A lone .md file without a name takes its own, so that two of them do not get one; and that name is right for it."""
    folders = {posixpath.normpath(folder.replace("<CWD>/", "")) for folder in _folders(given)}
    lone = {
        f"<CWD>/{name}": (posixpath.basename(name).removesuffix(".md"), bool(re.search(r"(?m)^name[ \t]*:", _head(text))))
        for name, text in _texts(given).items()
        if posixpath.dirname(name) in folders and name.endswith(".md") and posixpath.basename(name) != "SKILL.md"
    }

    def fix(skill: Any) -> Any:
        stem, has_name = lone.get(skill["filePath"], ("", True))
        return skill if has_name else {**skill, "name": stem}

    if not lone or given["fn"] not in ("loadSkills", "loadSourcedSkills"):
        return recorded
    told = [
        one
        for one in recorded["diagnostics"]
        if not one["message"].startswith(f'name "{lone.get(one["path"], ("",))[0]}" does not match')
    ]
    return {**_each(recorded, "skills", "skill", fix), "diagnostics": told}


def each_real_folder_once(given: Given, recorded: Any, play: Play) -> Any:
    """C109: what a link leads to is loaded once; a link back into its own folder is passed over in silence."""
    links = {name: content["symlink"] for name, content in (given.get("files") or {}).items() if _is_link(content)}
    loops = [
        name
        for name, target in links.items()
        if (name + "/").startswith(posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) + "/")
    ]
    if not loops or given["fn"] not in ("loadSkills", "loadSourcedSkills"):
        return recorded

    def is_looped(path: str) -> bool:
        return any((path + "/").startswith(f"<CWD>/{loop}/") for loop in loops)

    shown = [one for one in recorded["skills"] if not is_looped(one.get("skill", one)["filePath"])]
    return {"skills": shown, "diagnostics": [one for one in recorded["diagnostics"] if not is_looped(one["path"])]}


def ignore_files_are_git_s(given: Given, recorded: Any, play: Play) -> Any:
    """Ignore files mean what they mean to git: what comes is what the files that git does not ignore give alone."""
    texts = _texts(given)
    ignoring = {name: text for name, text in texts.items() if posixpath.basename(name) in IGNORE_FILES}
    if not ignoring or given["fn"] not in ("loadSkills", "loadSourcedSkills") or not any(map(_is_misread, ignoring.items())):
        return recorded
    left = {name: content for name, content in given["files"].items() if name not in ignoring and not _is_ignored(name, ignoring)}
    return play({**given, "files": left})


def _is_misread(file: tuple[str, str]) -> bool:
    """Whether an ignore file has what the reference reads in its own way: anchors, escapes, capitals, a place below the top."""
    name, text = file
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return name.count("/") > 1 or any(line.startswith(("/", "\\", "!/")) or line != line.lower() for line in lines)


def _is_ignored(name: str, ignoring: Mapping[str, str]) -> bool:
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        path, is_ignored = "/".join(parts[:depth]), False
        for place, text in sorted(
            ignoring.items(), key=lambda item: (item[0].count("/"), IGNORE_FILES.index(item[0].split("/")[-1]))
        ):
            folder = posixpath.dirname(place)
            if not path.startswith(folder + "/"):
                continue
            inner = path[len(folder) + 1 :] + ("/" if depth < len(parts) else "")
            found = pathspec.GitIgnoreSpec.from_lines(text.splitlines()).check_file(inner).include
            is_ignored = is_ignored if found is None else found
        if is_ignored:
            return True
    return False


RULES: tuple[Callable[[Given, Any, Play], Any], ...] = (
    arguments_are_literal,
    empty_arguments_are_meant,
    byte_order_mark_is_no_text,
    lengths_are_characters,
    front_matter_begins_with_three_dashes,
    lone_files_are_named_after_themselves,
    each_real_folder_once,
    ignore_files_are_git_s,
)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _texts(given: Given) -> dict[str, str]:
    return {name: content for name, content in (given.get("files") or {}).items() if isinstance(content, str)}


def _is_link(content: Any) -> bool:
    return isinstance(content, dict) and "symlink" in content


def _head(text: str) -> str:
    return text[3:].partition("\n---")[0] if text.startswith("---\n") else ""


def _folders(given: Given) -> Iterable[str]:
    dirs = given.get("dirs", [])
    sourced = [item["path"] for item in given.get("inputs", ())]
    return [*([dirs] if isinstance(dirs, str) else dirs), *sourced]


def _as_with(given: Given, recorded: Any, play: Play, change: Callable[[str], str]) -> Any:
    texts = {name: change(text) for name, text in _texts(given).items()}
    return recorded if texts == _texts(given) else play({**given, "files": {**given["files"], **texts}})


def _translated(value: Any, table: dict[int, str]) -> Any:
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, list):
        return [_translated(member, table) for member in value]
    return {key: _translated(member, table) for key, member in value.items()} if isinstance(value, dict) else value


def _each(recorded: Any, key: str, inner: str, fix: Callable[[Any], Any]) -> Any:
    if not isinstance(recorded, dict) or key not in recorded:
        return recorded
    fixed = [{**one, inner: fix(one[inner])} if inner in one else fix(one) for one in recorded[key]]
    return {**recorded, key: fixed}
