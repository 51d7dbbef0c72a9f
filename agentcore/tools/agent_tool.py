"""What a tool is: a name, a schema, and a function that a tool worker runs."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import field, fields, replace
from enum import Enum
from types import FunctionType
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

    A copy shares the functions. A tool is pickled by its name where it stands at the top of a module, as one of `@tool` does, and
    else with its fields: then its functions must be such that pickle can find them.

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
    home: tuple[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    """The module of the function that the tool was made of, and the function's name there."""
    function: Callable[..., Any] | None = field(default=None, init=False, repr=False, compare=False)
    """The function that the tool was made of by `@tool`."""

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that the tool was made of, as if it had not been made a tool: for tests, or from other code."""
        if self.function is None:
            raise TypeError(
                f"the tool {self.name!r} was not made of a function by @tool: call its "
                "execute(tool_call_id, args, signal, on_update, context)"
            )
        return self.function(*args, **kwargs)

    def __copy__(self) -> AgentTool:
        return self._copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentTool:
        return self._copy(parameters=copy.deepcopy(self.parameters, memo))

    def _copy(self, **changes: Any) -> AgentTool:
        copied = replace(self, **changes)
        copied.function = self.function
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.home is not None and _find(*self.home) is self:
            return _find, self.home
        for function in (self.execute, self.prepare_arguments):
            if isinstance(function, FunctionType) and _find(function.__module__, function.__qualname__) is not function:
                raise TypeError(
                    f"the tool {self.name!r} cannot be pickled, since {function.__qualname__} does not stand at the top of a "
                    "module: define it (or the tool itself) there, or make the tool where it is needed"
                )
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        return _make, (type(self), values)


def _find(module: str, name: str) -> Any:
    """Return what stands under a name in a module; None if it does not."""
    found: Any = sys.modules.get(module)
    if found is None:
        import importlib

        found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _make(kind: type[AgentTool], values: dict[str, Any]) -> AgentTool:
    return kind(**values)
