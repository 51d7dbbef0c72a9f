"""What a tool is: a name, a schema, and a function that a tool worker runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import Any

from agentcore.callbacks import fit_callback
from agentcore.lazy_dataclasses import dataclass
from agentcore.messages import AgentToolResult


class ToolExecutionMode(str, Enum):
    """Whether the calls of one answer run at the same time or one after the other."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


EXECUTION_SEQUENTIAL = ToolExecutionMode.SEQUENTIAL
EXECUTION_PARALLEL = ToolExecutionMode.PARALLEL

ToolUpdateFn = Callable[[AgentToolResult], None]
"""Reports a partial result from inside `execute`. It only puts and returns; after `execute` has returned it does nothing."""

EXECUTE_NAMES = ("tool_call_id", "args", "signal", "on_update", "context")


@dataclass
class AgentTool:
    """A function that a model may call.

    Args:
        name: What the model calls it by: letters, digits, `_` and `-`.
        label: What a person sees.
        description: What it does, for the model.
        parameters: JSON Schema of the arguments, an object.
        execute: `(tool_call_id, args, signal, on_update, context)`, or fewer (see `agentcore.callbacks`). `args` have been
            validated and may be changed. It returns an `AgentToolResult`; raising makes an error result.
        prepare_arguments: `(args)`: makes the model's raw arguments fit before they are validated.
        execution_mode: `SEQUENTIAL` makes every batch with a call of this tool run one by one.
        timeout: Seconds after which a call is given up: its signal is aborted and the model gets an error result.

    Threads:
        `execute` runs on a tool worker (`agentcore-tool-…`), several calls at the same time unless sequential;
        `prepare_arguments` runs on the run thread.

    Raises:
        TypeError: A function needs more arguments than there are, `parameters` is no dictionary, or `timeout` no number.
        ValueError: `timeout` is not above 0, or `execution_mode` is neither of the two.
    """

    name: str
    label: str
    description: str
    parameters: dict[str, Any]
    execute: Callable[..., AgentToolResult]
    prepare_arguments: Callable[..., Any] | None = None
    execution_mode: ToolExecutionMode | None = None
    timeout: float | None = None
    run: Callable[..., Any] = field(init=False, repr=False, compare=False)
    """`execute` with all five arguments, whatever it takes."""

    def __post_init__(self) -> None:
        self.run = fit_callback(self.execute, EXECUTE_NAMES, what=f"execute of the tool {self.name!r}")
        if self.prepare_arguments is not None:
            fit_callback(self.prepare_arguments, ("args",), what=f"prepare_arguments of the tool {self.name!r}")
        if not isinstance(self.parameters, dict):
            kind = type(self.parameters).__name__
            raise TypeError(f"the parameters of the tool {self.name!r} must be a JSON Schema as a dictionary, not {kind}")
        if self.timeout is not None and not isinstance(self.timeout, (int, float)):
            raise TypeError(f"the timeout of the tool {self.name!r} must be seconds or None, not {type(self.timeout).__name__}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"the timeout of the tool {self.name!r} is {self.timeout}: give seconds above 0, or None for no limit")
        if self.execution_mode is not None:
            try:
                self.execution_mode = ToolExecutionMode(self.execution_mode)
            except ValueError:
                given = self.execution_mode
                raise ValueError(
                    f"the execution_mode of the tool {self.name!r} is {given!r}: give 'sequential', 'parallel' or None"
                ) from None
