"""No import goes up or sideways: each room of the package sees only what lies below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import agentcore

ROOT = Path(agentcore.__file__).parent
ROOMS = {
    "harness": {"agent", "loop", "llm", "tools", "session", "words"},
    "agent": {"loop", "llm", "tools", "words"},
    "loop": {"llm", "tools", "words"},
    "llm": {"words"},
    "tools": {"words"},
    "session": {"words"},
    "words": {"words"},
    # Beside the tower: no room imports them.
    "testing": {"agent", "loop", "llm", "tools", "session", "harness", "words"},
    "local": {"agent", "loop", "llm", "tools", "session", "harness", "words"},
    "cli": {"agent", "loop", "llm", "tools", "session", "harness", "local", "words", "package"},
    "__main__": {"cli"},
    "package": {"agent", "loop", "llm", "tools", "session", "harness", "words", "local", "testing"},
}
BESIDE = {"testing", "local", "cli", "__main__"}

FILES = sorted(ROOT.rglob("*.py"))


def room_of(module: str) -> str:
    """Return the room of a module of the package, such as `"agentcore.llm.sse"`."""
    parts = module.split(".")
    if len(parts) == 1:
        return "package"
    return parts[1] if parts[1] in ROOMS else "words"


def imports_of(path: Path) -> list[tuple[int, str]]:
    """Return the line and the module of each import of the package, wherever in the file it stands."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports inside the package are absolute"
            module = node.module or ""
            if module == "agentcore":  # `from agentcore import llm` means the room, `… import Agent` the package
                found += [(node.lineno, f"agentcore.{alias.name}" if is_module(alias.name) else module) for alias in node.names]
            else:
                found.append((node.lineno, module))
    return [(line, module) for line, module in found if module.split(".")[0] == "agentcore"]


def is_module(name: str) -> bool:
    """Whether the package has a module or a room of that name."""
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").exists()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    """A file imports from its own room and from those below it."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    room = room_of(".".join(("agentcore", *(part for part in parts if part != "__init__"))))
    wrong = [
        f"line {line}: {module} (a {room_of(module)} module)"
        for line, module in imports_of(path)
        if room_of(module) != room and room_of(module) not in ROOMS[room]
    ]
    assert not wrong, f"{path.relative_to(ROOT.parent)}, of the room {room}, imports {'; '.join(wrong)}"


def test_the_words_import_only_words_further_left() -> None:
    """The words form a line, too: no two of them import each other, directly or in a circle."""
    graph = {
        path.stem: {module.split(".")[1] for _, module in imports_of(path) if module.count(".")}
        for path in ROOT.glob("*.py")
        if path.stem not in BESIDE | {"__init__"}
    }
    done: list[str] = []
    while len(done) < len(graph):
        free = [name for name, needs in graph.items() if name not in done and needs <= set(done)]
        assert free, f"a circle among {sorted(set(graph) - set(done))}"
        done += free


def test_there_is_no_utils() -> None:
    """A helper has a name and a home."""
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "common", "misc")]
