"""An `AgentTool` as a thing: copied, pickled, compared, made another one of."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.bash import create_bash_tool
from agentcore.tools.decorator import tool


@tool
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def whisper(tool_call_id: str, args: dict[str, Any]) -> AgentToolResult:
    return AgentToolResult([TextContent(args["text"].lower())])


def tidy(args: Any) -> Any:
    return args


QUIET = AgentTool("quiet", "Quiet", "Say it quietly.", {"type": "object"}, whisper, tidy, None, 5.0)


def call(made: AgentTool, **args: Any) -> str:
    return str(made.run("c1", args, None, None, None).content[0].text)


def test_a_tool_of_a_module_pickles_by_its_name() -> None:
    """What comes back is the tool itself, as with functions and classes."""
    assert pickle.loads(pickle.dumps(shout)) is shout


def test_a_tool_made_of_functions_of_a_module_pickles_with_its_fields() -> None:
    """An equal tool, that can be called."""
    again = pickle.loads(pickle.dumps([QUIET, QUIET]))
    assert again == [QUIET, QUIET] and again[0] is again[1] is not QUIET
    assert call(again[0], text="HUSH") == "hush"


def test_what_cannot_be_pickled_says_why() -> None:
    """The name of the tool and of the function, and the way out."""

    @tool
    def inner(text: str) -> str:
        """Say it."""
        return text

    for made in (
        inner,
        create_bash_tool(),
        dataclasses.replace(QUIET, execute=lambda: AgentToolResult()),
        dataclasses.replace(shout, label="x"),
    ):
        with pytest.raises(TypeError, match=f"the tool '{made.name}' cannot be pickled, .* make the tool where it is needed"):
            pickle.dumps(made)


@pytest.mark.parametrize("made", [shout, QUIET, create_bash_tool()], ids=lambda made: made.name)
def test_a_copy_is_another_tool(made: AgentTool) -> None:
    """Equal, with the same functions; a deep copy has a schema of its own."""
    for other in (copy.copy(made), copy.deepcopy(made)):
        assert other == made and other is not made and other.execute is made.execute
        other.label = "another"
        assert made.label != "another"
    assert copy.deepcopy(made).parameters is not made.parameters


def test_another_process_gets_the_tool(tmp_path: Path) -> None:
    """A tool of a module goes to a process that has not imported the module yet."""
    (tmp_path / "mine.py").write_text(
        "from agentcore import tool\n@tool\ndef add(a: int, b: int) -> int:\n    '''Add.'''\n    return a + b\n", "utf-8"
    )
    make = "import mine, pickle, sys; sys.stdout.buffer.write(pickle.dumps(mine.add))"
    take = (
        "import pickle, sys; made = pickle.load(sys.stdin.buffer); print(made.execute('c', {'a': 2, 'b': 3}, *[None] * 3).content)"
    )
    pickled = subprocess.run([sys.executable, "-c", make], cwd=tmp_path, capture_output=True, check=True, timeout=30).stdout
    result = subprocess.run([sys.executable, "-c", take], cwd=tmp_path, capture_output=True, check=True, timeout=30, input=pickled)
    assert b"text='5'" in result.stdout


def test_a_tool_of_a_function_is_called_like_the_function() -> None:
    """As if it had not been made a tool, copies too; a tool that was made by hand says how it is run."""
    assert shout("hello") == "HELLO" == copy.deepcopy(shout)(text="hello")
    with pytest.raises(TypeError, match=r"the tool 'quiet' was not made of a function by @tool: call its execute\("):
        QUIET()
