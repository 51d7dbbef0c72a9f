"""The write tool beyond the recorded cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore import Agent
from agentcore.abort import AbortController
from agentcore.errors import AgentAbortedError, EnvironmentFileError
from agentcore.testing import calls, says, scripted_stream
from agentcore.tools.write import create_write_tool


def test_writes_of_one_file_in_one_batch_take_turns(tmp_path: Path) -> None:
    """The last call of the answer has the last word."""
    for _ in range(20):
        turn = calls("write", path="f", content="first" * 1000) + calls("write", path="./f", content="second")
        with Agent(tools=[create_write_tool(cwd=tmp_path)], stream_fn=scripted_stream(turn, says("done"))) as agent:
            agent.run("go", timeout=20)
        assert (tmp_path / "f").read_text() == "second"


def test_a_root_is_not_left_and_nothing_is_made_outside(tmp_path: Path) -> None:
    """With root=, no directory is made and no file written elsewhere, not even through a link to nothing."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("../new")
    tool = create_write_tool(root=root)
    for path in ("../new/f", "link", "link/f", str(tmp_path / "new" / "f"), "a/../../new"):
        with pytest.raises(EnvironmentFileError, match="leads out of"):
            tool.run("1", {"path": path, "content": "x"}, None, None, None)
    assert not (tmp_path / "new").exists()
    tool.run("1", {"path": "sub/f", "content": "x"}, None, None, None)
    assert (root / "sub" / "f").read_text() == "x"


def test_an_aborted_write_writes_nothing(tmp_path: Path) -> None:
    """A call whose signal is set before it starts leaves no file."""
    controller = AbortController()
    controller.abort("enough")
    with pytest.raises(AgentAbortedError, match="Operation aborted"):
        create_write_tool(cwd=tmp_path).run("1", {"path": "f", "content": "x"}, controller.signal, None, None)
    assert list(tmp_path.iterdir()) == []
