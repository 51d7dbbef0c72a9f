"""What an agent works with: `AgentTool`, `@tool`, the tools that every coding agent has, and the environment that they work in.

The room knows the words and nothing else of the library. Only `agent_tool` is imported with it; everything else comes when its name
is first used, and what needs a library of its own (jsonschema, pathspec, Pillow, docstring-parser) imports that only then.
"""

# The lists are packed: this file is read as an index.
# ruff: noqa: I001
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from agentcore.tools.agent_tool import AgentTool, EXECUTION_PARALLEL, EXECUTION_SEQUENTIAL, ToolExecutionMode, ToolUpdateFn

if TYPE_CHECKING:
    from agentcore.tools.arguments import validate_tool_arguments, validate_tool_call
    from agentcore.tools.bash import (
        BashExecution, BashPrepare, BashToolDetails, BashToolInput, BashToolOptions, create_bash_tool,
    )
    from agentcore.tools.decorator import tool
    from agentcore.tools.edit import EditToolDetails, EditToolInput, EditToolReplacement, create_edit_tool
    from agentcore.tools.environment import ExecutionEnvironment, FileInfo, FileKind, LocalEnvironment
    from agentcore.tools.find import FindToolDetails, FindToolInput, create_find_tool
    from agentcore.tools.grep import GrepToolDetails, GrepToolInput, create_grep_tool
    from agentcore.tools.images import ReadImageProcessorResult
    from agentcore.tools.ls import LsToolDetails, LsToolInput, create_ls_tool
    from agentcore.tools.read import (
        ReadImageProcessor, ReadToolDetails, ReadToolInput, ReadToolOptions, create_read_tool,
    )
    from agentcore.tools.truncate import TruncationResult, truncate_head, truncate_line, truncate_tail
    from agentcore.tools.write import WriteToolInput, create_write_tool

__all__ = [
    "EXECUTION_PARALLEL", "EXECUTION_SEQUENTIAL", "AgentTool", "BashExecution", "BashPrepare", "BashToolDetails",
    "BashToolInput", "BashToolOptions", "EditToolDetails", "EditToolInput", "EditToolReplacement", "ExecutionEnvironment",
    "FileInfo", "FileKind", "FindToolDetails", "FindToolInput", "GrepToolDetails", "GrepToolInput", "LocalEnvironment",
    "LsToolDetails", "LsToolInput", "ReadImageProcessor", "ReadImageProcessorResult", "ReadToolDetails", "ReadToolInput",
    "ReadToolOptions", "ToolExecutionMode", "ToolUpdateFn", "TruncationResult", "WriteToolInput", "create_bash_tool",
    "create_edit_tool", "create_find_tool", "create_grep_tool", "create_ls_tool", "create_read_tool", "create_write_tool",
    "tool", "truncate_head", "truncate_line", "truncate_tail", "validate_tool_arguments", "validate_tool_call",
]

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would let every misspelt name pass
    _LAZY = {
        "arguments": ("validate_tool_arguments", "validate_tool_call"),
        "bash": ("BashExecution", "BashPrepare", "BashToolDetails", "BashToolInput", "BashToolOptions", "create_bash_tool"),
        "decorator": ("tool",),
        "edit": ("EditToolDetails", "EditToolInput", "EditToolReplacement", "create_edit_tool"),
        "environment": ("ExecutionEnvironment", "FileInfo", "FileKind", "LocalEnvironment"),
        "find": ("FindToolDetails", "FindToolInput", "create_find_tool"),
        "grep": ("GrepToolDetails", "GrepToolInput", "create_grep_tool"),
        "images": ("ReadImageProcessorResult",),
        "ls": ("LsToolDetails", "LsToolInput", "create_ls_tool"),
        "read": ("ReadImageProcessor", "ReadToolDetails", "ReadToolInput", "ReadToolOptions", "create_read_tool"),
        "truncate": ("TruncationResult", "truncate_head", "truncate_line", "truncate_tail"),
        "write": ("WriteToolInput", "create_write_tool"),
    }
    _HOMES = {name: module for module, names in _LAZY.items() for name in names}

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'agentcore.tools' has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(f"agentcore.tools.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
