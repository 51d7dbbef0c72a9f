"""The edit tool beyond the recorded cases: real files, several edits at once, bytes that are no text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore import Agent
from agentcore.abort import AbortController
from agentcore.errors import AgentAbortedError, EnvironmentFileError
from agentcore.messages import AgentToolResult, ToolResultMessage
from agentcore.testing import calls, says, scripted_stream
from agentcore.tools.edit import EditToolDetails, create_edit_tool
from agentcore.tools.text_edits import EditError


def edit(folder: Path, path: str, old: str, new: str, **options: Path) -> AgentToolResult:
    tool = create_edit_tool(cwd=folder, **options)
    result: AgentToolResult = tool.run("1", {"path": path, "edits": [{"oldText": old, "newText": new}]}, None, None, None)
    return result


def test_bom_and_crlf_stay_on_disk(tmp_path: Path) -> None:
    """C103: a file with a byte order mark and CR LF has both after an edit that was written with line feeds."""
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    edit(tmp_path, "f", "a\nb", "a\nc")
    assert (tmp_path / "f").read_bytes() == b"\xef\xbb\xbfa\r\nc\r\n"


def test_wrong_indentation_is_a_clear_error(tmp_path: Path) -> None:
    """C104: the file is untouched, and the error says that blanks count."""
    text = "  hello\n    world\n  end\n"
    (tmp_path / "f").write_text(text)
    with pytest.raises(EditError, match="must match exactly including all whitespace and newlines"):
        edit(tmp_path, "f", "hello\nworld", "goodbye\nmoon")
    assert (tmp_path / "f").read_text() == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    before=st.binary(max_size=30),
    after=st.binary(max_size=30),
    new=st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=10),
)
def test_every_byte_outside_of_the_edit_stays(tmp_path: Path, before: bytes, after: bytes, new: str) -> None:
    """Whatever the bytes around are (no UTF-8, half line ends, NULs), they are the same after an edit."""
    path = tmp_path / "f"
    path.write_bytes(before + b"<the place>" + after)
    edit(tmp_path, "f", "<the place>", f"[{new}]")
    assert path.read_bytes() == before + f"[{new}]".encode() + after


def test_half_a_surrogate_pair_does_not_smuggle_bytes(tmp_path: Path) -> None:
    """What has no UTF-8 form in the new text becomes U+FFFD; in the old text it matches nothing."""
    (tmp_path / "f").write_bytes(b"a\xffb")
    edit(tmp_path, "f", "b", "\udcfe\ud800")
    assert (tmp_path / "f").read_bytes() == b"a\xff\xef\xbf\xbd\xef\xbf\xbd"
    (tmp_path / "g").write_bytes(b"a\xffb")
    with pytest.raises(EditError, match="Could not find"):
        edit(tmp_path, "g", "\udcff", "x")


def test_edits_of_one_file_in_one_batch_take_turns_in_the_order_of_the_calls(tmp_path: Path) -> None:
    """C106: two edits in one answer, the second of what the first made, the file spelt in two ways: both are there."""
    folder = tmp_path / "one" / "two" / "three"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to("one/two/three")
    tool = create_edit_tool(cwd=tmp_path)
    for _ in range(30):
        (folder / "f").write_text("start\n")
        turn = calls("edit", path="link/../link/./f", edits=[{"oldText": "start", "newText": "middle"}]) + calls(
            "edit", path="one/two/three/f", edits=[{"oldText": "middle", "newText": "end"}]
        )
        stream = scripted_stream(turn, says("done"))
        with Agent(tools=[tool], stream_fn=stream) as agent:
            agent.run("go", timeout=20)
        results = [message for message in stream.requests[1] if isinstance(message, ToolResultMessage)]
        assert [result.text for result in results] == [
            "Successfully replaced 1 block(s) in link/../link/./f.",
            "Successfully replaced 1 block(s) in one/two/three/f.",
        ]
        assert (folder / "f").read_text() == "end\n"


def test_a_root_is_not_left(tmp_path: Path) -> None:
    """With root=, a link that leads out is not edited, and the error says so."""
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("a")
    (tmp_path / "root" / "link").symlink_to("../secret")
    root = tmp_path / "root"
    with pytest.raises(EnvironmentFileError) as caught:
        edit(root, "link", "a", "b", root=root)
    assert str(caught.value) == f"link leads out of {root}: only paths inside it may be used"
    assert (tmp_path / "secret").read_text() == "a"


def test_what_is_no_file_is_not_edited(tmp_path: Path) -> None:
    """A pipe, also behind a link, is refused at once rather than waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in ("pipe", "link"):
        with pytest.raises(EnvironmentFileError) as caught:
            edit(tmp_path, path, "a", "b")
        assert caught.value.code == "invalid"


def test_details_are_typed_and_abort_is_heeded(tmp_path: Path) -> None:
    """The details hold diff, patch and first changed line; an aborted call changes nothing."""
    (tmp_path / "f").write_text("a\nb\n")
    assert edit(tmp_path, "f", "b", "c").details == EditToolDetails(
        " 1 a\n-2 b\n+2 c", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n", 2
    )
    controller = AbortController()
    controller.abort()
    tool = create_edit_tool(cwd=tmp_path)
    with pytest.raises(AgentAbortedError, match="Operation aborted"):
        tool.run("1", {"path": "f", "edits": [{"oldText": "a", "newText": "x"}]}, controller.signal, None, None)
    assert (tmp_path / "f").read_text() == "a\nc\n"


def test_the_mode_of_an_edited_script_stays(tmp_path: Path) -> None:
    """A script can still be run after an edit."""
    path = tmp_path / "run"
    path.write_text("old")
    path.chmod(0o755)
    edit(tmp_path, "run", "old", "new")
    assert os.stat(path).st_mode & 0o777 == 0o755
