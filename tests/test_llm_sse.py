"""Events come out of a stream as they arrive, whatever the network and the server do to their lines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from agentcore.llm.sse import EventStream, StalledStream

pytestmark = pytest.mark.pythons


def read_all(chunks: Iterable[bytes]) -> tuple[list[tuple[str, str]], bool]:
    """Return name and data of each event, and whether the stream ended inside one."""
    source = iter(chunks)
    stream = EventStream(lambda: next(source, b""))
    return [(event.event, event.data) for event in stream], stream.is_torn


def data_of(chunks: Iterable[bytes]) -> list[str]:
    events, is_torn = read_all(chunks)
    assert not is_torn
    return [data for _, data in events]


def cuts(body: bytes) -> Iterator[list[bytes]]:
    """Cut a body in two at every place, and into single bytes, threes and sevens."""
    for place in range(1, len(body)):
        yield [body[:place], body[place:]]
    for size in (1, 3, 7):
        yield [body[start : start + size] for start in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"data: a\r\ndata: b\r\n\r\n", ["a\nb"], id="C001: a CR at the end of a chunk"),
        pytest.param(
            'data: {"t":"a\u2028b\u0085c\x0cd"}\n\n'.encode(), ['{"t":"a\u2028b\u0085c\x0cd"}'], id="C002: U+2028, U+0085"
        ),
        pytest.param(b'data: {"n":1}\n\r\ndata: {"n":2}\n\r\n', ['{"n":1}', '{"n":2}'], id="C004: LF, then CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", ["a", "b"], id="CR alone"),
        pytest.param(b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", ["a", "b", "c"], id="all line ends, mixed"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", ["a", "b"], id="byte-order mark"),
        pytest.param(b": comment\ndata: a\n: more\n\n:\n\ndata: b\n\n", ["a", "b"], id="comments"),
        pytest.param(b"data:a\n\ndata:  b\n\n", ["a", " b"], id="one blank is taken off"),
        pytest.param(b"id: 1\nretry: 5\ndata: a\n\n", ["a"], id="other fields"),
        pytest.param(b"data: a\xff\xc3b\n\n", ["a\ufffd\ufffdb"], id="not UTF-8"),
        pytest.param("data: é日本😀\n\n".encode(), ["é日本😀"], id="characters of several bytes"),
        pytest.param(b"data\n\ndata:\n\ndata: a\n\n", ["a"], id="no data"),
        pytest.param(b'event: ping\ndata: {}\n\ndata: {"type": "ping"}\n\ndata: a\n\n', ["a"], id="pings"),
        pytest.param(b"data: a\n\ndata: [DONE]", ["a", "[DONE]"], id="the end mark without its line end"),
        pytest.param(b'data: a\n\ndata: {"n":1}\n', ["a", '{"n":1}'], id="a last event without its blank line"),
        pytest.param(b'data: a\n\ndata: {"n":1}', ["a", '{"n":1}'], id="a last event without its line end"),
        pytest.param(b"data: a\n\n: bye", ["a"], id="a comment at the end"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_events_are_the_same_however_the_network_cuts_them(body: bytes, expected: list[str]) -> None:
    """A body gives the same events whole, cut in two anywhere, and in small pieces."""
    assert data_of([body] if body else []) == expected
    for chunks in cuts(body):
        assert data_of(chunks) == expected, chunks


def test_a_name_stays_with_its_event() -> None:
    """An event has its name; one without is a `message`."""
    assert read_all([b"event: delta\ndata: a\n\ndata: b\n\n"]) == ([("delta", "a"), ("message", "b")], False)


@pytest.mark.parametrize("rest", [b'data: {"a', b'data: {"a":1', b"data: tru", b"dat", b'event: x\ndata: {"a":', b"data: {\n"])
def test_a_torn_rest_is_no_event(rest: bytes) -> None:
    """What a stream that broke off leaves behind is told as such, and never handed on."""
    assert read_all([b"data: whole\n\n", rest]) == ([("message", "whole")], True)
    assert read_all([bytes([byte]) for byte in b"data: whole\n\n" + rest]) == ([("message", "whole")], True)


def test_an_event_is_handed_on_before_the_next_bytes_come() -> None:
    """Nothing waits for the bytes behind an event: not with LF, CRLF, nor CR."""
    for end in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        chunks = iter([b"data: a" + end])

        def read(chunks: Iterator[bytes] = chunks) -> bytes:
            return next(chunks)  # raises StopIteration if it is asked once more

        assert next(iter(EventStream(read))).data == "a"


def test_a_large_event_is_read_in_linear_time() -> None:
    """Eight megabytes in one event, in pieces of 4 KB, take well under a second."""
    body = b"data: " + b"x" * 8_000_000 + b"\n\n"
    begun = time.process_time()
    (data,) = data_of([body[start : start + 4096] for start in range(0, len(body), 4096)])
    assert len(data) == 8_000_000
    assert time.process_time() - begun < 1.0


def test_pings_do_not_put_a_stall_off() -> None:
    """C008: comments and pings are bytes, but no events: the wait between events is bounded all the same."""
    timeouts: list[float | None] = []

    def read() -> bytes:
        time.sleep(0.02)
        return b": ping\n\n"

    begun = time.monotonic()
    with pytest.raises(StalledStream):
        list(EventStream(read, timeouts.append, 0.2))
    assert 0.15 < time.monotonic() - begun < 1.0
    given = [timeout for timeout in timeouts if timeout is not None]
    assert given[0] == 0.2 and sorted(given, reverse=True) == given


def test_events_put_a_stall_off() -> None:
    """A stream that takes longer than the limit in all is fine, as long as each event comes in time."""
    chunks = iter([b"data: a\n\n"] * 6)

    def read() -> bytes:
        time.sleep(0.05)
        return next(chunks, b"")

    assert len(list(EventStream(read, stall_timeout=0.2))) == 6


@pytest.mark.parametrize("off", [None, 0, 0.0])
def test_the_stall_limit_can_be_turned_off(off: float | None) -> None:
    """None and 0 mean no limit."""
    timeouts: list[float | None] = []
    chunks = iter([b": ping\n\n"] * 3 + [b"data: a\n\n"])
    assert [event.data for event in EventStream(lambda: next(chunks, b""), timeouts.append, off)] == ["a"]
    assert timeouts == [None]


def test_what_fails_behind_a_complete_answer_is_its_end() -> None:
    """After `expect_end` a stall or a broken connection is no failure."""

    def read() -> bytes:
        if not told:
            told.append(True)
            return b"data: a\n\n"
        raise OSError("broken")

    told: list[bool] = []
    stream = EventStream(read, stall_timeout=300)
    seen = []
    for event in stream:
        seen.append(event.data)
        stream.expect_end()
    assert seen == ["a"]
