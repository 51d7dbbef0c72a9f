"""Three storages, one behaviour: what is done to a session in memory, in a file and in a database gives the same everywhere."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentcore.codec import encode
from agentcore.errors import AgentCoreError
from agentcore.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from agentcore.session import (
    BranchSummary,
    JsonlSessionRepo,
    MemorySessionRepo,
    Session,
    SqliteSessionRepo,
)

TEXTS = st.text(max_size=8)
CALL_IDS = st.sampled_from(["1", "2"])
PLACES = st.integers(0, 30)


class Storages(RuleBasedStateMachine):
    """Does the same to three sessions. Ids differ between them, so entries are named by their places."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        root = Path(self.folder.name)
        self.repos: list[Any] = [
            MemorySessionRepo(),
            JsonlSessionRepo(root / "sessions", fsync="never"),
            SqliteSessionRepo(root / "sessions.db", fsync="never"),
        ]
        self.sessions: list[Session] = []
        self.made: list[list[Session]] = []

    @initialize()
    def create(self) -> None:
        self._enter([repo.create(cwd="/w") for repo in self.repos])

    def teardown(self) -> None:
        for sessions in self.made:
            for session in sessions:
                session.close()
        self.folder.cleanup()

    def _enter(self, sessions: list[Session]) -> None:
        self.sessions = sessions
        self.made.append(sessions)

    def _ids(self, session: Session) -> list[str]:
        return [raw["id"] for raw in session.storage.index.raws]

    def _id(self, session: Session, place: int | None) -> str | None:
        ids = self._ids(session)
        if place is None:
            return None
        return ids[place % len(ids)] if ids else "nothing"

    def _by_place(self, session: Session, value: Any) -> Any:
        """Name entries by their places, and leave out the times at which they were stored."""
        names = {entry_id: f"#{place}" for place, entry_id in enumerate(self._ids(session))}

        def named(value: Any, key: str = "") -> Any:
            if isinstance(value, dict):
                is_made = value.get("role") in ("compactionSummary", "branchSummary", "custom")
                return {k: named(v, k) for k, v in value.items() if k != "timestamp" or not ("parentId" in value or is_made)}
            if isinstance(value, list):
                return [named(member) for member in value]
            if isinstance(value, str):
                # An entry may speak of one that the fork it is in does not have.
                return names.get(value) or ("#gone" if re.fullmatch("[0-9a-f]{8}", value) else value)
            return value

        return named(encode(value))

    def do(self, action: Any) -> Any:
        """Do the same to all; the outcome, an error too, must be the same."""
        outcomes = []
        for session in self.sessions:
            try:
                outcomes.append(self._by_place(session, action(session)))
            except (AgentCoreError, TypeError, ValueError) as error:
                text = str(error)
                for place, entry_id in enumerate(self._ids(session)):
                    text = text.replace(entry_id, f"#{place}")
                text = re.sub("'[0-9a-f]{8}'", "#gone", text)
                outcomes.append((type(error).__name__, getattr(error, "code", None), text.replace(session.id, "<id>")))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        return outcomes[0]

    # --- appending ---------------------------------------------------------------------------------------------------

    @rule(text=TEXTS)
    def ask(self, text: str) -> None:
        self.do(lambda session: session.append_message(UserMessage(text, timestamp=1)))

    @rule(text=TEXTS, calls=st.lists(CALL_IDS, max_size=3))
    def answer(self, text: str, calls: list[str]) -> None:
        content = [TextContent(text), *(ToolCall(call, "read", {"text": text}) for call in calls)]
        answer = AssistantMessage(content, "a", "p", "m", Usage(1, 2, 3, 4, 10), timestamp=2)  # type: ignore[arg-type]
        self.do(lambda session: session.append_message(answer))

    @rule(call=CALL_IDS, details=st.none() | st.floats() | TEXTS)
    def result(self, call: str, details: Any) -> None:
        result = ToolResultMessage(call, "read", [TextContent("text")], details, timestamp=3)
        self.do(lambda session: session.append_message(result))

    @rule(level=st.sampled_from(["off", "high", "low"]))
    def think(self, level: str) -> None:
        self.do(lambda session: session.append_thinking_level_change(level))

    @rule(model=TEXTS)
    def change_model(self, model: str) -> None:
        self.do(lambda session: session.append_model_change("p", model))

    @rule(names=st.lists(TEXTS, max_size=2))
    def change_tools(self, names: list[str]) -> None:
        self.do(lambda session: session.append_active_tools_change(names))

    @rule(place=st.none() | PLACES, tail=st.none() | st.lists(TEXTS, max_size=2))
    def compact(self, place: int | None, tail: list[str] | None) -> None:
        kept = None if tail is None else [UserMessage(text, timestamp=1) for text in tail]
        self.do(lambda session: session.append_compaction("S", self._id(session, place), 5, retained_tail=kept))

    @rule(data=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2))
    def note(self, data: Any) -> None:
        self.do(lambda session: session.append_custom_entry("note", data))

    @rule(text=TEXTS, display=st.booleans())
    def custom_message(self, text: str, display: bool) -> None:
        self.do(lambda session: session.append_custom_message_entry("note", text, display))

    @rule(kind=TEXTS, place=st.none() | PLACES)
    def unknown(self, kind: str, place: int | None) -> None:
        def append(session: Session) -> str:
            parent = self._id(session, place) if self._ids(session) else None
            return session.append_entry({"type": f"x-{kind}", "parentId": parent, "more": {"a_b": None}})

        self.do(append)

    @rule(place=PLACES, label=st.none() | TEXTS)
    def label(self, place: int, label: str | None) -> None:
        self.do(lambda session: session.append_label(self._id(session, place) or "", label))

    @rule(name=TEXTS)
    def name(self, name: str) -> None:
        self.do(lambda session: session.append_session_name(name))

    @rule(place=st.none() | PLACES, summary=st.none() | TEXTS, whole=st.booleans())
    def move(self, place: int | None, summary: str | None, whole: bool) -> None:
        told = BranchSummary(summary, usage=Usage(1)) if summary is not None and whole else summary
        self.do(lambda session: session.move_to(self._id(session, place), told))

    # --- opening, forking --------------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        for session in self.sessions:
            session.close()
        self._enter([repo.open(session.metadata) for repo, session in zip(self.repos, self.sessions, strict=True)])

    @rule(place=st.none() | PLACES, position=st.sampled_from(["before", "at"]))
    def fork(self, place: int | None, position: Any) -> None:
        before = [self._by_place(session, session.get_entries()) for session in self.sessions]
        forks: list[Session] = []

        def fork_one(session: Session) -> int:
            repo = self.repos[self.sessions.index(session)]
            forks.append(repo.fork(session, entry_id=self._id(session, place), position=position))
            return len(forks[-1].get_entries())

        self.do(fork_one)
        assert before == [self._by_place(session, session.get_entries()) for session in self.sessions]
        if len(forks) == 3:
            if place is None:
                for fork, parent in zip(forks, self.sessions, strict=True):
                    assert fork.tree() == parent.tree()
            self._enter(forks)

    # --- what can be seen --------------------------------------------------------------------------------------------

    @invariant()
    def all_look_the_same(self) -> None:
        if not self.sessions:
            return
        self.do(lambda session: session.get_leaf_id())
        self.do(lambda session: session.get_entries())
        self.do(lambda session: session.get_branch())
        self.do(lambda session: session.get_path())
        self.do(lambda session: session.build_context_entries())
        self.do(lambda session: session.get_session_stats())
        self.do(lambda session: [session.get_session_name(), sorted(session.storage.index.labels.values())])
        self.do(lambda session: session.build_context(projectors={"note": lambda entry: UserMessage("note", timestamp=4)}))
        drawings = [session.tree() for session in self.sessions]
        for place, session in enumerate(self.sessions):
            for number, entry_id in enumerate(self._ids(session)):
                drawings[place] = drawings[place].replace(entry_id, f"#{number:07}")
            drawings[place] = re.sub(r"\b[0-9a-f]{8}\b", "#gone", drawings[place])
        assert drawings[0] == drawings[1] == drawings[2]

    @invariant()
    def calls_and_results_pair(self) -> None:
        """In no context is there a call without its result, or a result without its call right before it."""
        for session in self.sessions[:1]:
            open_calls: list[str] = []
            for message in session.build_context().messages:
                if isinstance(message, ToolResultMessage):
                    assert open_calls, "a result without its call"
                    assert message.tool_call_id == open_calls.pop(0)
                    continue
                assert open_calls == [], "a call without its result"
                if isinstance(message, AssistantMessage):
                    open_calls = [call.id for call in message.tool_calls]
            assert open_calls == []


Storages.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStorages = Storages.TestCase


@pytest.mark.slow
class TestStoragesOften(Storages.TestCase):
    """The same, many times over."""

    settings = settings(max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
