"""Messages that wait for the run: steered ones for its next turn, follow-ups for when it would stop."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from typing import Literal, get_args

from agentcore.custom_messages import AgentMessage

QueueMode = Literal["one-at-a-time", "all"]
"""How many waiting messages go into one turn."""


class PendingMessageQueue:
    """Messages in the order in which they came, over a `queue.Queue`.

    Threads:
        Any thread puts; the run thread drains, as often as it asks for messages. What is left stays for the next run.
    """

    def __init__(self, mode: QueueMode = "one-at-a-time") -> None:
        self.mode = mode
        self._queue: queue.Queue[AgentMessage] = queue.Queue()

    @property
    def mode(self) -> QueueMode:
        """`"one-at-a-time"` or `"all"`: what `drain` takes."""
        return self._mode

    @mode.setter
    def mode(self, mode: QueueMode) -> None:
        if mode not in get_args(QueueMode):
            raise ValueError(f"a queue mode is 'one-at-a-time' or 'all', not {mode!r}")
        self._mode: QueueMode = mode

    def put(self, message: AgentMessage) -> None:
        """Add a message at the end."""
        self._queue.put(message)

    def put_back(self, messages: Iterable[AgentMessage]) -> None:
        """Put messages that were drained and not delivered back to the front, in their order."""
        with self._queue.mutex:
            self._queue.queue.extendleft(reversed(list(messages)))

    def drain(self) -> list[AgentMessage]:
        """Take the messages for one turn: the first one, or all that are there."""
        messages: list[AgentMessage] = []
        try:
            messages.append(self._queue.get_nowait())
            while self._mode == "all":
                messages.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return messages

    def clear(self) -> None:
        """Drop all messages."""
        with self._queue.mutex:
            self._queue.queue.clear()

    def messages(self) -> list[AgentMessage]:
        """Return the waiting messages, without taking them."""
        with self._queue.mutex:
            return list(self._queue.queue)

    def has_items(self) -> bool:
        """Return whether a message waits."""
        return not self._queue.empty()

    def __len__(self) -> int:
        return self._queue.qsize()
