"""The events of a streamed answer, as they arrive.

`sseclient-py` reads the events; what stands in front of it here evens out what it stumbles over:

- a byte-order mark at the start (it would lose the first event);
- line ends of all three kinds, mixed and torn apart by the network (it would glue events together);
- bytes that are not UTF-8 (it would raise);
- the rest of a stream that broke off inside an event (it would hand that on as an event): `is_torn` is set instead. A last event
  that lacks nothing but its line ends is whole, if its data is a JSON object or `[DONE]`;
- JSON without `data:` in front of it, which is how some servers say that they break off (it would pass it over).

And it counts what a stall is: a wait without a real event. Comments and pings do not end it, though they are bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from sseclient import SSEClient


class SseEvent(Protocol):
    """One event: its name (`message` if it has none) and its data."""

    event: str
    data: str


class StalledStream(Exception):
    """No real event came in time, though pings did."""


class EventStream:
    """Iterates over the events of one answer.

    Args:
        read: Returns the bytes that have arrived, waiting for the first; nothing at the end.
        set_timeout: Bounds the wait of `read`, in seconds.
        stall_timeout: The longest wait for a real event; None or 0 is without limit.
    """

    def __init__(
        self,
        read: Callable[[], bytes],
        set_timeout: Callable[[float | None], None] = lambda seconds: None,
        stall_timeout: float | None = None,
    ) -> None:
        self._read = read
        self._set_timeout = set_timeout
        self._stall_timeout = stall_timeout or None
        self.is_torn = False
        self._is_at_end = False
        self._has_event = True  # since the last read
        self._deadline = 0.0
        self._timeout: float | None = -1.0

    def __iter__(self) -> Iterator[SseEvent]:
        """Yield each event that carries data.

        Raises:
            StalledStream: See there; and what `read` raises.
        """
        for event in SSEClient(self._blocks()).events():
            data = event.data
            if len(data) < 40 and (not data or event.event == "ping" or '"ping"' in data):
                continue  # not counted as an event, nor of interest to anybody
            self._has_event = True
            yield event

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole events, one or more at a time, lines ended by LF."""
        read = self._wait_and_read
        torn: list[bytes] = []  # the beginning of an event that has not ended
        is_first = True
        ends_in_cr = False
        while got := read():
            if is_first:
                got = b"".join((*torn, got))
                torn.clear()
                if len(got) < 3 and b"\xef\xbb\xbf".startswith(got):
                    torn.append(got)
                    continue
                got = got.removeprefix(b"\xef\xbb\xbf")
                is_first = False
            if ends_in_cr and got[:1] == b"\n":
                got = got[1:]  # the other half of a CRLF that the network tore apart
            ends_in_cr = got[-1:] == b"\r"
            if b"\r" in got:
                got = got.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if torn and got[:1] == b"\n" and torn[-1].endswith(b"\n"):
                yield _valid(b"".join(torn) + b"\n")
                torn.clear()
                got = got[1:]
            end = got.rfind(b"\n\n") + 2
            if end > 1:
                torn.append(got[:end])
                yield _valid(b"".join(torn))
                torn.clear()
                got = got[end:]
            if got:
                torn.append(got)
        rest = _with_bare_json(b"".join(torn))
        if rest.strip():
            if _is_whole(rest):
                yield _valid(rest + b"\n\n")
            else:
                self.is_torn = True

    def expect_end(self, seconds: float = 2.0) -> None:
        """Say that the answer is complete: what may still come is waited for, but briefly, and whatever goes wrong is an end."""
        if not self._is_at_end:
            self._is_at_end = True
            self._stall_timeout = min(self._stall_timeout or seconds, seconds)

    def _wait_and_read(self) -> bytes:
        if not self._is_at_end:
            return self._read_in_time()
        try:
            return self._read_in_time()
        except Exception:
            return b""

    def _read_in_time(self) -> bytes:
        limit = self._stall_timeout
        if limit is not None:
            now = time.monotonic()
            if self._has_event:
                self._has_event = False
                self._deadline = now + limit
                left = limit
            else:
                left = self._deadline - now
                if left <= 0:
                    raise StalledStream
            if left != self._timeout:
                self._timeout = left
                self._set_timeout(left)
        elif self._timeout is not None:
            self._timeout = None
            self._set_timeout(None)
        return self._read()


def _with_bare_json(block: bytes) -> bytes:
    """Make an event of JSON that stands in a stream without `data:`, as an error does with which a server breaks off."""
    if block[:1] != b"{" and b"\n{" not in block:
        return block
    fields = (b"data", b"event", b"id", b"retry", b":")
    return b"\n".join(line if not line or line.startswith(fields) else b"data: " + line for line in block.split(b"\n"))


def _valid(block: bytes) -> bytes:
    block = _with_bare_json(block)
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode("utf-8", "replace").encode()
    return block


def _is_whole(rest: bytes) -> bool:
    """Whether the last event of a stream, which lacks its blank line, is all there."""
    lines = [line for line in rest.decode("utf-8", "replace").split("\n") if line]
    if all(line.startswith(":") or not line.startswith("data") for line in lines):
        return all(":" in line for line in lines)
    data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
    if data.strip() == "[DONE]":
        return True
    if not rest.endswith(b"\n") and not data.endswith("}"):
        return False  # a number or a word may go on
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
