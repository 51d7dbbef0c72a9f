"""Skills and prompt templates on real files: names that collide, links, folders that lead in circles, arguments taken literally."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agentcore import AbortSignal, AgentHarness, EnvironmentFileError, UserMessage
from agentcore.harness.resource_files import parse_yaml, split_front_matter
from agentcore.harness.skills import Skill, load_skills, load_sourced_skills, unique_skills
from agentcore.harness.templates import (
    PromptTemplate,
    format_prompt_template_invocation,
    load_prompt_templates,
    parse_command_args,
    substitute_args,
)
from agentcore.testing import says, scripted_stream
from agentcore.tools.environment import LocalEnvironment

WIRE = Path(os.environ.get("AGENTCORE_WIRE") or Path(__file__).parents[2] / "shared" / "wire")
needs_wire = pytest.mark.skipif(not WIRE.is_dir(), reason="no wire data: ../shared/wire is not there")


def write_skill(folder: Path, name: str | None = None, description: str = "Does something") -> Path:
    """Write a SKILL.md into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_text(f"---\nname: {name or folder.name}\ndescription: {description}\n---\nDo it.\n")
    return path


def test_a_skill_at_the_root_stops_the_search(tmp_path: Path) -> None:
    """C109: `s/SKILL.md` is the skill, `s/sub/SKILL.md` belongs to it."""
    outer = write_skill(tmp_path / "s")
    write_skill(tmp_path / "s" / "sub")
    loaded = load_skills(LocalEnvironment(tmp_path), "s")
    assert [skill.file_path for skill in loaded.skills] == [str(outer)]
    assert loaded.diagnostics == []


def test_of_two_skills_of_one_name_the_first_wins(tmp_path: Path) -> None:
    """C109: the project's skill hides the user's, with a diagnostic that names both files."""
    mine = write_skill(tmp_path / "project" / "review", description="The project's")
    theirs = write_skill(tmp_path / "user" / "review", description="The user's")
    environment = LocalEnvironment(tmp_path)
    loaded = load_skills(environment, ["project", "user"])
    assert len(loaded.skills) == 2
    chosen = unique_skills(environment, loaded.skills)
    assert [skill.description for skill in chosen.skills] == ["The project's"]
    (diagnostic,) = chosen.diagnostics
    assert (diagnostic.code, diagnostic.path) == ("name_collision", str(theirs))
    assert diagnostic.message == f'the skill "review" is hidden by the one in {mine}: rename one of them'


def test_a_link_to_the_same_skill_is_silent(tmp_path: Path) -> None:
    """C109: a folder that is reached again by a link is one skill, found under its own path, without a diagnostic."""
    real = write_skill(tmp_path / "project" / "review")
    (tmp_path / "project" / "alias").symlink_to("review")
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "review").symlink_to(tmp_path / "project" / "review")
    environment = LocalEnvironment(tmp_path)
    loaded = load_skills(environment, ["project", "user"])
    assert [skill.file_path for skill in loaded.skills] == [str(real), str(tmp_path / "user" / "review" / "SKILL.md")]
    chosen = unique_skills(environment, loaded.skills)
    assert [skill.file_path for skill in chosen.skills] == [str(real)]
    assert loaded.diagnostics == chosen.diagnostics == []


def test_links_in_circles_end(tmp_path: Path) -> None:
    """Each real folder is searched once, however the links go."""
    write_skill(tmp_path / "a" / "one")
    write_skill(tmp_path / "b" / "two")
    (tmp_path / "a" / "to-b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to-a").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "self").symlink_to(".")
    loaded = load_skills(LocalEnvironment(tmp_path), "a")
    assert [skill.name for skill in loaded.skills] == ["one", "two"]
    assert loaded.diagnostics == []


def test_the_source_goes_with_skills_and_diagnostics(tmp_path: Path) -> None:
    """Whoever loads from several places knows which one a fault is in."""
    write_skill(tmp_path / "u" / "one")
    write_skill(tmp_path / "p" / "two", name="other")
    loaded = load_sourced_skills(LocalEnvironment(tmp_path), [("u", "user"), ("p", {"kind": "project"})])
    assert [(item.skill.name, item.source) for item in loaded.skills] == [("one", "user"), ("other", {"kind": "project"})]
    assert [diagnostic.source for diagnostic in loaded.diagnostics] == [{"kind": "project"}]


class Forbidding(LocalEnvironment):
    """An environment in which nothing below a folder `shut` may be read."""

    def read_text_file(self, path: str, *, signal: AbortSignal | None = None) -> str:
        """Read, or refuse to."""
        if "/shut/" in path:
            raise EnvironmentFileError(f"cannot read {path}: permission denied", code="permission_denied", path=path)
        return super().read_text_file(path, signal=signal)


def test_an_unreadable_skill_is_reported(tmp_path: Path) -> None:
    """A file without permission is a diagnostic, and the others load."""
    write_skill(tmp_path / "s" / "open")
    shut = write_skill(tmp_path / "s" / "shut")
    loaded = load_skills(Forbidding(tmp_path), "s")
    assert [skill.name for skill in loaded.skills] == ["open"]
    (diagnostic,) = loaded.diagnostics
    assert (diagnostic.code, diagnostic.path) == ("read_failed", str(shut))
    assert diagnostic.message == f"cannot read {shut}: permission denied"


def test_arguments_are_put_in_literally() -> None:
    """C110: nothing in an argument means anything."""
    template = PromptTemplate("price", "Price: $@ and $1")
    argument = r"$100 \1 $&"
    assert format_prompt_template_invocation(template, [argument]) == rf"Price: {argument} and {argument}"
    assert substitute_args("$1 $2", ["$2", "$1"]) == "$2 $1"
    assert substitute_args("${@:1} $ARGUMENTS", ["${@:1}", "$@"]) == "${@:1} $@ ${@:1} $@"


def test_huge_numbers_in_placeholders() -> None:
    """A number with thousands of digits names no argument."""
    assert substitute_args(f"[${'9' * 5000}]", ["a"]) == "[]"
    assert substitute_args("[$٣]", ["a", "b", "c"]) == "[$٣]"


def test_an_empty_argument_in_quotes_is_one() -> None:
    """So the arguments behind it keep their places."""
    assert parse_command_args("a '' \"\" b") == ["a", "", "", "b"]


def test_front_matter_is_yaml_1_2() -> None:
    """The words and numbers that YAML 1.1 would turn into something else."""
    assert parse_yaml("a: yes\nb: 2026-01-02\nc: 0o17\nd: 017\ne: 1e3\nf: .5\ng: .inf\nh: 0x1F\ni: 1:30\nj: <<\n'<<': k\n") == {
        "a": "yes",
        "b": "2026-01-02",
        "c": 15,
        "d": 17,
        "e": 1000.0,
        "f": 0.5,
        "g": float("inf"),
        "h": 31,
        "i": "1:30",
        "j": "<<",
        "<<": "k",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "line 1, column 5: expected the node content, but found '<stream end>'"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' is there twice"),
        ("{a: {b: 1, b: 2}}", "line 1, column 12: the key 'b' is there twice"),
        ("? [a]\n: b", "line 1, column 3: a key must be a text"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
        ("[" * 5000, "it is nested too deeply"),
    ],
)
def test_bad_front_matter_says_where(text: str, reason: str) -> None:
    """One line with the place and the reason."""
    with pytest.raises(ValueError) as caught:
        parse_yaml(text)
    assert str(caught.value) == reason


def test_a_tag_of_python_makes_no_object() -> None:
    """Front matter comes from anywhere: a tag only ever gives the text."""
    assert parse_yaml("a: !!python/object/apply:os.system ['true']\nb: !custom 5") == {"a": ["true"], "b": "5"}


def test_front_matter_needs_an_end() -> None:
    """A text that only begins like front matter is all text."""
    assert split_front_matter("---\na: 1\n") == ({}, "---\na: 1\n")
    assert split_front_matter("---") == ({}, "---")
    assert split_front_matter("--- \na: 1\n---\n\n text \n") == ({"a": 1}, "text")


def test_templates_of_a_linked_folder(tmp_path: Path) -> None:
    """A link to a file or a folder is followed; one that leads nowhere is passed over."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.md").write_text("X $1")
    (tmp_path / "t").symlink_to("real")
    (tmp_path / "real" / "gone.md").symlink_to("nowhere")
    loaded = load_prompt_templates(LocalEnvironment(tmp_path), "t")
    assert loaded.prompt_templates == [PromptTemplate("x", "X $1", "X $1")]
    assert loaded.diagnostics == []


@needs_wire
@pytest.mark.parametrize("collection", ["agent-stuff", "pi-skills", "superpowers"])
def test_real_collections_load_without_complaint(collection: str) -> None:
    """Every published skill loads, and nothing is said of it."""
    folder = WIRE / "skills" / collection
    if not folder.is_dir():
        pytest.skip(f"no wire data: {folder} is not there")
    loaded = load_skills(LocalEnvironment(folder), ".")
    expected = {
        str(path) for path in folder.rglob("SKILL.md") if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }
    assert {skill.file_path for skill in loaded.skills} == expected
    assert loaded.diagnostics == []
    assert all(skill.name and skill.description and skill.content for skill in loaded.skills)


@needs_wire
def test_every_real_skill_loads_or_says_why_not() -> None:
    """No skill of any collection vanishes without a diagnostic, but for those below another one and in hidden folders."""
    environment = LocalEnvironment(WIRE / "skills")
    for folder in sorted({path.parent for path in (WIRE / "skills").rglob("SKILL.md")}):
        loaded = load_skills(environment, str(folder))
        assert loaded.skills or loaded.diagnostics, folder
        assert all(isinstance(skill, Skill) for skill in loaded.skills)
        for diagnostic in loaded.diagnostics:
            assert diagnostic.code in ("invalid_metadata", "parse_failed") and "\n" not in diagnostic.message


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    """One or several, for skills and for templates; and the files may have Windows' line ends and a byte-order mark."""
    (tmp_path / "fix").mkdir()
    (tmp_path / "fix" / "SKILL.md").write_bytes("\ufeff---\r\nname: fix\r\ndescription: Mend it.\r\n---\r\nGo\r\non.\r\n".encode())
    (tmp_path / "do.md").write_bytes(b"Do $1.\r\n")
    environment = LocalEnvironment(str(tmp_path))
    folders: tuple[Any, ...] = (tmp_path / "fix", [tmp_path / "fix"], str(tmp_path / "fix"))
    for paths in folders:
        [skill] = load_skills(environment, paths).skills
        assert (skill.name, skill.description, skill.content) == ("fix", "Mend it.", "Go\non.")
    assert [one.skill.name for one in load_sourced_skills(environment, [(tmp_path / "fix", "here")]).skills] == ["fix"]
    files: tuple[Any, ...] = (tmp_path, [tmp_path / "do.md"], tmp_path / "do.md")
    for paths in files:
        [template] = load_prompt_templates(environment, paths).prompt_templates
        assert (template.name, template.content) == ("do", "Do $1.\n")


def test_a_folder_is_read_anew_each_time(tmp_path: Path) -> None:
    """Who loads again sees what has changed; a harness is given it with `set_resources`, and the next run has it."""
    (tmp_path / "SKILL.md").write_text("---\nname: fix\ndescription: one\n---\nfirst", "utf-8")
    environment = LocalEnvironment(str(tmp_path))
    harness = AgentHarness(
        stream_fn=scripted_stream(says("ok"), says("ok")), resources={"skills": load_skills(environment, tmp_path).skills}
    )
    harness.skill("fix").result(5)
    (tmp_path / "SKILL.md").write_text("---\nname: fix\ndescription: one\n---\nsecond", "utf-8")
    harness.set_resources({"skills": load_skills(environment, tmp_path).skills})
    harness.skill("fix").result(5)
    texts = [message.text for message in harness.messages if isinstance(message, UserMessage)]
    assert ["first" in text for text in texts] == [True, False]
    assert "second" in texts[1]
