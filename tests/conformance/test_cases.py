"""The runners read any folder of recordings that has the form described, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import HERE, case_params, check, first_difference, load_cases
from tests.conformance.scenario_runner import scenario_paths

GOOD = {"name": "a case", "input": {"fn": "classify"}, "expected": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder of recordings, without any file."""
    monkeypatch.setenv("AGENTCORE_CONFORMANCE", str(tmp_path))
    (tmp_path / "functions").mkdir()
    return tmp_path


def test_a_folder_need_not_hold_every_file(folder: Path) -> None:
    """What another folder does not have is not played."""
    assert case_params("retry.json") == []
    assert scenario_paths("agent") == []


def test_another_folder_is_read(folder: Path) -> None:
    """Its cases become tests of their own names."""
    (folder / "functions" / "retry.json").write_text(json.dumps([GOOD]), "utf-8")
    assert [param.id for param in case_params("retry.json")] == ["a case"]


@pytest.mark.parametrize(
    "cases",
    [
        GOOD,
        [1],
        [{key: value for key, value in GOOD.items() if key != "name"}],
        [{key: value for key, value in GOOD.items() if key != "input"}],
        [{key: value for key, value in GOOD.items() if key != "expected"}],
        [{**GOOD, "error": {"message": "x"}}],
        [{**GOOD, "surprise": 1}],
        [{**GOOD, "tags": ["sometimes"]}],
        [{**GOOD, "input": {"fn": "guess"}}],
        [GOOD, GOOD],
    ],
)
def test_a_malformed_case_fails(folder: Path, cases: Any) -> None:
    """Nothing that is not as described is passed over."""
    (folder / "functions" / "retry.json").write_text(json.dumps(cases), "utf-8")
    with pytest.raises(AssertionError):
        load_cases("retry.json")


def test_no_json_fails(folder: Path) -> None:
    """A file that cannot be read fails the run."""
    (folder / "functions" / "retry.json").write_text("[", "utf-8")
    with pytest.raises(ValueError, match="Expecting value"):
        load_cases("retry.json")


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ({"args": {}}, {"args": {"a": None}}),
        ([1, 2], [1]),
        ([1], [1, 2]),
        (1, True),
        (0, False),
        (None, 0),
        ("a", "b"),
        ({"$number": "NaN"}, 1),
        ({"$long": {"sha256": "0", "utf8_bytes": 1}}, "x"),
        ("<time>", "yesterday"),
    ],
)
def test_what_differs_is_seen(expected: Any, actual: Any) -> None:
    """The comparison is not blind: absent members, other kinds and other lengths are differences."""
    assert first_difference(expected, actual) is not None
    with pytest.raises(pytest.fail.Exception):
        check(expected, actual)


def test_every_file_of_the_recordings_has_a_runner() -> None:
    """No recorded file is forgotten: each is named by a runner, but for that of the reference's own scripted model."""
    runners = "".join(path.read_text("utf-8") for path in HERE.glob("*.py") if path.name != "test_cases.py")
    files = {path.relative_to(HERE / "functions").as_posix() for path in (HERE / "functions").rglob("*.json")}
    assert {file for file in files if f'"{file}"' not in runners} == {"providers/faux.json"}
