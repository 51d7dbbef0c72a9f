"""`import agentcore` stays light: nothing that it requires, and no heavy part of the standard library, comes with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.pythons

HEAVY = (
    "requests",
    "urllib3",
    "sseclient",
    "dataclasses_json",
    "marshmallow",
    "jsonschema",
    "yaml",
    "pathspec",
    "docstring_parser",
    "PIL",
    "rich",
    "xllamacpp",
    "psutil",
    "asyncio",
    "sqlite3",
    "ssl",
    "http.client",
    "email",
    "importlib.metadata",
    "multiprocessing",
    "unittest",
)


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh Python has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_import_agentcore_brings_no_library() -> None:
    """After `import agentcore`, `sys.modules` holds none of the libraries that it requires."""
    mine = loaded_by("import agentcore") - loaded_by("pass")
    assert sorted(mine.intersection(HEAVY)) == []


def test_an_agent_needs_none_of_them_either() -> None:
    """Making an agent with a hand-made tool and a stream function loads none of them."""
    program = (
        "import agentcore\n"
        "tool = agentcore.AgentTool('t', 'T', 'says t', {'type': 'object'}, lambda: agentcore.AgentToolResult())\n"
        "agentcore.Agent(tools=[tool], stream_fn=lambda model, context, options: [])"
    )
    assert sorted(loaded_by(program).intersection(HEAVY) - loaded_by("pass")) == []


def test_the_submodules_come_when_they_are_used() -> None:
    """`agentcore.testing` works after `import agentcore` alone, and is not loaded before."""
    assert "agentcore.testing" not in loaded_by("import agentcore")
    assert "agentcore.testing" in loaded_by("import agentcore; agentcore.testing.says('hello')")
