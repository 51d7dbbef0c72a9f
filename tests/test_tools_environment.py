"""The local environment: paths, files, and what commands get to see."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from agentcore.abort import AbortController
from agentcore.errors import EnvironmentFileError
from agentcore.provider_keys import PROVIDER_KEY_VARIABLES, is_provider_key_variable
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment

posix_only = pytest.mark.skipif(os.name == "nt", reason="commands need a POSIX system")


def output_of(environment: LocalEnvironment, command: str, **options: object) -> str:
    """Return what a command prints on its standard output."""
    output: list[bytes] = []
    environment.run_command(command, lambda stream, data: output.append(data), **options)  # type: ignore[arg-type]
    return b"".join(output).decode()


def variables_of(environment: LocalEnvironment, **options: object) -> dict[str, str]:
    """Return the variables that a command sees, apart from those that the shell sets itself."""
    lines = output_of(environment, "env -0", **options).split("\0")
    return {name: value for name, _, value in (line.partition("=") for line in lines if line) if name not in ("_", "SHLVL", "PWD")}


@posix_only
def test_commands_get_no_key_of_a_provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """C116: of all variables that hold a key, a command sees none."""
    names = [name for names in PROVIDER_KEY_VARIABLES.values() for name in names] + ["A_PROVIDER_OF_MY_OWN_API_KEY"]
    for name in names:
        monkeypatch.setenv(name, f"secret of {name}")
    monkeypatch.setenv("KEPT", "kept")
    seen = variables_of(LocalEnvironment(tmp_path))
    assert seen["KEPT"] == "kept"
    assert not set(names) & set(seen)
    assert "secret of" not in str(seen)


@posix_only
def test_a_key_is_handed_over_when_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """C116: all keys by `pass_provider_keys`, one by its name in `allowed_variables`, or by setting it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("GROQ_API_KEY", "gsk-1")
    all_keys = variables_of(LocalEnvironment(tmp_path, pass_provider_keys=True))
    assert (all_keys["OPENAI_API_KEY"], all_keys["GROQ_API_KEY"]) == ("sk-1", "gsk-1")
    one_key = variables_of(LocalEnvironment(tmp_path, allowed_variables=["*", "GROQ_API_KEY"]))
    assert ("OPENAI_API_KEY" in one_key, one_key["GROQ_API_KEY"]) == (False, "gsk-1")
    own_key = variables_of(LocalEnvironment(tmp_path, env={"OPENAI_API_KEY": "sk-2"}))
    assert (own_key["OPENAI_API_KEY"], "GROQ_API_KEY" in own_key) == ("sk-2", False)
    assert variables_of(LocalEnvironment(tmp_path), env={"OPENAI_API_KEY": "sk-3"})["OPENAI_API_KEY"] == "sk-3"


@posix_only
def test_an_allow_list_leaves_out_everything_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Names and patterns; what is set for the environment or for the command comes in any case."""
    for name in ("LC_TIME", "LC_NAME", "LANG_X", "EXACT"):
        monkeypatch.setenv(name, "C")
    environment = LocalEnvironment(tmp_path, env={"MINE": "1"}, allowed_variables=["PATH", "LC_*", "EXACT"])
    assert variables_of(environment, env={"OURS": "2"}) == {
        **{name: value for name, value in os.environ.items() if name.startswith("LC_")},
        "PATH": os.environ["PATH"],
        "EXACT": "C",
        "MINE": "1",
        "OURS": "2",
    }


@posix_only
def test_without_inherited_variables_a_command_gets_only_what_is_set(tmp_path: Path) -> None:
    """`inherit_env=False` of the environment leaves its own variables; that of a command leaves the command's."""
    environment = LocalEnvironment(tmp_path, env={"MINE": "1"}, inherit_env=False)
    assert environment.command_env({"OURS": "2"}) == {"MINE": "1", "OURS": "2"}
    assert environment.command_env({"OURS": "2"}, inherit_env=False) == {"OURS": "2"}
    assert output_of(environment, "echo $MINE ${HOME-unset}") == "1 unset\n"


def test_one_pattern_instead_of_a_list_is_refused() -> None:
    """A string is a list of letters only by accident."""
    with pytest.raises(TypeError, match=r"allowed_variables must be a list of patterns, not one string: write \['PATH'\]"):
        LocalEnvironment(allowed_variables="PATH")


def test_key_variables_are_known_in_any_case() -> None:
    """Windows does not tell `openai_api_key` from `OPENAI_API_KEY`."""
    assert is_provider_key_variable("openai_api_key")
    assert not is_provider_key_variable("PATH")


def test_the_working_directory_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later `chdir` of the program does not move an environment; a relative one is made absolute."""
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    here, below = LocalEnvironment(), LocalEnvironment("sub")
    monkeypatch.chdir("/")
    assert here.cwd == str(tmp_path)
    assert below.cwd == str(tmp_path / "sub")
    assert below.absolute_path("../x") == str(tmp_path / "x")


def test_a_local_environment_is_an_execution_environment(tmp_path: Path) -> None:
    """It has every method of the interface."""
    environment: ExecutionEnvironment = LocalEnvironment(tmp_path)
    wanted = {name for name in vars(ExecutionEnvironment) if not name.startswith("_")}
    assert wanted <= set(dir(environment))


def test_a_file_is_replaced_in_one_step_and_keeps_its_mode(tmp_path: Path) -> None:
    """Writing goes through the same way as the tools': a link is followed, the mode is kept, directories are made."""
    environment = LocalEnvironment(tmp_path)
    (tmp_path / "real.sh").write_text("old")
    os.chmod(tmp_path / "real.sh", 0o750)
    (tmp_path / "link").symlink_to("real.sh")
    environment.write_file("link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real.sh").read_text() == "new"
    assert stat.S_IMODE(os.stat(tmp_path / "real.sh").st_mode) == 0o750
    environment.write_file("a/b/c.bin", b"\0\xff")
    assert environment.read_binary_file("a/b/c.bin") == b"\0\xff"
    assert sorted(os.listdir(tmp_path)) == ["a", "link", "real.sh"]


def test_appends_from_many_threads_are_all_there(tmp_path: Path) -> None:
    """Each append is whole."""
    environment = LocalEnvironment(tmp_path)

    def append() -> None:
        for _ in range(50):
            environment.append_file("log.txt", "0123456789\n")

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (tmp_path / "log.txt").read_text() == "0123456789\n" * 200


@posix_only
def test_the_first_lines_of_a_pipe_that_stays_open_can_be_read(tmp_path: Path) -> None:
    """No more is read than is asked for: a program that goes on writing is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    may_close = threading.Event()

    def write() -> None:
        with open(tmp_path / "pipe", "w") as file:
            file.write("one\ntwo\nthree\n")
            file.flush()
            may_close.wait(10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert LocalEnvironment(tmp_path).read_text_lines("pipe", max_lines=2) == ["one", "two"]
    finally:
        may_close.set()
        writer.join(10)


def test_errors_name_the_path_and_the_way_out(tmp_path: Path) -> None:
    """Each text begins with what was tried, names the path, and ends with what to do."""
    environment = LocalEnvironment(tmp_path)
    (tmp_path / "f").write_text("x")
    (tmp_path / "d").mkdir()

    def text_of(code: str, method: str, *arguments: object) -> str:
        with pytest.raises(EnvironmentFileError) as caught:
            getattr(environment, method)(*arguments)
        assert caught.value.code == code
        assert caught.value.path is not None
        return str(caught.value).replace(str(tmp_path), "HERE")

    assert text_of("not_found", "read_text_file", "no") == (
        "cannot read HERE/no: there is no such file or directory, check the path"
    )
    assert text_of("is_directory", "read_text_file", "d") == "cannot read HERE/d: it is a directory, name a file"
    assert text_of("not_directory", "list_dir", "f") == (
        "cannot list HERE/f: it is a file, or leads through one, where a directory is needed"
    )
    assert text_of("unknown", "remove", "d") == (
        "cannot remove HERE/d: it is a directory, ask for recursive to remove it with all that is in it"
    )
    assert text_of("invalid", "read_text_file", "a\0b").endswith("because it holds a NUL character: leave it out")
    assert text_of("invalid", "read_text_file", "x" * 300).startswith("cannot read HERE/xxx")


_AS_ANYBODY = """
import os, sys
from agentcore.errors import EnvironmentFileError
from agentcore.tools.environment import LocalEnvironment

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    LocalEnvironment(sys.argv[1]).read_text_file("f")
except EnvironmentFileError as error:
    print(error.code)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_a_file_that_may_not_be_read_is_told_apart() -> None:
    """Its code is `permission_denied`."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "f").write_text("x")
        os.chmod(Path(folder, "f"), 0)
        ended = subprocess.run([sys.executable, "-c", _AS_ANYBODY, folder], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.stdout, ended.stderr) == ("permission_denied\n", "")


def test_an_aborted_operation_does_nothing(tmp_path: Path) -> None:
    """A signal that is set: `aborted`, and no file."""
    controller = AbortController()
    controller.abort()
    environment = LocalEnvironment(tmp_path)
    for operation in (
        lambda: environment.write_file("f", "x", signal=controller.signal),
        lambda: environment.append_file("f", "x", signal=controller.signal),
        lambda: environment.read_text_file("f", signal=controller.signal),
        lambda: environment.read_text_lines("f", signal=controller.signal),
        lambda: environment.list_dir(".", signal=controller.signal),
    ):
        with pytest.raises(EnvironmentFileError) as caught:
            operation()
        assert caught.value.code == "aborted"
    assert os.listdir(tmp_path) == []


def test_devices_and_pipes_are_left_out_of_a_list(tmp_path: Path) -> None:
    """Files, directories and links are listed, sorted by name, with size and time."""
    (tmp_path / "b.txt").write_text("abc")
    os.utime(tmp_path / "b.txt", ns=(0, 1_700_000_000_123_000_000))
    (tmp_path / "a").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    found = LocalEnvironment(tmp_path).list_dir(".")
    assert [(info.name, info.kind) for info in found] == [("a", "directory"), ("b.txt", "file")]
    assert (found[1].size_bytes, found[1].modified_ms) == (3, 1_700_000_000_123)


@posix_only
def test_a_shell_of_ones_own_is_used(tmp_path: Path) -> None:
    """Any program that takes `-c COMMAND` will do."""
    assert output_of(LocalEnvironment(tmp_path, shell_path="/bin/sh"), "echo $0") == "/bin/sh\n"
    assert output_of(LocalEnvironment(tmp_path, shell_path=sys.executable), "print(1 + 1)") == "2\n"
