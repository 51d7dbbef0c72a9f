"""The read tool beyond the recorded cases."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, ImageContent, TextContent
from agentcore.tools import workspace
from agentcore.tools.images import ReadImageProcessorResult
from agentcore.tools.read import ReadToolDetails, ReadToolOptions, create_read_tool

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def read_file(
    folder: Path, path: str, options: ReadToolOptions | None = None, root: Path | None = None, **further: Any
) -> AgentToolResult:
    tool = create_read_tool(options, cwd=folder, root=root)
    result: AgentToolResult = tool.run("1", {"path": path, **further}, None, None, None)
    return result


@pytest.mark.parametrize("asked", ["Shot 9.41 AM.png", "Shot 9.41\u202fAM.png", "Shot\u00a09.41 AM.png"])
def test_a_screenshot_of_macos_is_found_and_sent_as_what_it_is(tmp_path: Path, asked: str) -> None:
    """C107: the name has a narrow no-break space, the model writes a plain one; the image is sent by its content."""
    (tmp_path / "Shot 9.41\u202fAM.png").write_bytes(b"\xff\xd8\xff\xe0 a JPEG")
    result = read_file(tmp_path, asked)
    data = base64.b64encode(b"\xff\xd8\xff\xe0 a JPEG").decode()
    assert result.content == [TextContent("Read image file [image/jpeg]"), ImageContent(data, "image/jpeg")]


def test_a_root_holds_for_other_spellings_too(tmp_path: Path) -> None:
    """A name that is found under another spelling may not lead out of the root either."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    (root / "it\u2019s").symlink_to("../secret")
    with pytest.raises(EnvironmentFileError, match="it's leads out of"):
        read_file(root, "it's", root=root)
    (root / "fine\u2019s").write_text("fine")
    assert read_file(root, "fine's", root=root).content == [TextContent("fine")]


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    """A device or a pipe is refused at once, also behind a link, rather than read for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in ("pipe", "link", "/dev/zero"):
        with pytest.raises(EnvironmentFileError) as caught:
            read_file(tmp_path, path)
        assert caught.value.code == "invalid"


@pytest.mark.skipif(not os.path.exists("/proc/kmsg"), reason="needs such a file of the kernel's")
def test_a_file_of_the_kernel_that_waits_is_not_waited_for(tmp_path: Path) -> None:
    """It looks like a file, and reading it would take until the kernel says something."""
    with pytest.raises(EnvironmentFileError) as caught:
        read_file(tmp_path, "/proc/kmsg")
    assert caught.value.code in ("invalid", "permission_denied")


def test_the_command_in_a_hint_can_be_run_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the path has blanks and belongs to the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my file").write_text("x" * 60_000)
    (block,) = read_file(tmp_path, "~/my file").content
    assert isinstance(block, TextContent)
    assert block.text == "[Line 1 is 58.6KB, exceeds 50.0KB limit. Use bash: sed -n '1p' ~/'my file' | head -c 51200]"


def test_a_file_that_is_too_large_is_refused_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the size, the limit and a command."""
    monkeypatch.setattr(workspace, "MAX_FILE_BYTES", 2048)
    (tmp_path / "big file").write_bytes(b"x" * 3000)
    with pytest.raises(EnvironmentFileError) as caught:
        read_file(tmp_path, "big file")
    path = os.path.realpath(tmp_path / "big file")
    assert str(caught.value) == (f"{path} has 2.9KB, more than 2.0KB: use bash on a part of it, such as head -c 51200 '{path}'")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error says what is not there."""
    with pytest.raises(EnvironmentFileError) as caught:
        read_file(tmp_path, "no/such.txt")
    assert caught.value.code == "not_found"
    assert str(caught.value).endswith("no/such.txt: there is no such file or directory, check the path")


def test_an_abort_before_the_start_reads_nothing(tmp_path: Path) -> None:
    """An aborted call ends with the code for it."""
    (tmp_path / "a").write_text("x")
    controller = AbortController()
    controller.abort()
    with pytest.raises(EnvironmentFileError) as caught:
        create_read_tool(cwd=tmp_path).run("1", {"path": "a"}, controller.signal, None, None)
    assert caught.value.code == "aborted"


def test_a_page_leads_to_the_next_one(tmp_path: Path) -> None:
    """Reading on where each result says so gives every line once."""
    lines = [f"line {number}\n" for number in range(1, 4501)]
    (tmp_path / "long").write_text("".join(lines))
    offset, seen = 1, ""
    while True:
        result = read_file(tmp_path, "long", offset=offset)
        (block,) = result.content
        assert isinstance(block, TextContent)
        page, _, notice = block.text.partition("\n\n[Showing lines ")
        seen += page + "\n" if notice else page
        if not notice:
            break
        assert isinstance(result.details, ReadToolDetails) and result.details.truncation is not None
        offset = int(notice.split("offset=")[1].split()[0])
    assert seen == "".join(lines)


def test_an_image_processor_replaces_pillow(tmp_path: Path) -> None:
    """It gets the bytes, the kind told by the content, and the options; its answer is what the model gets."""
    (tmp_path / "i.txt").write_bytes(PNG)
    calls: list[tuple[int, str, bool]] = []

    def process(content: bytes, mime_type: str, options: ReadToolOptions) -> ReadImageProcessorResult:
        calls.append((len(content), mime_type, options.auto_resize_images))
        return ReadImageProcessorResult(data="QUJD", mime_type="image/webp", hints=["made small"])

    result = read_file(tmp_path, "i.txt", ReadToolOptions(auto_resize_images=False, image_processor=process))
    assert result.content == [TextContent("Read image file [image/webp]\nmade small"), ImageContent("QUJD", "image/webp")]
    assert calls == [(len(PNG), "image/png", False)]


def test_an_image_processor_may_take_fewer_arguments(tmp_path: Path) -> None:
    """Like every callback; one that needs more is refused when the tool is made."""
    (tmp_path / "i.png").write_bytes(PNG)

    def process(content: bytes) -> ReadImageProcessorResult:
        return ReadImageProcessorResult(ok=False, message=f"{len(content)} bytes")

    result = read_file(tmp_path, "i.png", ReadToolOptions(image_processor=process))  # type: ignore[arg-type]
    assert result.content == [TextContent("Read image file [image/png]\n70 bytes")]
    with pytest.raises(TypeError, match="image_processor gets at most 3 arguments"):
        create_read_tool(ReadToolOptions(image_processor=lambda a, b, c, d: None))  # type: ignore[arg-type]
