"""Every exception of the library.

    AgentCoreError
    ├─ AgentRunError            the run failed; the text says why, `kind` says which sort of failure
    ├─ AgentAbortedError        the run was aborted
    ├─ AgentBusyError           a run is active
    ├─ ToolArgumentsError       the model's arguments do not fit the tool
    ├─ EnvironmentFileError     a file or command operation failed; `code` says how
    ├─ SessionError             `code`
    │  ├─ SessionCorruptError   the file cannot be read as a session
    │  ├─ SessionLockedError    another process writes to it; `pid`
    │  ├─ EntryNotFoundError    no entry of that id
    │  └─ EntryNotStoredError   an entry could not be written; `entry`
    └─ HarnessError             `code`
       └─ HarnessBusyError      the harness is not idle

A class exists where a caller would act differently; a wrong argument is a `TypeError` or a `ValueError`. Where the
reference implementation has a code (`busy`, `not_found`, `aborted`, …), `code` is that word.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

ErrorKind = Literal[
    "auth",
    "rate_limit",
    "quota",
    "overflow",
    "network",
    "timeout",
    "server",
    "request",
    "protocol",
    "refusal",
    "hook",
    "setup",
    "unknown",
]
"""Which sort of failure ended a request or a run.

- `auth`: the key is missing or was refused (401, 403); `quota`: the account is out of credit
- `rate_limit`: too many requests (429); `server`: the provider failed or is overloaded (5xx)
- `overflow`: the context is larger than the model takes; `request`: any other refused request (4xx)
- `network`: no connection, or a broken one; `timeout`: no answer in time, or a stalled stream
- `protocol`: the answer was not what the wire format promises; `refusal`: the model or a filter refused
- `hook`: a hook, a listener or a custom stream function raised; `setup`: no model, no such wire format, …
"""

EnvironmentErrorCode = Literal[
    "aborted",
    "not_found",
    "permission_denied",
    "not_directory",
    "is_directory",
    "invalid",
    "not_supported",
    "timeout",
    "spawn_error",
    "shell_unavailable",
    "callback_error",
    "unknown",
]


class FailedMessage(Protocol):
    """What an `AgentRunError` knows of the assistant message that ended the run."""

    @property
    def error_message(self) -> str | None: ...

    @property
    def stop_reason(self) -> str: ...

    @property
    def content(self) -> Any: ...


class AgentCoreError(Exception):
    """The base of all errors that the library raises on its own account."""


class AgentRunError(AgentCoreError):
    """A run failed. `message` is the assistant message that says so, `kind` the sort of failure."""

    def __init__(self, text: str, *, kind: ErrorKind = "unknown", message: FailedMessage | None = None) -> None:
        super().__init__(text)
        self.kind: ErrorKind = kind
        self.message = message


class AgentAbortedError(AgentCoreError):
    """A run, or the operation that raises this, was aborted. `reason` is what was given to `abort`."""

    def __init__(self, text: str = "the run was aborted", *, reason: object = None) -> None:
        super().__init__(text)
        self.reason = reason


class AgentBusyError(AgentCoreError):
    """A run is active, and what was asked for needs an idle agent."""


class ToolArgumentsError(AgentCoreError):
    """The arguments of a tool call do not fit the tool's schema. The text is written for the model."""


class EnvironmentFileError(AgentCoreError):
    """A file or command operation failed. `code` says how, `path` says on what (None for commands)."""

    def __init__(self, text: str, *, code: EnvironmentErrorCode = "unknown", path: str | None = None) -> None:
        super().__init__(text)
        self.code: EnvironmentErrorCode = code
        self.path = path


class SessionError(AgentCoreError):
    """A session operation failed. `code` is the reference's word."""

    def __init__(self, text: str, *, code: str = "invalid_session") -> None:
        super().__init__(text)
        self.code = code


class SessionCorruptError(SessionError):
    """The file is no session, or a line inside it cannot be read. The text names the line."""


class SessionLockedError(SessionError):
    """Another process has the session open for writing. `pid` is its id, None where it is not known."""

    def __init__(self, text: str, *, pid: int | None = None) -> None:
        super().__init__(text, code="locked")
        self.pid = pid


class EntryNotFoundError(SessionError):
    """The session has no entry of that id."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code="not_found")


class EntryNotStoredError(SessionError):
    """An entry could not be written: the disk is full, the file is gone, … The session is as it was before.

    `entry` is the entry that is not stored, in its JSON form, `entry_id` its id; appending it once more is safe.
    """

    def __init__(self, text: str, *, entry: dict[str, Any] | None = None) -> None:
        super().__init__(text, code="not_stored")
        self.entry: dict[str, Any] = {} if entry is None else entry
        self.entry_id: str = self.entry.get("id", "")


class HarnessError(AgentCoreError):
    """A harness operation failed. `code` is the reference's word."""

    def __init__(self, text: str, *, code: str = "unknown") -> None:
        super().__init__(text)
        self.code = code


class HarnessBusyError(HarnessError):
    """The harness is in another phase, and what was asked for needs an idle one."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code="busy")
