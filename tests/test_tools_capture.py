"""What is kept of a command's output: the tail, the totals, the file; always whole characters."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.errors import EnvironmentFileError
from agentcore.tools.capture import OutputCapture, execute_shell, execute_shell_with_capture
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment
from agentcore.tools.truncate import sanitize_binary_output, truncate_tail


class ElsewhereEnvironment:
    """An environment that is not this machine as far as its class tells; files are kept in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.appended: list[int] = []
        self.is_full = False

    def create_temp_file(self, *, prefix: str = "", suffix: str = "") -> str:
        path = f"/elsewhere/{prefix}1{suffix}"
        self.files[path] = b""
        return path

    def append_file(self, path: str, content: bytes) -> None:
        if self.is_full:
            raise EnvironmentFileError("no space", code="unknown", path=path)
        self.files[path] += content
        self.appended.append(len(content))

    def remove(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        del self.files[path]


def elsewhere() -> tuple[ElsewhereEnvironment, ExecutionEnvironment]:
    """Return such an environment, as itself and as what the capture takes."""
    made = ElsewhereEnvironment()
    return made, made  # type: ignore[return-value]


def clean(data: bytes) -> str:
    """Return what is to be kept of some output, the plain way."""
    return sanitize_binary_output(data.decode("utf-8", "replace").replace("\r", ""))


AWKWARD = [b"\n", b"\n\n", b"a\r\nb", "€".encode()[:2], "€".encode()[2:], b"\xef\xbf", b"\xb9", b"\x00\x1b[0m"]

pieces_of_output = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from(AWKWARD),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(pieces_of_output, st.integers(0, 6), st.integers(0, 40))
def test_any_output_in_any_pieces_is_kept_as_if_it_came_at_once(pieces: list[bytes], max_lines: int, max_bytes: int) -> None:
    """Tail, totals, file and what is passed on do not depend on how the output was cut into pieces."""
    kept, environment = elsewhere()
    capture = OutputCapture(environment, max_lines=max_lines, max_bytes=max_bytes)
    passed_on = b"".join([*(capture.add("stdout", piece) for piece in pieces), capture.finish()])
    whole = clean(b"".join(pieces))
    assert passed_on.decode("utf-8") == whole
    assert capture.result() == truncate_tail(whole, max_lines=max_lines, max_bytes=max_bytes)
    lines = whole.removesuffix("\n").rpartition("\n")[2]
    assert capture.size_of_last_line == len(lines.encode("utf-8"))
    if capture.result().truncated:
        assert capture.full_output_path is not None
        assert kept.files[capture.full_output_path].decode("utf-8") == whole
    else:
        assert capture.full_output_path is None and kept.files == {}


def test_each_stream_is_decoded_by_itself() -> None:
    """A character that comes in two pieces is whole, also if the other stream speaks in between."""
    capture = OutputCapture(elsewhere()[1])
    added = [capture.add("stdout", b"x\xe2"), capture.add("stderr", b"!"), capture.add("stdout", b"\x82\xac\n")]
    assert [*added, capture.finish()] == [b"x", b"!", "€\n".encode(), b""]


def test_the_file_elsewhere_is_written_in_large_pieces() -> None:
    """An environment that is not this machine is not called for every piece of 64 KB."""
    kept, environment = elsewhere()
    capture = OutputCapture(environment)
    for _ in range(100):
        capture.add("stdout", b"x" * 65535 + b"\n")
    capture.finish()
    assert sum(kept.appended) == 100 * 65536
    assert len(kept.appended) <= 8


def test_the_file_on_this_machine_is_private_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can read the output of a command."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    capture = OutputCapture(LocalEnvironment(), prefix="mine-")
    capture.add("stdout", b"line\n" * 3000)
    capture.add("stderr", b"end")
    capture.finish()
    assert capture.full_output_path is not None
    path = Path(capture.full_output_path)
    assert path.name.startswith("mine-") and path.suffix == ".log"
    assert path.read_bytes() == b"line\n" * 3000 + b"end"
    assert path.stat().st_mode & 0o077 == 0
    assert capture.total_lines == 3001


def test_without_a_file_the_tail_is_kept_and_the_reason_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no path of a file that is not there; the counts are right all the same."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    capture = OutputCapture(LocalEnvironment())
    for _ in range(3):
        capture.add("stdout", b"x\n" * 1500)
    capture.finish()
    assert capture.full_output_path is None
    assert capture.unsaved_because is not None and capture.unsaved_because.code == "not_found"
    assert str(capture.unsaved_because).startswith(f"cannot make a temporary directory in {tmp_path}/gone: ")
    result = capture.result()
    assert (result.total_lines, result.total_bytes, result.output_lines) == (4500, 9000, 2000)


@pytest.mark.skipif(os.name == "nt", reason="needs limits of a POSIX system")
def test_a_file_that_outgrows_the_disk_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the output that looks like the whole would mislead, and would fill the disk."""
    import resource

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        capture = OutputCapture(LocalEnvironment())
        for _ in range(4):
            capture.add("stdout", b"0123456789\n" * 4000)
        capture.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert capture.full_output_path is None and capture.unsaved_because is not None
    assert str(capture.unsaved_because).endswith("file too large")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert capture.result().total_lines == 16_000


def test_a_file_elsewhere_that_cannot_be_completed_is_given_up() -> None:
    """What was not written yet is lost with the file: the tail is not."""
    kept, environment = elsewhere()
    capture = OutputCapture(environment)
    capture.add("stdout", b"x\n" * 2001)
    kept.is_full = True
    capture.finish()
    assert capture.full_output_path is None and str(capture.unsaved_because) == "no space"
    assert kept.files == {}
    assert capture.result().output_lines == 2000


@pytest.mark.skipif(os.name == "nt", reason="commands need a POSIX system")
def test_execute_shell_keeps_everything_as_it_came(tmp_path: Path) -> None:
    """Nothing is cleaned or cut; each stream is a text of its own."""
    result = execute_shell(LocalEnvironment(tmp_path), r"printf 'a\r\n\033[0m'; seq 1 3000 >&2; exit 4")
    assert result.stdout == "a\r\n\x1b[0m"
    assert result.stderr == "".join(f"{number}\n" for number in range(1, 3001))
    assert result.exit_code == 4


@pytest.mark.skipif(os.name == "nt", reason="commands need a POSIX system")
def test_execute_shell_with_capture_takes_limits_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail is that of the limits given."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = execute_shell_with_capture(LocalEnvironment(tmp_path), "seq 1 10", max_lines=2)
    assert (result.output, result.truncated, result.exit_code) == ("9\n10", True, 0)
    assert result.full_output_path is not None
    assert Path(result.full_output_path).read_text() == "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
