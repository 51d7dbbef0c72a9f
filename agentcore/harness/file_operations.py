"""Which files an agent read and changed, taken from its tool calls: a summary would forget them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentcore.custom_messages import AgentMessage
from agentcore.messages import AssistantMessage


@dataclass
class FileOperations:
    """Paths as the model gave them, each once, in the order of their first appearance (the keys; the values mean nothing)."""

    read: dict[str, None] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    edited: dict[str, None] = field(default_factory=dict)

    def add_calls(self, message: AgentMessage) -> None:
        """Add the files of the read, write and edit calls of an answer."""
        if not isinstance(message, AssistantMessage):
            return
        for call in message.tool_calls:
            paths = {"read": self.read, "write": self.written, "edit": self.edited}.get(call.name)
            path = call.arguments.get("path") if isinstance(call.arguments, dict) else None
            if paths is not None and isinstance(path, str) and path:
                paths[path] = None

    def add_details(self, details: Any) -> None:
        """Add the lists that an earlier summary wrote down in its details."""
        if not isinstance(details, dict):
            return
        for key, paths in (("readFiles", self.read), ("modifiedFiles", self.edited)):
            listed = details.get(key)
            if isinstance(listed, list):
                paths.update((path, None) for path in listed if isinstance(path, str))

    def lists(self) -> tuple[list[str], list[str]]:
        """Return the files that were only read, and those that were changed, both sorted."""
        modified = {*self.written, *self.edited}
        return sorted(set(self.read) - modified), sorted(modified)


def extract_file_operations(messages: Iterable[AgentMessage]) -> FileOperations:
    """Return the files that the calls of some messages read and changed."""
    found = FileOperations()
    for message in messages:
        found.add_calls(message)
    return found


def format_file_operations(read_files: Iterable[str], modified_files: Iterable[str]) -> str:
    """Return the lists as they stand at the end of a summary; empty where there are none."""
    parts = []
    for tag, paths in (("read-files", read_files), ("modified-files", modified_files)):
        text = "\n".join(paths)
        if text:
            parts.append(f"\n\n<{tag}>\n{text}\n</{tag}>")
    return "".join(parts)
