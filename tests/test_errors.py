"""The exceptions: one tree, with the words that a caller acts on, and they travel between processes."""

from __future__ import annotations

import copy
import pickle

import pytest

import agentcore
from agentcore import AssistantMessage, TextContent, errors

pytestmark = pytest.mark.pythons

MADE: list[errors.AgentCoreError] = [
    errors.AgentRunError("it failed", kind="rate_limit", message=AssistantMessage([TextContent("so far")], stop_reason="error")),
    errors.AgentAbortedError(reason="enough"),
    errors.AgentBusyError("a run is active"),
    errors.ToolArgumentsError("path is missing"),
    errors.EnvironmentFileError("no such file", code="not_found", path="a.txt"),
    errors.SessionError("no session", code="invalid_session"),
    errors.SessionCorruptError("line 3 is no JSON", code="invalid_entry"),
    errors.SessionLockedError("open in process 7", pid=7),
    errors.EntryNotFoundError("no entry e9"),
    errors.EntryNotStoredError("the disk is full", entry={"type": "custom", "id": "e9"}),
    errors.HarnessError("no such tool", code="invalid_argument"),
    errors.HarnessBusyError("the harness is compacting"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_errors_copy_and_pickle(error: errors.AgentCoreError) -> None:
    """Text, type and the extra attributes survive pickle, copy and deepcopy."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_every_error_of_the_library_is_an_agentcore_error() -> None:
    """One `except AgentCoreError` catches them all, and each is public."""
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert classes == {type(error) for error in MADE} | {errors.AgentCoreError}
    assert all(issubclass(cls, errors.AgentCoreError) and getattr(agentcore, cls.__name__) is cls for cls in classes)


def test_codes_are_the_words_of_the_reference() -> None:
    """Where the reference has a code, `code` is that word."""
    assert errors.EntryNotFoundError("x").code == "not_found"
    assert errors.HarnessBusyError("x").code == "busy"
    assert errors.SessionLockedError("x").code == "locked"
    assert errors.SessionLockedError("x").pid is None
    assert errors.EnvironmentFileError("x").code == "unknown"
    assert str(errors.AgentAbortedError()) == "the run was aborted"
