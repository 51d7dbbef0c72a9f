"""ls, find and grep: the same files and the same text with and without ripgrep."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.errors import AgentAbortedError, EnvironmentFileError
from agentcore.messages import AgentToolResult, TextContent, ToolCall
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.arguments import validate_tool_arguments
from agentcore.tools.find import FindToolDetails, create_find_tool, glob_matcher
from agentcore.tools.grep import GrepToolDetails, create_grep_tool
from agentcore.tools.ls import LsToolDetails, create_ls_tool

with_ripgrep = pytest.param(True, marks=pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep"))
both_ways = pytest.mark.parametrize("use_ripgrep", [False, with_ripgrep])

FILES = {
    ".gitignore": "node_modules/\n*.log\n/build\n!important.log\n",
    ".git/config": "needle",
    ".hidden/file.txt": "a needle\n",
    "a.py": "import os\nneedle(1)\nother\nneedle(2)\n",
    "b (1).py": "Needle\r\nneedle\r\n",
    "binary.bin": "needle\0",
    "build/out.py": "needle",
    "important.log": "needle\n",
    "node_modules/x/x.py": "needle",
    "noise.log": "needle",
    "src/.ignore": "secret/\n!noise.log\n",
    "src/build/kept.py": "needle",
    "src/deep/er/c.txt": "x" * 700 + "needle" + "y" * 700 + "\n",
    "src/noise.log": "a needle too\n",
    "src/secret/.gitignore": "!*\n",
    "src/secret/key.txt": "needle",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    (tmp_path / "link.py").symlink_to("a.py")
    (tmp_path / "circle").symlink_to(".")
    (tmp_path / "empty").mkdir()
    return tmp_path


def call(tool: AgentTool, /, **arguments: Any) -> AgentToolResult:
    checked = validate_tool_arguments(tool, ToolCall("1", tool.name, arguments))
    result: AgentToolResult = tool.run("1", checked, None, None, None)
    return result


def lines(tool: AgentTool, /, **arguments: Any) -> list[str]:
    (block,) = call(tool, **arguments).content
    assert isinstance(block, TextContent)
    return block.text.split("\n")


# ls


def test_ls_shows_everything_in_a_directory(tree: Path) -> None:
    """Hidden and ignored members too, without regard to case, with a mark for directories and links."""
    ls = create_ls_tool(cwd=tree)
    assert lines(ls) == [
        ".git/", ".gitignore", ".hidden/", "a.py", "b (1).py", "binary.bin", "build/", "circle@", "empty/", "important.log",
        "link.py@", "node_modules/", "noise.log", "src/",
    ]  # fmt: skip
    assert lines(ls, path="src") == [".ignore", "build/", "deep/", "noise.log", "secret/"]
    assert lines(ls, path="empty") == ["(empty directory)"]


def test_ls_says_what_it_leaves_out(tree: Path) -> None:
    """A limit is named in the text and in the details; a limit below 1 and a file are errors."""
    ls = create_ls_tool(cwd=tree)
    result = call(ls, limit=2)
    assert result.content == [TextContent(".git/\n.gitignore\n\n[12 more entries. Use limit=14 to see all]")]
    assert result.details == LsToolDetails(2)
    with pytest.raises(ValueError, match="limit is 0: it must be 1 or more, or be left out"):
        call(ls, limit=0)
    with pytest.raises(EnvironmentFileError) as caught:
        call(ls, path="a.py")
    assert caught.value.code == "not_directory"


# find


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "b (1).py", "link.py", "src/build/kept.py"]),
        ("src/*", ["src/.ignore", "src/build/", "src/deep/", "src/noise.log"]),
        ("src/**/*.txt", ["src/deep/er/c.txt"]),
        ("**/*.txt", [".hidden/file.txt", "src/deep/er/c.txt"]),
        ("*.{txt,log}", [".hidden/file.txt", "important.log", "src/deep/er/c.txt", "src/noise.log"]),
        ("[!b]*.py", ["a.py", "link.py", "src/build/kept.py"]),
        ("b \\(1\\).py", ["b (1).py"]),
        ("?.py", ["a.py"]),
        ("/a.py", ["a.py"]),
        ("e*", ["empty/", "src/deep/er/"]),
        ("nothing", ["No files found matching pattern"]),
    ],
)
def test_find_goes_by_globs_and_ignore_files(tree: Path, pattern: str, found: list[str]) -> None:
    """Names without a slash are found anywhere, paths from the top; ignored files and version control are not there."""
    assert lines(create_find_tool(cwd=tree), pattern=pattern) == found


def test_find_in_a_folder_obeys_the_ignore_files_above(tree: Path) -> None:
    """Below an ignored folder there is nothing; paths are shown from the working directory."""
    find = create_find_tool(cwd=tree)
    assert lines(find, pattern="*", path="src/deep") == ["src/deep/er/", "src/deep/er/c.txt"]
    assert lines(find, pattern="*", path="node_modules/x") == ["No files found matching pattern"]
    assert lines(find, pattern="*", path="src/secret") == ["No files found matching pattern"]


def test_find_says_what_it_leaves_out(tree: Path) -> None:
    """A limit is named in the text and in the details."""
    result = call(create_find_tool(cwd=tree), pattern="*.py", limit=2)
    assert result.content == [TextContent("a.py\nb (1).py\n\n[2 results limit reached. Use a narrower pattern, or limit=4]")]
    assert result.details == FindToolDetails(2)


@pytest.mark.parametrize("pattern", ["", "/", "[a", "{a,b", "a[]"])
def test_what_is_no_glob_is_a_clear_error(pattern: str) -> None:
    """The text says what is wrong and what to do."""
    with pytest.raises(ValueError, match=r"the pattern is empty: use a glob|put a backslash before"):
        glob_matcher(pattern)


# grep


@both_ways
def test_grep_finds_lines(tree: Path, use_ripgrep: bool) -> None:
    """Every text file that is not ignored, sorted; long lines are cut around the match; line ends are not part of a line."""
    grep = create_grep_tool(cwd=tree, use_ripgrep=use_ripgrep)
    long = "..." + "x" * 100 + "needle" + "y" * 394 + "... [truncated]"
    result = call(grep, pattern="needle$|needle\\(|needley|needle too")
    assert result.content == [
        TextContent(
            ".hidden/file.txt:1: a needle\n"
            "a.py:2: needle(1)\n"
            "a.py:4: needle(2)\n"
            "b (1).py:2: needle\n"
            "important.log:1: needle\n"
            "src/build/kept.py:1: needle\n"
            f"src/deep/er/c.txt:1: {long}\n"
            "src/noise.log:1: a needle too\n\n"
            "[Some lines are cut at 500 characters. Use read to see them whole]"
        )
    ]
    assert result.details == GrepToolDetails(lines_truncated=True)


@both_ways
def test_options_of_grep(tree: Path, use_ripgrep: bool) -> None:
    """Literal text, case, globs, a folder, one file, context."""
    grep = create_grep_tool(cwd=tree, use_ripgrep=use_ripgrep)
    assert lines(grep, pattern="NEEDLE(", literal=True, ignoreCase=True) == ["a.py:2: needle(1)", "a.py:4: needle(2)"]
    assert lines(grep, pattern="needle", glob="*.log") == ["important.log:1: needle", "src/noise.log:1: a needle too"]
    assert lines(grep, pattern="needle", path="src/build") == ["src/build/kept.py:1: needle"]
    assert lines(grep, pattern="needle", path="noise.log") == ["noise.log:1: needle"]
    assert lines(grep, pattern="needle", path="node_modules") == ["No matches found"]
    assert lines(grep, pattern="--nothing-such") == ["No matches found"]
    assert lines(grep, pattern="^needle", glob="*.py", context=1) == [
        "a.py-1- import os", "a.py:2: needle(1)", "a.py-3- other", "a.py:4: needle(2)", "--",
        "b (1).py-1- Needle", "b (1).py:2: needle", "--", "src/build/kept.py:1: needle",
    ]  # fmt: skip


PATTERNS = [r"(?<=a )needle", r"(need)le|\1", r"\Aneedle\Z", "[[:needl]+e", "(?i:NEEDLE)", "needle{,2}$", "né"]


@both_ways
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_that_ripgrep_reads_otherwise(tree: Path, use_ripgrep: bool, pattern: str) -> None:
    """A pattern means what it means in Python."""
    (tree / "uni.txt").write_bytes("né\n[:needle\n".encode())
    grep = create_grep_tool(cwd=tree, use_ripgrep=use_ripgrep)
    assert lines(grep, pattern=pattern) == lines(create_grep_tool(cwd=tree, use_ripgrep=False), pattern=pattern)
    assert lines(grep, pattern=pattern) != ["No matches found"]


@both_ways
def test_grep_stops_at_the_limit(tree: Path, use_ripgrep: bool) -> None:
    """A limit is named; exactly as many matches as the limit are no reason to."""
    grep = create_grep_tool(cwd=tree, use_ripgrep=use_ripgrep)
    result = call(grep, pattern="needle", path="a.py", limit=1)
    assert result.content == [TextContent("a.py:2: needle(1)\n\n[1 matches limit reached. Use a narrower pattern, or limit=2]")]
    assert result.details == GrepToolDetails(1)
    assert call(grep, pattern="needle", path="a.py", limit=2).details is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "("}, r"'\(' is no regular expression: .*; correct it, or set literal to look for the text itself"),
        ({"pattern": ""}, "the pattern is empty: say what to look for"),
        ({"pattern": "a\nb"}, "the pattern has a line break, but lines are searched one by one"),
        ({"pattern": "a", "context": -1}, "context is -1: it must be 0 or more, or be left out"),
        ({"pattern": "a", "limit": 0}, "limit is 0: it must be 1 or more, or be left out"),
    ],
)
def test_bad_arguments_of_grep_are_explained(tree: Path, arguments: dict[str, Any], text: str) -> None:
    """The model reads what to change."""
    with pytest.raises(ValueError, match=text):
        call(create_grep_tool(cwd=tree), **arguments)


# All of them


@pytest.mark.parametrize("make", [create_ls_tool, create_find_tool, create_grep_tool])
def test_a_root_is_not_left_and_an_abort_is_heeded(tree: Path, make: Any) -> None:
    """With root=, links and dots lead nowhere; a set signal ends the call."""
    root = tree / "src"
    (root / "out").symlink_to("../.hidden")
    tool = make(root=root)
    for path in ("..", "out", str(tree), "~"):
        with pytest.raises(EnvironmentFileError, match="leads out of"):
            tool.run("1", {"path": path, "pattern": "*needle" if tool.name == "find" else "needle"}, None, None, None)
    controller = AbortController()
    controller.abort()
    with pytest.raises(AgentAbortedError, match="Operation aborted"):
        tool.run("1", {"path": ".", "pattern": "x"}, controller.signal, None, None)


def test_links_are_not_followed_out_of_a_root(tree: Path) -> None:
    """A search below a root does not go through a link."""
    root = tree / "src"
    (root / "out").symlink_to("../.hidden")
    (root / "file").symlink_to("../a.py")
    assert lines(create_find_tool(root=root), pattern="o*") == ["out"]
    assert lines(create_grep_tool(root=root, use_ripgrep=False), pattern="a needle$|needle\\(") == ["No matches found"]


def test_what_cannot_be_read_is_passed_over(tree: Path) -> None:
    """A name that is no UTF-8 and a broken link do not end a search."""
    with open(os.path.join(os.fsencode(tree), b"bad\xff.txt"), "wb") as file:
        file.write(b"needle in a bad name\n")
    (tree / "broken").symlink_to("nowhere")
    assert lines(create_grep_tool(cwd=tree, use_ripgrep=False), pattern="bad name") == ["bad\ufffd.txt:1: needle in a bad name"]
