"""The recorded cases of skills and prompt templates (`functions/skills.json`, `functions/templates.json`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore.harness import skills, templates
from agentcore.tools.environment import LocalEnvironment
from tests.conformance.cases import Difference, case_params, check, expand, put_tokens, with_difference
from tests.conformance.tool_cases import write_files

UTF16 = "lengths are code points for us, UTF-16 units in the reference"
BOM = "a byte order mark is no part of the text"
ONE_PASS = "C110: placeholders are replaced in one pass, and arguments are put in literally"
GIT = "ignore files mean what they mean to git"
STEM = "a lone .md file is named after itself, so that two of them do not get one name"


def _skill(name: str, path: str, description: str | None = None, content: str = "Body.") -> dict[str, Any]:
    description = f"Does {name}" if description is None else description
    return {
        "name": name,
        "description": description,
        "content": content,
        "filePath": f"<CWD>/{path}",
        "disableModelInvocation": False,
    }


def _template(**fields: str) -> dict[str, Any]:
    return {"promptTemplates": [{"name": "a", **fields}], "diagnostics": []}


DIFFERENCES: dict[str, Difference] = {
    # skills
    "load: root .md files are skills": Difference(STEM, {"diagnostics": []}),
    "load: root .md file without name takes the directory name": Difference(STEM, {"skills[0].name": "notes"}),
    "load: two root .md files without names get the same name": Difference(STEM, {"skills[0].name": "a", "skills[1].name": "b"}),
    "load: link to the parent repeats until the system gives up": Difference(
        "C109: each real folder is searched once", {"skills": [_skill("demo", "skills/demo/SKILL.md")], "diagnostics": []}
    ),
    "load: ignore: escaped exclamation mark loses its escape": Difference(
        GIT, {"skills": [_skill("odd", "skills/odd/SKILL.md")], "diagnostics": []}
    ),
    "load: ignore: leading slash loses its anchor": Difference(GIT, {"skills": [_skill("top", "skills/group/top/SKILL.md")]}),
    "load: ignore: subdirectory pattern does not reach deeper": Difference(GIT, {"skills": []}),
    "load: ignore: case-insensitive": Difference(GIT, {"skills": [_skill("skip", "skills/skip/SKILL.md")]}),
    "load: byte order mark hides the front matter": Difference(
        BOM, {"skills": [_skill("demo", "skills/demo/SKILL.md")], "diagnostics": []}
    ),
    # templates
    "parseCommandArgs: empty quotes vanish": Difference("an empty argument in quotes is meant", {"": ["a", "", "b"]}),
    "substituteArgs: value containing $@ is expanded later": Difference(ONE_PASS, {"": "$@"}),
    "substituteArgs: value containing $ARGUMENTS is expanded later": Difference(ONE_PASS, {"": "$ARGUMENTS"}),
    "substituteArgs: value containing a slice is expanded later": Difference(ONE_PASS, {"": "${@:2}"}),
    "substituteArgs: replacement patterns in $@ values": Difference(ONE_PASS, {"": "[$& $$]"}),
    "substituteArgs: replacement patterns in $ARGUMENTS values": Difference(ONE_PASS, {"": "[a$$b $`]"}),
    "load: first line cut inside an emoji": Difference(
        UTF16, {"promptTemplates[0].description": "01234567890123456789012345678901234567890123456789012345678\U0001f600..."}
    ),
    "load: four dashes at the top": Difference(
        "front matter begins with a line of three dashes",
        {"": _template(description="----", content="----\ndescription: d\n---\nBody\n")},
    ),
    "load: text right after the opening dashes": Difference(
        "front matter begins with a line of three dashes",
        {"": _template(description="---description: d", content="---description: d\n---\nBody\n")},
    ),
    ".md/load: byte order mark hides the front matter": Difference(BOM, {"": _template(description="d", content="Body")}),
}


@pytest.mark.parametrize("case", case_params("skills.json"))
def test_recorded_skills(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, invoking and listing skills gives what the reference gives."""
    _check(case, DIFFERENCES.get(case["name"]), tmp_path, monkeypatch)


@pytest.mark.parametrize("case", case_params("templates.json"))
def test_recorded_templates(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading templates and putting arguments in gives what the reference gives."""
    difference = DIFFERENCES.get(".md/" + case["name"]) or DIFFERENCES.get(case["name"])
    _check(case, difference, tmp_path, monkeypatch)


def _check(case: dict[str, Any], difference: Difference | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path.resolve()
    cwd, home = base / "cwd", base / "home"
    cwd.mkdir()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    tokens = {str(cwd): "<CWD>", str(home): "<HOME>", str(base): "<BASE>"}
    given = expand(case["input"])
    write_files(given.pop("files", {}), cwd, home)
    for key in ("dirs", "paths"):
        if key in given:
            given[key] = _with_folders(given[key], cwd)
    actual = put_tokens(FUNCTIONS[given["fn"]](LocalEnvironment(cwd), given), tokens)
    expected = with_difference(case["expected"], difference)
    if "text" in case.get("tags", ()) or "js" in case.get("tags", ()):
        expected, actual = _without_texts(expected), _without_texts(actual)
    if "js" in case.get("tags", ()):
        expected, actual = _sorted(expected), _sorted(actual)
    check(expected, actual)


def _with_folders(paths: Any, cwd: Path) -> Any:
    return [_with_folders(path, cwd) for path in paths] if isinstance(paths, list) else paths.replace("<CWD>", str(cwd))


def _without_texts(result: Any) -> Any:
    """Leave out the wording of diagnostics; that there is one is still compared."""
    for diagnostic in result["diagnostics"]:
        assert diagnostic["message"]
    return {**result, "diagnostics": [{**diagnostic, "message": "…"} for diagnostic in result["diagnostics"]]}


def _sorted(result: Any) -> Any:
    return {key: sorted(value, key=repr) if isinstance(value, list) else value for key, value in result.items()}


def _diagnostics(loaded: Any) -> list[dict[str, Any]]:
    return [
        {"type": item.type, "code": item.code, "message": item.message, "path": item.path, "source": item.source}
        for item in loaded.diagnostics
    ]


def _show_skill(skill: skills.Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "content": skill.content,
        "filePath": skill.file_path,
        "disableModelInvocation": skill.disable_model_invocation,
    }


def _read_skill(raw: dict[str, Any]) -> skills.Skill:
    return skills.Skill(raw["name"], raw["description"], raw["content"], raw["filePath"], raw.get("disableModelInvocation", False))


def _show_template(template: templates.PromptTemplate) -> dict[str, Any]:
    return {"name": template.name, "description": template.description, "content": template.content}


def _load_skills(environment: LocalEnvironment, given: dict[str, Any]) -> Any:
    loaded = skills.load_skills(environment, given["dirs"])
    return {"skills": [_show_skill(skill) for skill in loaded.skills], "diagnostics": _diagnostics(loaded)}


def _load_sourced_skills(environment: LocalEnvironment, given: dict[str, Any]) -> Any:
    loaded = skills.load_sourced_skills(environment, [(item["path"], item["source"]) for item in given["inputs"]])
    shown = [{"skill": _show_skill(item.skill), "source": item.source} for item in loaded.skills]
    return {"skills": shown, "diagnostics": _diagnostics(loaded)}


def _load_templates(environment: LocalEnvironment, given: dict[str, Any]) -> Any:
    loaded = templates.load_prompt_templates(environment, given["paths"])
    return {"promptTemplates": [_show_template(item) for item in loaded.prompt_templates], "diagnostics": _diagnostics(loaded)}


def _load_sourced_templates(environment: LocalEnvironment, given: dict[str, Any]) -> Any:
    loaded = templates.load_sourced_prompt_templates(environment, [(item["path"], item["source"]) for item in given["inputs"]])
    shown = [{"promptTemplate": _show_template(item.prompt_template), "source": item.source} for item in loaded.prompt_templates]
    return {"promptTemplates": shown, "diagnostics": _diagnostics(loaded)}


def _invoke_template(_: LocalEnvironment, given: dict[str, Any]) -> str:
    template = templates.PromptTemplate(**given["template"])
    return templates.format_prompt_template_invocation(template, given.get("args", ()))


FUNCTIONS: dict[str, Callable[[LocalEnvironment, dict[str, Any]], Any]] = {
    "loadSkills": _load_skills,
    "loadSourcedSkills": _load_sourced_skills,
    "formatSkillInvocation": lambda _, given: skills.format_skill_invocation(
        _read_skill(given["skill"]), given.get("additionalInstructions")
    ),
    "formatSkillsForSystemPrompt": lambda _, given: skills.format_skills_for_system_prompt(map(_read_skill, given["skills"])),
    "loadPromptTemplates": _load_templates,
    "loadSourcedPromptTemplates": _load_sourced_templates,
    "formatPromptTemplateInvocation": _invoke_template,
    "substituteArgs": lambda _, given: templates.substitute_args(given["content"], given["args"]),
    "parseCommandArgs": lambda _, given: templates.parse_command_args(given["text"]),
}
