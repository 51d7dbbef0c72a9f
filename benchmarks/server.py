"""A scripted chat-completions server in a process of its own, so that its work is not counted as ours.

What it answers is said by the path in front of `/v1/chat/completions`:

    /turns/N          a tool call, until the request holds N results; then a word
    /turns/N/MS       the same, after MS milliseconds of thinking
    /text/N           N text deltas, sent as fast as they can be read
    /thinking/N       N thinking deltas
    /arguments/N      one tool call whose arguments come in N deltas of 9 bytes
    /clock/N          N text deltas, one every 3 ms; each is the time at which it was written, in ns
    /calls/N          N tool calls in one answer, then a word
    /silent           one delta, and then nothing
    /mute             nothing, not even headers
    /then-mute        a word; to a request that has an answer in it nothing
    /busy             503, and the advice to try again after 30 s

    with serve() as url:
        …
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK_BYTES = 16_384
END = b"0\r\n\r\n"


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Start the server; yield its address."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    """Serve until standard input ends: when the parent is gone, so is this."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listener.getsockname()[1], flush=True)
    threading.stack_size(256 * 1024)
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_talk, args=(connection,), daemon=True).start()


def _talk(connection: socket.socket) -> None:
    reader = connection.makefile("rb", buffering=1 << 16)
    with contextlib.suppress(OSError, ValueError, IndexError):
        while request := reader.readline():
            length = 0
            while (line := reader.readline()) not in (b"\r\n", b""):
                if line[:15].lower() == b"content-length:":
                    length = int(line[15:])
            body = reader.read(length)
            script = request.split()[1].decode().partition("/v1/")[0].strip("/").split("/")
            _answer(connection, script[0], [int(number) for number in script[1:]], body)
    connection.close()


def _answer(connection: socket.socket, kind: str, numbers: list[int], body: bytes) -> None:
    if kind == "mute" or (kind == "then-mute" and b'"assistant"' in body):
        time.sleep(3600)
    elif kind == "then-mute":
        connection.sendall(_word())
    elif kind == "busy":
        connection.sendall(b"HTTP/1.1 503 Busy\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n")
    elif kind == "silent":
        connection.sendall(HEAD + _chunk(_event(_delta({"role": "assistant", "content": "hello"}))))
        time.sleep(3600)
    elif kind == "clock":
        connection.sendall(HEAD)
        for _ in range(numbers[0]):
            time.sleep(0.003)
            connection.sendall(_chunk(_event(_delta({"content": f"{time.monotonic_ns()} "}))))
        connection.sendall(_chunk(_finish("stop")) + END)
    elif kind in ("turns", "calls"):
        done = body.count(b'"tool_call_id"')
        if len(numbers) > 1:
            time.sleep(numbers[1] / 1000)
        if done >= numbers[0]:
            connection.sendall(_word())
        elif kind == "turns":
            connection.sendall(_call(done))
        else:
            connection.sendall(_calls(numbers[0]))
    else:
        connection.sendall(_deltas(kind, numbers[0]))


def _delta(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice], **more}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _finish(reason: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return _event(_delta({}, reason)) + _event({**_delta({}), "choices": [], "usage": usage}) + b"data: [DONE]\n\n"


@functools.cache
def _word() -> bytes:
    events = _event(_delta({"role": "assistant", "content": "Done."})) + _finish("stop")
    return HEAD + _chunk(events) + END


@functools.cache
def _call(number: int) -> bytes:
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": '{"city":'}}
    events = (
        _event(_delta({"role": "assistant", "content": None, "tool_calls": [call]}))
        + _event(_delta({"tool_calls": [{"index": 0, "function": {"arguments": f'"town {number}"}}'}}]}))
        + _finish("tool_calls")
    )
    return HEAD + _chunk(events) + END


@functools.cache
def _calls(count: int) -> bytes:
    calls = [
        {"index": n, "id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": f'{{"city":"town {n}"}}'}}
        for n in range(count)
    ]
    return HEAD + _chunk(_event(_delta({"role": "assistant", "tool_calls": calls})) + _finish("tool_calls")) + END


@functools.cache
def _deltas(kind: str, count: int) -> bytes:
    if kind == "arguments":
        start: dict[str, Any] = {
            "index": 0,
            "id": "call_0",
            "type": "function",
            "function": {"name": "look", "arguments": '{"city":"'},
        }
        events = [_event(_delta({"tool_calls": [start]}))]
        piece = _event(_delta({"tool_calls": [{"index": 0, "function": {"arguments": "nine byte"}}]}))
        events += [piece] * count
        events += [_event(_delta({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]})), _finish("tool_calls")]
    else:
        field = "content" if kind == "text" else "reasoning_content"
        events = [_event(_delta({field: "word "}))] * count + [_event(_delta({"content": "."})), _finish("stop")]
    chunks, pending = [], b""
    for event in events:
        pending += event
        if len(pending) >= CHUNK_BYTES:
            chunks.append(_chunk(pending))
            pending = b""
    return HEAD + b"".join(chunks) + (_chunk(pending) if pending else b"") + END


if __name__ == "__main__":
    main()
