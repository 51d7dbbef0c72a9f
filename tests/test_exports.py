"""The public names: each can be had, is the same object wherever it comes from, and a misspelt one is noticed."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import agentcore

SOURCE = Path(agentcore.__file__)
ROOT = SOURCE.parent.parent


def type_checking_imports() -> dict[str, str]:
    """Return name → module of the imports that only a type checker sees."""
    tree = ast.parse(SOURCE.read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("name", agentcore.__all__)
def test_every_name_of_all_is_there(name: str) -> None:
    """Whatever `__all__` promises can be had from the package."""
    assert getattr(agentcore, name) is not None


def test_all_names_no_name_twice() -> None:
    """`__all__` has each name once."""
    assert len(set(agentcore.__all__)) == len(agentcore.__all__)


def test_the_three_lists_agree() -> None:
    """What a type checker sees of the lazy names is what `__getattr__` gives; all of it is in `__all__`."""
    seen = type_checking_imports()
    submodules = {name for name, module in seen.items() if module == "agentcore"}
    homes = {name: module for name, module in seen.items() if module != "agentcore"}
    assert homes == agentcore._HOMES
    assert submodules == set(agentcore._SUBMODULES)
    assert set(homes) <= set(agentcore.__all__)
    eager = {name for name in vars(agentcore) if name in agentcore.__all__ and name not in homes}
    assert eager | set(homes) == set(agentcore.__all__)


def test_a_lazy_name_is_the_one_of_its_home() -> None:
    """`agentcore.x` and `agentcore.room.x` are one object."""
    for name, module in agentcore._HOMES.items():
        assert getattr(agentcore, name) is getattr(importlib.import_module(module), name), name


def test_dir_shows_the_lazy_names() -> None:
    """`dir(agentcore)`, and so completion in a notebook, has every public name."""
    assert set(agentcore.__all__) <= set(dir(agentcore))
    assert {"testing", "tools"} <= set(dir(agentcore))


def test_a_misspelt_name_says_so() -> None:
    """An unknown name is an AttributeError that names it; `from agentcore import` makes an ImportError of it."""
    with pytest.raises(AttributeError, match="module 'agentcore' has no attribute 'Agnet'"):
        agentcore.Agnet  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Agnet'"):
        exec("from agentcore import Agnet")


def test_a_misspelt_name_fails_mypy(tmp_path: Path) -> None:
    """`mypy --strict` of a user's program sees the public names and refuses a misspelt one."""
    program = tmp_path / "program.py"
    names = list(agentcore.__all__)
    program.write_text(
        "import agentcore\n"
        + "".join(f"agentcore.{name}\n" for name in names)
        + "agentcore.testing.says('hello')\n"
        + "agentcore.Agnet\n"
        + "from agentcore import promt\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "--config-file", "", str(program)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
    )
    complaints = [line.split(": error: ")[1] for line in done.stdout.splitlines() if line.startswith(str(program))]
    line = len(names) + 3
    assert [text.split(";")[0].split("  ")[0] for text in complaints] == [
        'Module has no attribute "Agnet"',
        'Module "agentcore" has no attribute "promt"',
    ], done.stdout
    assert f"program.py:{line}: error" in done.stdout


USERS_PROGRAM = """
from collections.abc import Iterable
from pathlib import Path

import agentcore
from agentcore import Agent, AgentEvent, AgentMessage, AssistantMessageEvent, JsonlSessionRepo, JsonlSessionStorage, Message
from agentcore import MessageContent, Session, SessionTreeEntry, ToolResultMessage, UserMessage
from agentcore.testing import says, scripted_stream


def tell_message(message: AgentMessage) -> str:
    if message.role == "assistant":
        return f"{message.usage.total_tokens} {message.stop_reason} {[call.name for call in message.tool_calls]}"
    if message.role == "toolResult":
        return message.error or message.tool_name
    if message.role == "bashExecution":
        return message.command
    if message.role == "custom":
        return message.custom_type
    if str(message.role) == "notification":
        return "of our own"
    return message.text if message.role == "user" else ""


def tell_block(block: MessageContent) -> str:
    if block.type == "text":
        return block.text
    if block.type == "tool":
        return str(block.arguments)
    return block.data if block.type == "image" else block.thinking


def tell_entry(entry: SessionTreeEntry) -> object:
    if entry.type == "message":
        return tell_message(entry.message)
    if entry.type == "compaction":
        return entry.tokens_before
    if entry.type == "branch_summary":
        return entry.from_id
    return entry.target_id if entry.type == "leaf" else entry.id


def tell_event(event: AgentEvent) -> object:
    if event.type == "message_update":
        said: AssistantMessageEvent = event.assistant_message_event
        return said.delta if said.type == "text_delta" or said.type == "thinking_delta" else None
    if event.type == "tool_execution_end":
        return event.result.content
    return event.tool_results if event.type == "turn_end" else None


def spoken(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages if message.role != "toolResult"]


def main(folder: Path) -> None:
    with JsonlSessionRepo(folder).create(cwd=folder) as session:
        entry_id: str = session.append_message(UserMessage("hello"))
        session.append_message({"role": "user", "content": "again"})
        session.append_compaction("they greeted", entry_id, 1200)
        session.move_to(entry_id, {"summary": "left"})
        agent = Agent(system_prompt="Be brief.", stream_fn=scripted_stream(says("hi")), session=session)
        unsubscribe = agent.subscribe(lambda event, signal: print(tell_event(event)))
        print(agent.run("go").text, [tell_message(message) for message in agent.messages])
        unsubscribe()
        print([tell_entry(entry) for entry in session.get_branch()], session.build_context().messages[0].role)
    with Session(JsonlSessionStorage.open(folder / "s.jsonl", fsync="never")) as again:
        results = [m for m in again.build_context().messages if isinstance(m, ToolResultMessage)]
        print(results, again.get_session_stats().cost_total, spoken(agentcore.convert_to_llm(again.build_context().messages)))
"""


def test_a_users_program_passes_mypy(tmp_path: Path) -> None:
    """`mypy --strict` takes a program that tells messages, blocks, entries and events apart by their `role` or `type`."""
    program = tmp_path / "program.py"
    program.write_text(USERS_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "--config-file", "", str(program)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith(str(program))] == []
    assert done.returncode in (0, 1), done.stderr


def test_the_version_is_that_of_the_distribution() -> None:
    """`agentcore.__version__` is the installed version of agentcore-sync."""
    from importlib.metadata import version

    assert agentcore.__version__ == version("agentcore-sync")
