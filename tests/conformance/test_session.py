"""The recorded session operations and session files (`functions/session.json`), in files, in memory and in a database."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore.codec import dumps, encode
from agentcore.errors import SessionError
from agentcore.messages import UserMessage
from agentcore.session import (
    JsonlSessionRepo,
    JsonlSessionStorage,
    MemorySessionRepo,
    Session,
    SessionMetadata,
    SqliteSessionRepo,
)
from agentcore.session.jsonl_file import read_metadata
from tests.conformance.cases import case_params, check, expand, put_tokens
from tests.conformance.differences_session import OUR_WORDS, Moment, our_files, our_results


@pytest.mark.filterwarnings("ignore::agentcore.session.SessionRepairWarning")
@pytest.mark.parametrize("case", case_params("session.json"))
def test_recorded(case: dict[str, Any], tmp_path: Path) -> None:
    """In files, every operation gives what the reference gives, and the files hold the same lines."""
    player = _Player(tmp_path, JsonlSessionRepo(tmp_path / "sessions"))
    try:
        results = player.play(expand(case["input"]))
        expected = _expected(case, player.told_moments())
        check(*_same_errors(expected["results"], results))
        check(expected["files"], player.files(expected["files"]))
    finally:
        player.close()


@pytest.mark.parametrize("case", case_params("session.json", lambda case: bool(case.get("memory_same"))))
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_recorded_elsewhere(case: dict[str, Any], kind: str, tmp_path: Path) -> None:
    """In memory and in a database, every operation gives the same as in files, but for the paths."""
    player = _Player(tmp_path, MemorySessionRepo() if kind == "memory" else SqliteSessionRepo(tmp_path / "sessions.db"))
    try:
        results = player.play(expand(case["input"]))
        expected = _expected(case, player.told_moments())
    finally:
        player.close()
    check(*_same_errors(_without_metadata(expected["results"]), _without_metadata(results)))


def _expected(case: dict[str, Any], moments: list[Moment]) -> dict[str, Any]:
    """Return what we expect: contents that are strings as one block, and the lines of each file, by the file's last name."""
    files = {_last_name(name): _lines(text) for name, text in case["expected"].get("files", {}).items()}
    results = our_results(case["expected"]["results"], moments)
    return {"results": _strings_as_blocks(results), "files": our_files(files)}


def _last_name(path: str) -> str:
    return Path(path).stem.rpartition("_")[2]


def _without_metadata(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what `create` and `fork` gave: their sessions have other paths."""
    return [{"op": result["op"]} if result["op"] in ("create", "fork") and "result" in result else result for result in results]


def _same_errors(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return both lists; where the texts of two errors say the same in their own words, with the code alone."""
    pairs = []
    for wanted, got in zip(expected, actual, strict=True):
        if "error" in wanted and "error" in got and _says_the_same(wanted["error"], got["error"]["message"]):
            wanted = {"op": wanted["op"], "error": {"code": wanted["error"]["code"]}}
            got = {"op": got["op"], "error": {"code": got["error"]["code"]}}
        pairs.append((wanted, got))
    return [wanted for wanted, _ in pairs], [got for _, got in pairs]


def _says_the_same(error: dict[str, Any], ours: str) -> bool:
    for code, recorded, words in OUR_WORDS:
        match = re.fullmatch(recorded, error["message"]) if error.get("code") == code else None
        if match:
            for number, group in enumerate(match.groups(), start=1):
                words = words.replace(f"\\{number}", re.escape(group))
            return re.fullmatch(words, ours) is not None
    return bool(error.get("code"))  # a text that the table does not know: its code says what it is


def _strings_as_blocks(value: Any) -> Any:
    if isinstance(value, list):
        return [_strings_as_blocks(member) for member in value]
    if not isinstance(value, dict):
        return value
    made = {key: _strings_as_blocks(member) for key, member in value.items()}
    if isinstance(made.get("content"), str) and ("role" in made or "customType" in made):
        made["content"] = [{"type": "text", "text": made["content"]}]
    return made


def _lines(text: str) -> list[Any]:
    lines: list[Any] = []
    for line in text.split("\n"):
        if line:
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append(line)
    return lines


class _Player:
    """Does the operations of a case, one after the other, on one repo."""

    def __init__(self, folder: Path, repo: Any) -> None:
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self.folder = folder
        self.repo = repo
        self.sessions: dict[str, Session] = {}
        self.current: Session | None = None
        self.opened: list[Session] = []
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.counts = {"e": 0, "leaf": 0}
        self.moments: list[Moment] = []

    def close(self) -> None:
        for session in self.opened:
            session.close()

    def play(self, case: dict[str, Any]) -> list[dict[str, Any]]:
        for name, text in case.get("session_files", {}).items():
            (self.cwd / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        results = []
        for op in case["ops"]:
            op = self._given(op)
            self.moments.append(self._moment(op))
            try:
                result: dict[str, Any] = {"result": self._do(op)}
            except SessionError as error:
                text = re.sub(r"\d{4}-\d\d-\d\dT[\d-]+Z", "<time>", str(error))
                result = {"error": {"code": error.code, "message": text}}
            self._note_ids()
            results.append(put_tokens({"op": op["op"], **result}, self._tokens()))
        return results

    def told_moments(self) -> list[Moment]:
        """Return what was seen before each operation, in the words of the recording."""
        tokens = self._tokens()
        return [Moment(moment.file, put_tokens(moment.name, tokens), put_tokens(moment.path, tokens)) for moment in self.moments]

    def _moment(self, op: dict[str, Any]) -> Moment:
        session = self.sessions[op["session"]] if "session" in op else self.current
        path = self.cwd / op["path"] if op["op"] in ("open_file", "load_metadata") else None
        if op["op"] == "reopen" and session is not None and session.metadata.path:
            path = Path(session.metadata.path)
        moment = Moment()
        if path is not None and path.is_file():
            moment.name, moment.file = str(path), path.read_bytes().decode("utf-8", "replace")
        if op["op"] in ("getBranch", "buildContext", "buildContextWithProjector") and session is not None:
            raws = {raw["id"]: raw for raw in session.storage.index.raws}
            entry_id = op.get("fromId") or session.storage.index.leaf_id
            while entry_id in raws:
                moment.path.insert(0, raws[entry_id])
                entry_id = raws[entry_id].get("parentId")
            if entry_id is not None:
                moment.path.clear()  # a part of it is missing
        return moment

    def files(self, expected: dict[str, Any]) -> dict[str, Any]:
        """Return the lines of the files, those given beforehand only where the recording has them again."""
        made: dict[str, Any] = {}
        for path in sorted(self.folder.rglob("*.jsonl")):
            name = _last_name(path.name)
            if name in expected or not path.is_relative_to(self.cwd):
                made[name] = put_tokens(_lines(path.read_text("utf-8", "surrogatepass")), self._tokens())
        return made

    def _tokens(self) -> dict[str, str]:
        return {
            str(self.cwd): "<CWD>",
            str(self.folder / "sessions"): "<SESSIONS>",
            str(self.cwd).lstrip("/").replace("/", "-"): "<CWD-DASHED>",
            **self.ids,
        }

    def _given(self, value: Any) -> Any:
        if isinstance(value, str):
            value = self.names.get(value[1:], value) if value.startswith("$") else value
            return value.replace("<CWD>", str(self.cwd)).replace("<SESSIONS>", str(self.folder / "sessions"))
        if isinstance(value, list):
            return [self._given(member) for member in value]
        return {key: self._given(member) for key, member in value.items()} if isinstance(value, dict) else value

    def _note_ids(self) -> None:
        """Give the ids made since the last operation their tokens, in the order of their making."""
        if self.current is None:
            return
        for raw in [raw for session in self.opened for raw in session.storage.index.raws]:
            if raw["id"] not in self.ids and re.fullmatch(r"[0-9a-f]{8}", raw["id"]):
                kind = "leaf" if raw["type"] == "leaf" else "e"
                self.counts[kind] += 1
                self.ids[raw["id"]] = f"<{kind}{self.counts[kind]}>"

    def _enter(self, session: Session, op: dict[str, Any]) -> dict[str, Any]:
        self.current = session
        self.opened.append(session)
        if "as" in op:
            self.sessions[op["as"]] = session
        return self._told(session.metadata)

    def _told(self, metadata: SessionMetadata) -> dict[str, Any]:
        told: dict[str, Any] = encode(metadata)
        if told.get("path"):
            told["path"] = re.sub(r"\d{4}-\d\d-\d\dT[\d-]+Z", "<time>", told["path"])
        if told.get("parentSessionPath"):
            told["parentSessionPath"] = re.sub(r"\d{4}-\d\d-\d\dT[\d-]+Z", "<time>", told["parentSessionPath"])
        return told

    def _do(self, op: dict[str, Any]) -> Any:
        name = op["op"]
        if name in ("create", "fork", "list", "list_ids", "open_file", "load_metadata", "tick"):
            return self._do_repo(op)
        session = self.sessions[op["session"]] if "session" in op else self.current
        assert session is not None
        path = Path(session.metadata.path or "/nowhere")
        if name in ("overwrite", "appendRaw"):
            with open(path, "w" if name == "overwrite" else "a", encoding="utf-8", newline="") as file:
                file.write(op["text"])
            return "ok"
        if name == "reopen":
            session.close()
            self._enter(self.repo.open(session.metadata), op)
            return "ok"
        if name == "delete":
            session.close()
            return self.repo.delete(session.metadata)
        if name == "open_deleted":
            return self.repo.open(session.metadata)
        made = _SESSION_OPS[name](session, op)
        if "as" in op:
            self.names[op["as"]] = made
        return made

    def _do_repo(self, op: dict[str, Any]) -> Any:
        name = op["op"]
        if name == "tick":
            time.sleep(0.003)  # sessions are listed by the time of their making, in milliseconds
            return "ok"
        if name == "load_metadata":
            return self._told(read_metadata(str(self.cwd / op["path"])))
        if name == "open_file":
            return self._enter(Session(JsonlSessionStorage.open(self.cwd / op["path"])), op)
        if name == "list":
            return [self._told(metadata) for metadata in self.repo.list(op.get("cwd"))]
        if name == "list_ids":
            return [metadata.id for metadata in self.repo.list(op.get("cwd"))]
        given = {"metadata": op.get("metadata"), "parent_session": op.get("parentSessionPath")}
        if name == "create":
            return self._enter(
                self.repo.create(cwd=op.get("cwd", str(self.cwd)), session_id=op.get("id", "session-1"), **given), op
            )
        assert self.current is not None
        source = next(session for session in self.opened if session.id == "session-1")
        fork = self.repo.fork(
            source,
            entry_id=op.get("entryId"),
            position=op.get("position", "before"),
            session_id=op.get("id", "session-2"),
            cwd=op.get("cwd"),
            **given,
        )
        return self._enter(fork, op)


def _context(session: Session, **kwargs: Any) -> Any:
    return encode(session.build_context(**kwargs))


def _project(session: Session, op: dict[str, Any]) -> Any:
    def projector(entry: Any, index: int, entries: Any) -> UserMessage:
        return UserMessage(f"projected {dumps(entry.data)} at {index} of {len(entries)}", timestamp=1)

    return _context(session, projectors={op["customType"]: projector})


def _compaction(session: Session, op: dict[str, Any]) -> str:
    return session.append_compaction(
        op["summary"],
        op.get("firstKeptEntryId"),
        op["tokensBefore"],
        details=op.get("details"),
        from_hook=op.get("fromHook"),
        usage=op.get("usage"),
        retained_tail=op.get("retainedTail"),
    )


_SESSION_OPS: dict[str, Callable[[Session, dict[str, Any]], Any]] = {
    "appendMessage": lambda session, op: session.append_message(op["message"]),
    "appendThinkingLevelChange": lambda session, op: session.append_thinking_level_change(op["level"]),
    "appendModelChange": lambda session, op: session.append_model_change(op["provider"], op["modelId"]),
    "appendActiveToolsChange": lambda session, op: session.append_active_tools_change(op["names"]),
    "appendCustomEntry": lambda session, op: session.append_custom_entry(op["customType"], op.get("data")),
    "appendCustomMessageEntry": lambda session, op: session.append_custom_message_entry(
        op["customType"], op["content"], op["display"], op.get("details")
    ),
    "appendLabel": lambda session, op: session.append_label(op["targetId"], op.get("label")),
    "appendSessionName": lambda session, op: session.append_session_name(op["name"]),
    "appendCompaction": _compaction,
    "moveTo": lambda session, op: session.move_to(op["entryId"], op.get("summary")),
    "getLeafId": lambda session, op: session.get_leaf_id(),
    "getEntry": lambda session, op: encode(session.get_entry(op["id"])),
    "getEntries": lambda session, op: [
        encode(entry)
        for entry in session.get_entries(op.get("options", {}).get("afterEntrySeq"), op.get("options", {}).get("limit"))
    ],
    "getLabel": lambda session, op: session.get_label(op["id"]),
    "getSessionName": lambda session, op: session.get_session_name(),
    "getSessionStats": lambda session, op: encode(session.get_session_stats()),
    "buildContext": lambda session, op: _context(session),
    "buildContextWithProjector": _project,
    "getBranch": lambda session, op: [entry.id for entry in session.get_branch(op.get("fromId"))],
    "buildContextEntries": lambda session, op: [entry.id for entry in session.build_context_entries()],
    "findEntries": lambda session, op: [entry.id for entry in session.find_entries(op["type"])],
}
