"""What is written to the session, and when; and so: what the harness is doing.

While the harness is idle, a write is stored at once. During a run (a compaction, a move) it waits: an entry in the middle of a turn
would part a call from its result. It is stored at the next save point, in the order of the calls. Whether a write waits is decided
under the same lock under which the phase changes, so none falls between two runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agentcore.custom_messages import AgentMessage
from agentcore.errors import HarnessBusyError
from agentcore.session.session import Session

HarnessPhase = Literal["idle", "turn", "compaction", "branch_summary"]

_DOING = {"turn": "a run is going", "compaction": "it is compacting the session", "branch_summary": "it is moving in the session"}


@dataclass
class _Write:
    store: Callable[[], str]
    message: AgentMessage | None


class Claim:
    """Who has the harness to itself. A claim that was given back is worth nothing."""


class Ledger:
    """Writes to a session, at the right moment. It is also the session that the agent sees.

    Args:
        session: Where entries are stored.
        on_message: `(message)`: called for each message that was stored from outside a run, when it is stored.

    Threads: any; `append_message` the run thread.
    """

    def __init__(self, session: Session, on_message: Callable[[AgentMessage], object]) -> None:
        self.session = session
        self._on_message = on_message
        # _lock guards all that follows. It is held while an entry is stored, and while the phase changes.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._phase: HarnessPhase = "idle"
        self._claim: Claim | None = None
        self._waiting: list[_Write] = []
        self._leaf_id: str | None = session.get_leaf_id()

    # --- the phase -----------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> HarnessPhase:
        """What the harness is doing. `"idle"` from the end of a run on, before listeners hear of it."""
        return self._phase

    def claim(self, phase: HarnessPhase, what: str | None = None) -> Claim:
        """Take the harness for a run, a compaction or a move.

        Raises:
            HarnessBusyError: It is taken.
        """
        with self._lock:
            if self._claim is not None:
                doing = _DOING.get(self._phase, "a run has not settled yet")
                if what is not None:
                    raise HarnessBusyError(f"{what} needs an idle harness, but {doing}: wait_for_idle() first")
                way = "use steer() or follow_up() to add a message, or " if self._phase != "idle" else ""
                raise HarnessBusyError(f"the harness is busy, since {doing}: {way}wait_for_idle() first")
            self._flush()
            self._phase = phase
            self._claim = Claim()
            return self._claim

    def release(self, claim: Claim) -> None:
        """Let go of the harness, and store what waits. Nothing happens if somebody else has it.

        Raises:
            SessionError: Something could not be stored; it still waits.
        """
        if self._pid != os.getpid():  # a forked child: the run thread, which may have held the lock, is not here
            self._pid, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            if self._claim is claim:
                self._claim = None
                self.become_idle()

    def become_idle(self) -> None:
        """Say that a run is over, though not settled, and store what waits."""
        with self._lock:
            self._phase = "idle"
            self._flush()

    # --- writing -------------------------------------------------------------------------------------------------------

    def write(self, store: Callable[[], str], message: AgentMessage | None = None) -> None:
        """Store an entry now, or at the next save point.

        Args:
            store: Appends it and returns its id.
            message: The message that it holds, if any.
        """
        with self._lock:
            self._waiting.append(_Write(store, message))
            if self._phase == "idle":
                self._flush()

    @property
    def has_waiting(self) -> bool:
        """Whether something waits for the save point."""
        return bool(self._waiting)

    def flush(self) -> list[AgentMessage]:
        """Store what waits; return the messages among it.

        Raises:
            SessionError: Something could not be stored; it still waits, and so does what came after it.
        """
        with self._lock:
            return self._flush()

    def _flush(self) -> list[AgentMessage]:
        stored: list[AgentMessage] = []
        while self._waiting:
            write = self._waiting[0]
            self._leaf_id = write.store()
            del self._waiting[0]
            if write.message is not None:
                self._on_message(write.message)
                stored.append(write.message)
        return stored

    # --- the session, as the agent sees it -----------------------------------------------------------------------------

    def append_message(self, message: AgentMessage) -> str:
        """Store a message of the run."""
        with self._lock:
            self._leaf_id = self.session.append_message(message)
            return self._leaf_id

    def build_context(self) -> Any:
        """Return the session's context, and take the transcript to be in step with it."""
        with self._lock:
            context = self.session.build_context()
            self._leaf_id = self.session.get_leaf_id()
            return context

    @property
    def is_in_step(self) -> bool:
        """Whether the transcript is what the session's context is: nobody else has written to the session or moved in it.

        With projectors or transforms nobody can tell what an entry does to the context; then it never is.
        """
        session = self.session
        return not session.transforms and not session.projectors and session.get_leaf_id() == self._leaf_id
