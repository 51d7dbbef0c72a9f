"""Where file tools work: another environment than this machine's, and a root in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.edit import create_edit_tool
from agentcore.tools.environment import ExecutionEnvironment, FileInfo, LocalEnvironment
from agentcore.tools.find import create_find_tool
from agentcore.tools.grep import create_grep_tool
from agentcore.tools.ls import create_ls_tool
from agentcore.tools.read import create_read_tool
from agentcore.tools.write import create_write_tool


class Elsewhere:
    """An environment that is not this machine as far as the tools know: the methods, and no common class."""

    def __init__(self, cwd: Path) -> None:
        self._inner = LocalEnvironment(cwd)
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self._inner, name)

    @property
    def cwd(self) -> str:
        return self._inner.cwd


def environment(cwd: Path) -> Any:
    made = Elsewhere(cwd)
    assert not isinstance(made, LocalEnvironment)
    return made


def run(make: Any, place: Any, root: Path | None = None, **arguments: Any) -> str:
    result: AgentToolResult = make(environment=place, root=root).run("1", arguments, None, None, None)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def test_every_tool_works_in_another_environment(tmp_path: Path) -> None:
    """Write, edit, read, list, find and grep go through the environment's methods."""
    place = environment(tmp_path)
    assert run(create_write_tool, place, path="a/b.txt", content="one\n") == "Successfully wrote 4 bytes to a/b.txt"
    edits = [{"oldText": "one", "newText": "two"}]
    assert run(create_edit_tool, place, path="a/b.txt", edits=edits) == "Successfully replaced 1 block(s) in a/b.txt."
    assert run(create_read_tool, place, path="a/b.txt") == "two\n"
    assert run(create_ls_tool, place, path="a") == "b.txt"
    assert run(create_find_tool, place, pattern="*.txt") == "a/b.txt"
    assert run(create_grep_tool, place, pattern="t.o") == "a/b.txt:1: two"
    assert {"write_file", "read_binary_file", "list_dir"} <= place.used
    assert "run_command" not in place.used


def test_a_root_holds_in_another_environment(tmp_path: Path) -> None:
    """Dots, absolute paths and links lead nowhere else; a link to nothing, which cannot be followed from here, is refused."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "out").symlink_to("..")
    (root / "dangling").symlink_to("../new")
    (root / "inside").symlink_to("inner")
    place = environment(root)
    for path in ("../x", "out/x", str(tmp_path / "x"), "inner/../../x", "dangling", "dangling/x"):
        with pytest.raises(EnvironmentFileError) as caught:
            run(create_write_tool, place, root, path=path, content="x")
        assert caught.value.code == "permission_denied"
    run(create_write_tool, place, root, path="inside/new/x", content="x")
    assert (root / "inner" / "new" / "x").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


def test_a_directory_that_vanishes_during_a_search_is_passed_over(tmp_path: Path) -> None:
    """A folder that cannot be listed any more does not end a search."""

    class Vanishing(Elsewhere):
        def list_dir(self, path: str, **options: Any) -> list[FileInfo]:
            if path.endswith("gone"):
                raise EnvironmentFileError("gone", code="not_found", path=path)
            return self._inner.list_dir(path, **options)

    (tmp_path / "gone").mkdir()
    (tmp_path / "here.txt").write_text("x")
    place: Any = Vanishing(tmp_path)
    assert run(create_find_tool, place, pattern="*") == "gone/\nhere.txt"


def test_two_places_to_work_in_are_one_too_many(tmp_path: Path) -> None:
    """An environment has a working directory of its own, so cwd beside it is refused."""
    place: ExecutionEnvironment = environment(tmp_path)
    with pytest.raises(ValueError, match="give either environment or cwd"):
        create_read_tool(environment=place, cwd=tmp_path)


def test_a_root_is_the_working_directory_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative roots belong to the current directory, also beside cwd; relative paths to cwd, else to the root."""
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "f").write_text("in root")
    (tmp_path / "root" / "sub" / "f").write_text("in sub")
    monkeypatch.chdir(tmp_path)
    texts = []
    for cwd in (None, "root/sub"):
        result: AgentToolResult = create_read_tool(cwd=cwd, root="root").run("1", {"path": "f"}, None, None, None)
        texts.append(result.content)
    assert texts == [[TextContent("in root")], [TextContent("in sub")]]
