"""The recorded cases of skills and prompt templates (`functions/skills.json`, `functions/templates.json`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentcore.harness import skills, templates
from agentcore.tools.environment import LocalEnvironment
from tests.conformance.cases import HERE, case_params, check, expand, put_tokens
from tests.conformance.resource_rules import RULES
from tests.conformance.tool_cases import write_files


@pytest.mark.parametrize("case", case_params("skills.json"))
def test_recorded_skills(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, invoking and listing skills gives what the reference gives."""
    _check(case, tmp_path, monkeypatch)


@pytest.mark.parametrize("case", case_params("templates.json"))
def test_recorded_templates(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading templates and putting arguments in gives what the reference gives."""
    _check(case, tmp_path, monkeypatch)


def _check(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = (tmp_path.resolve() / str(number) for number in count())

    def play(given: dict[str, Any]) -> Any:
        return _play(given, next(folders), monkeypatch)

    given = expand(case["input"])
    expected = case["expected"]
    for rule in RULES:
        expected = rule(given, expected, play)
    actual = play(given)
    if "text" in case.get("tags", ()) or "js" in case.get("tags", ()):
        expected, actual = _without_texts(expected), _without_texts(actual)
    if "js" in case.get("tags", ()):
        expected, actual = _sorted(expected), _sorted(actual)
    check(expected, actual)


def test_every_rule_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that no recorded case calls for any more is noticed."""
    unused = dict.fromkeys(rule.__name__ for rule in RULES)
    folders = (tmp_path.resolve() / str(number) for number in count())
    for file in ("skills.json", "templates.json"):
        for case in json.loads((HERE / "functions" / file).read_text("utf-8")):
            given = expand(case["input"])
            for rule in RULES:
                if rule(given, case["expected"], lambda other: _play(other, next(folders), monkeypatch)) != case["expected"]:
                    unused.pop(rule.__name__, None)
    assert list(unused) == []


def _play(given: dict[str, Any], base: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Do what a case says, in a place of its own."""
    cwd, home = base / "cwd", base / "home"
    cwd.mkdir(parents=True)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    tokens = {str(cwd): "<CWD>", str(home): "<HOME>", str(base): "<BASE>"}
    given = dict(given)
    write_files(given.pop("files", {}), cwd, home)
    for key in ("dirs", "paths"):
        if key in given:
            given[key] = _with_folders(given[key], cwd)
    return put_tokens(FUNCTIONS[given["fn"]](LocalEnvironment(cwd), given), tokens)


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
