"""Paths as models write them, atomic writes, and the lock of a file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from agentcore.errors import EnvironmentFileError
from agentcore.tools.files import Arrival, absolute_path, lock_for, other_spellings, resolve_path, write_atomically

PATIENCE = 10.0
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to give files away")


# Paths


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("a/../b/./c", "/w/b/c"),
        ("@a.txt", "/w/a.txt"),
        ("@@a.txt", "/w/@a.txt"),
        ("my\u00a0file", "/w/my file"),
        ("/x//y/", "/x/y"),
        ("//x", "/x"),
        ("~/n", "/home/me/n"),
        ("~", "/home/me"),
        ("~you/n", "/w/~you/n"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("file://elsewhere/a", "/w/file:/elsewhere/a"),
        ("file:///a%2Fb", "/w/file:/a%2Fb"),
        ("", "/w"),
    ],
)
def test_a_path_is_what_a_model_means(path: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One leading @, special spaces, the home directory, file URLs and dots are understood."""
    monkeypatch.setenv("HOME", "/home/me")
    assert resolve_path(path, "/w") == wanted


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a\0b", "'a\\x00b' is no path, because it holds a NUL character: leave it out"),
        ("a\ud800", "'a\\ud800' is no path, because it holds half a surrogate pair: send it as one whole character"),
    ],
)
def test_what_can_be_no_path_is_an_error_of_ours(path: str, text: str) -> None:
    """A NUL character or half a surrogate pair is `invalid`, not a ValueError from the depths."""
    with pytest.raises(EnvironmentFileError) as caught:
        absolute_path(path, "/w")
    assert (str(caught.value), caught.value.code) == (text, "invalid")


def test_a_root_keeps_everything_inside(tmp_path: Path) -> None:
    """With root=, dots, absolute paths, links to files and to directories, and links in a chain lead nowhere else."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "inner").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("x")
    (tmp_path / "root-not").mkdir()
    (root / "file-link").symlink_to(outside / "secret")
    (root / "folder-link").symlink_to("../outside")
    (root / "chain").symlink_to("folder-link")
    (root / "dangling").symlink_to("../outside/new")
    (root / "good-link").symlink_to("inner")
    for path in (
        "../outside/secret",
        "inner/../../outside/secret",
        str(outside / "secret"),
        "file-link",
        "folder-link/secret",
        "chain/secret",
        "dangling",
        "folder-link/new/deep",
        f"file://{outside}/secret",
        "~/x",
        "../root-not",
        "..",
        "/",
    ):
        with pytest.raises(EnvironmentFileError) as caught:
            resolve_path(path, root, root)
        assert str(caught.value) == f"{path} leads out of {root}: only paths inside it may be used"
        assert caught.value.code == "permission_denied"
    real = os.path.realpath(root)
    assert resolve_path("inner/new", root, root) == f"{real}/inner/new"
    assert resolve_path("good-link/new", root, root) == f"{real}/inner/new"
    assert resolve_path(".", root, root) == real
    assert resolve_path("../root/inner", root, root) == f"{real}/inner"


def test_other_spellings_of_a_name_are_known() -> None:
    """Screenshots of macOS, decomposed accents and curly apostrophes, the path itself not among them."""
    assert other_spellings("/a/Shot 9.41 AM.png") == ["/a/Shot 9.41\u202fAM.png"]
    assert other_spellings("/a/l'\u00e9t\u00e9") == ["/a/l'e\u0301te\u0301", "/a/l\u2019\u00e9t\u00e9", "/a/l\u2019e\u0301te\u0301"]
    assert other_spellings("/a/plain") == []


# Writing


def test_a_new_file_gets_its_folders_and_the_usual_mode(tmp_path: Path) -> None:
    """Missing folders are made, and a new file has the mode that any program would give it."""
    usual = tmp_path / "usual"
    usual.touch()
    path = tmp_path / "a" / "b" / "new"
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"
    assert path.stat().st_mode == usual.stat().st_mode
    assert os.listdir(path.parent) == ["new"]


def test_mode_and_content_of_an_old_file(tmp_path: Path) -> None:
    """The mode of an old file is kept, setgid and all, and nothing is left beside it."""
    path = tmp_path / "run.sh"
    path.write_bytes(b"old and longer")
    path.chmod(0o2751)
    write_atomically(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o2751)
    assert os.listdir(tmp_path) == ["run.sh"]


@as_root
def test_the_owner_of_an_old_file_is_kept(tmp_path: Path) -> None:
    """Who owned the file owns the new one."""
    path = tmp_path / "theirs"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_uid, path.stat().st_gid) == (b"new", 12345, 23456)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    """What a link leads to is written, also through two links and where there is nothing yet."""
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "second").symlink_to("link")
    (tmp_path / "early").symlink_to("later")
    write_atomically(tmp_path / "second", b"new")
    write_atomically(tmp_path / "early", b"made")
    assert (tmp_path / "real").read_bytes() == b"new"
    assert os.readlink(tmp_path / "second") == "link"
    assert (tmp_path / "later").read_bytes() == b"made"
    assert os.readlink(tmp_path / "early") == "later"


def test_what_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    """A folder, a link in a circle and a path through a file are errors, and nothing is left behind."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, b"new")
    with pytest.raises(OSError):
        write_atomically(tmp_path / "circle", b"new")
    with pytest.raises(OSError):
        write_atomically(tmp_path / "file" / "below", b"new")
    assert sorted(os.listdir(tmp_path)) == ["circle", "file"]
    assert os.readlink(tmp_path / "circle") == "circle"


def test_folders_may_lie_as_deep_as_the_system_lets_them(tmp_path: Path) -> None:
    """A thousand missing folders are made; a path that the system does not take is an error of the system's."""
    deep = os.path.join("a/" * 1200, "file")
    try:
        write_atomically(tmp_path / deep, b"x")
        assert (tmp_path / deep).read_bytes() == b"x"
        with pytest.raises(OSError):
            write_atomically(str(tmp_path / ("a/" * 3000 + "file")), b"x")
    finally:  # pytest's own way of emptying the folder cannot go as deep
        subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True, timeout=30)


_AS_ANYBODY = """
import json, os, sys
from agentcore.tools.files import write_atomically

folder = sys.argv[1]
for name, mode in (("read-only", 0o444), ("theirs", 0o666), ("locked/old", 0o666)):
    with open(f"{folder}/{name}", "w") as file:
        file.write("old")
    os.chmod(f"{folder}/{name}", mode)
os.chmod(f"{folder}/locked", 0o555)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
found = {}
for name in ("read-only", "theirs", "locked/old", "locked/new"):
    try:
        write_atomically(f"{folder}/{name}", b"new")
        with open(f"{folder}/{name}") as file:
            found[name] = [file.read(), oct(os.stat(f"{folder}/{name}").st_mode & 0o777)]
    except OSError as error:
        found[name] = type(error).__name__
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_rights_are_respected() -> None:
    """What may not be written is not, although it could be replaced; what cannot be replaced is written in place."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        os.mkdir(f"{folder}/locked")
        ended = subprocess.run([sys.executable, "-c", _AS_ANYBODY, folder], capture_output=True, text=True, timeout=30, check=False)
        os.chmod(f"{folder}/locked", 0o755)
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == {
        "read-only": "PermissionError",
        "theirs": ["new", "0o666"],
        "locked/old": ["new", "0o666"],
        "locked/new": "PermissionError",
    }


def test_a_device_is_written_and_not_replaced() -> None:
    """What is no file is written in place."""
    write_atomically(os.devnull, b"x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


_KILLED_WHILE_EDITING = """
import os, random, signal, sys, time
from agentcore.tools.edit import create_edit_tool

path, kills = sys.argv[1], int(sys.argv[2])
one, other = "a" * 300_000 + "ONE", "a" * 300_000 + "OTHER"
with open(path, "w") as file:
    file.write(one)
tool = create_edit_tool(cwd=os.path.dirname(path))
bad = 0
for number in range(kills):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(path) as file:
                is_one = file.read() == one
            os.write(writing, b"x")
            while True:
                old, new = ("ONE", "OTHER") if is_one else ("OTHER", "ONE")
                tool.run("1", {"path": path, "edits": [{"oldText": old, "newText": new}]}, None, None, None)
                is_one = not is_one
        finally:
            os._exit(1)
    os.read(reading, 1)
    time.sleep(random.uniform(0, 0.02))  # the moment is what is tried, not an order
    os.kill(child, signal.SIGKILL)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    os.close(reading)
    os.close(writing)
    with open(path) as file:
        bad += not killed or file.read() not in (one, other)
print(bad)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill")
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_edit_leaves_the_old_or_the_new_file(tmp_path: Path, kills: int) -> None:
    """kill -9 of a process that edits a file in a loop, at random moments: the file is never torn and never empty."""
    script = [sys.executable, "-c", _KILLED_WHILE_EDITING, str(tmp_path / "file"), str(kills)]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


# Locks


@pytest.mark.pythons
def test_those_who_wait_for_a_file_are_served_in_order() -> None:
    """A lock goes to the one who has waited longest; other files are not held up."""
    order: list[int] = []
    threads: list[threading.Thread] = []

    def change(number: int) -> None:
        with lock_for("/a"):
            order.append(number)

    with lock_for("/a"):
        for number in range(20):
            thread = threading.Thread(target=change, args=(number,))
            thread.start()
            threads.append(thread)
            _wait_until_waiting("/a", number + 1)
        with lock_for("/b"):
            assert order == []
    for thread in threads:
        thread.join(PATIENCE)
    assert order == list(range(20))


def _wait_until_waiting(path: str, count: int) -> None:
    from agentcore.tools import files

    for _ in range(10_000):
        with files._turns:
            if len(files._waiting[path]) == count:
                return
        threading.Event().wait(0.001)
    raise AssertionError(f"{count} threads should wait for {path}")


@pytest.mark.pythons
def test_an_arrival_keeps_its_place_while_the_file_is_looked_for() -> None:
    """Who came first changes the file first, although it takes longer to find out which file that is."""
    order: list[str] = []
    first_arrived, let_go = threading.Event(), threading.Event()

    def slow() -> None:
        with Arrival() as arrival:
            first_arrived.set()
            assert let_go.wait(PATIENCE)
            with lock_for("/a", arrival):
                order.append("first")

    def quick() -> None:
        with Arrival() as arrival:
            threading.Timer(0.05, let_go.set).start()
            with lock_for("/a", arrival):
                order.append("second")

    threads = [threading.Thread(target=slow), threading.Thread(target=quick)]
    threads[0].start()
    assert first_arrived.wait(PATIENCE)
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["first", "second"]


@pytest.mark.pythons
def test_an_arrival_that_fails_holds_nobody_up() -> None:
    """Whoever gives up before locking anything leaves the order."""
    with pytest.raises(ValueError):
        with Arrival():
            raise ValueError("no such path")
    with Arrival() as arrival, lock_for("/a", arrival):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_takes_over_no_locks() -> None:
    """A file that another thread had locked when the process forked is free in the child."""
    script = (
        "import os, json\n"
        "from agentcore.tools.files import lock_for\n"
        "with lock_for('/a'):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        with lock_for('/a'):\n"
        "            os._exit(7)\n"
        "    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (json.loads(ended.stdout or "null"), ended.stderr) == (7, "")
