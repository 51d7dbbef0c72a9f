"""A server on the loopback that plays a script over HTTP, whole or broken in every way.

    test's thread            accept thread              one thread for each connection
    SseServer() ── starts ─► accept ────── starts ────► read a request, take the next answer, send it; again
    close() ─── shuts all sockets, joins all threads

Order comes from gates: a body may hold `threading.Event`s, which are waited for before the next piece is sent.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, Union

from agentcore.models import Model
from agentcore.testing.turns import Turn
from agentcore.testing.wire_text import BodyPiece, turn_pieces

Body = Union[Turn, str, bytes, Mapping[str, Any], Iterable[BodyPiece]]
"""A turn, in the wire format that the request's path asks for; text; bytes; JSON; or pieces, gates among them."""


@dataclass
class Request:
    """One request as it came. Header names are in lower case.

    `answered` is set when its answer has been sent, or broken off as scripted; `gone` when its connection is closed, by whichever
    side. `connection` counts the connections from 0.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    answered: threading.Event = field(default_factory=threading.Event, repr=False)
    gone: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass
class Answer:
    """One answer and its faults. Made by `answer`, which says what each field means."""

    body: Body = b""
    status: int = 200
    reason: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Literal["chunked", "close", "length"] = "chunked"
    chunk_size: int | None = None
    split_at: Sequence[int] | None = None
    pause: float = 0.0
    delay: float | threading.Event = 0.0
    cut_at: int | None = None
    cut: bool = False
    hold_open: bool = False
    never: bool = False
    drop: bool = False


def answer(
    body: Body = b"",
    *,
    status: int = 200,
    reason: str | None = None,
    headers: Mapping[str, str] | None = None,
    framing: Literal["chunked", "close", "length"] = "chunked",
    chunk_size: int | None = None,
    split_at: Sequence[int] | None = None,
    pause: float = 0.0,
    delay: float | threading.Event = 0.0,
    cut_at: int | None = None,
    cut: bool = False,
    hold_open: bool = False,
    never: bool = False,
    drop: bool = False,
) -> Answer:
    """Describe an answer that is not just a turn.

    Args:
        body: A turn, text, bytes, a mapping (sent as JSON), or any iterable of pieces: text or bytes to send, a number (a pause in
            seconds), an event to wait for, a function to call. It may be endless, unless its length must be told.
        status, reason, headers: As they go out; the content type is `text/event-stream` (`application/json` for a mapping) unless
            `headers` has one.
        framing: `chunked` transfer encoding; `close`: no length, the body ends with the connection; `length`: a `Content-Length`.
        chunk_size, split_at: Send the body in pieces of so many bytes, or cut at these offsets; else each piece (each event of
            a turn) is sent on its own.
        pause: Seconds between two pieces.
        delay: Seconds, or an event to wait for, before the headers.
        cut_at, cut: Break the connection after so many bytes of the body; after all of it, but without its end.
        hold_open: Leave the connection open behind the body, without an end.
        never: Take the request and never answer.
        drop: Take the request and close the connection without a byte.
    """
    return Answer(
        body, status, reason, dict(headers or {}), framing, chunk_size, split_at, pause, delay, cut_at, cut, hold_open, never, drop
    )


ScriptedAnswer = Union[Answer, Body, Callable[[Request], Union[Answer, Body]]]
"""An answer, a body that goes out as it is, or a function that makes one of the request."""


class SseServer:
    """A scripted server. `url` is its address, `requests` what came.

    Args:
        answers: One for each request, in the order in which requests arrive. A request too many gets a 400 that says so, and
            that no client sends again.
        repeat: Give the last answer again for every further request.
        ssl_context: Speak TLS with this context (a server's, with its certificate loaded).
        stall_handshake: Accept connections and say nothing, not even a TLS handshake.

    Threads:
        All its threads end with `close`, which leaving the `with` block calls.
    """

    def __init__(
        self,
        *answers: ScriptedAnswer,
        repeat: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        stall_handshake: bool = False,
    ) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        # _lock guards requests, connections, _answers, _taken, _sockets, _threads. It is never held during I/O.
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._answers = list(answers)
        self._taken = 0
        self._repeat = repeat
        self._ssl_context = ssl_context
        self._stall_handshake = stall_handshake
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="agentcore-testing-accept", daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        """Scheme, host and port, without a slash at the end."""
        return f"{'https' if self._ssl_context else 'http'}://127.0.0.1:{self.port}"

    def model(self, api: str = "openai-completions", **fields: Any) -> Model:
        """Return a model of this server. It belongs to the provider `scripted`, which needs no key."""
        roots = {"openai-completions": "/v1", "openai-responses": "/v1", "google-generative-ai": "/v1beta"}
        given = {"id": "scripted", "provider": "scripted", "base_url": self.url + roots.get(api, ""), **fields}
        return Model(api=api, **given)

    def __repr__(self) -> str:
        with self._lock:
            took, count = len(self.requests), len(self._answers)
        state = "closed" if self._closing.is_set() else "open"
        return f"<SseServer {self.url} {state}: {took} requests, {count} answers scripted>"

    def add(self, *answers: ScriptedAnswer) -> None:
        """Put answers at the end of the script."""
        with self._lock:
            self._answers.extend(answers)

    def wait_for_requests(self, count: int, timeout: float = 5.0) -> bool:
        """Block until `count` requests have come in all; False when the time was up first."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout)

    def close(self) -> None:
        """Break all connections and wait for all threads to end. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        _wake_listener(self._listener)
        self._acceptor.join(5)
        self._listener.close()
        with self._lock:
            sockets, threads = list(self._sockets), list(self._threads)
        for connection in sockets:
            _shut(connection)
        for thread in threads:
            thread.join(5)

    def __enter__(self) -> SseServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --- connections -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closing.is_set():
                    connection.close()
                    return
                number = self.connections
                self.connections += 1
                self._sockets.add(connection)
                thread = threading.Thread(
                    target=self._serve, args=(connection, number), name=f"agentcore-testing-{number}", daemon=True
                )
                self._threads = [known for known in self._threads if known.is_alive()]
                self._threads.append(thread)
                # Under the lock, so that `close` never finds a thread that has not been started.
                thread.start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        served: list[Request] = []
        connection = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._stall_handshake:
                _wait_for_end(plain)
                return
            if self._ssl_context is not None:
                connection = self._ssl_context.wrap_socket(plain, server_side=True)
                with self._lock:
                    self._sockets.discard(plain)
                    self._sockets.add(connection)
                if self._closing.is_set():
                    return
            with connection.makefile("rb") as stream:
                while not self._closing.is_set():
                    request = _read_request(stream, number)
                    if request is None:
                        return
                    served.append(request)
                    if not self._answer(connection, request):
                        return
        except (OSError, ValueError):
            pass  # the client went away, or spoke no HTTP
        finally:
            with self._lock:
                self._sockets.discard(plain)
                self._sockets.discard(connection)
            _shut(connection)
            connection.close()
            for request in served:
                request.answered.set()
                request.gone.set()

    def _answer(self, connection: socket.socket, request: Request) -> bool:
        """Send the next answer; True when the connection can take another request."""
        with self._arrived:
            self.requests.append(request)
            place = min(self._taken, len(self._answers) - 1) if self._repeat else self._taken
            scripted: ScriptedAnswer | None = self._answers[place] if 0 <= place < len(self._answers) else None
            self._taken += 1
            count = len(self._answers)
            self._arrived.notify_all()
        if scripted is None:
            what = "answer is" if count == 1 else "answers are"
            text = f"request {self._taken} came, but only {count} {what} scripted: add one to SseServer"
            # Not a 5xx: it would be sent again, and the count in the last text would be that of the tries.
            scripted = Answer({"error": {"message": text}}, status=400)
        given = _make_answer(scripted, request)
        if given.drop:
            return False
        if given.never:
            _wait_for_end(connection)
            return False
        self._wait(given.delay)
        try:
            return self._send(connection, given, request)
        finally:
            request.answered.set()

    def _send(self, connection: socket.socket, given: Answer, request: Request) -> bool:
        pieces: Iterable[BodyPiece] = _split(_body_pieces(given.body, request), given)
        length = 0
        if given.framing == "length":
            pieces = list(pieces)
            length = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
        connection.sendall(_head(given, length))
        left = given.cut_at
        is_first = True
        for piece in pieces:
            if not isinstance(piece, bytes):
                self._wait(piece)
                continue
            if left is not None and left <= 0:
                break
            if given.pause and not is_first:
                self._wait(given.pause)
            is_first = False
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if given.framing == "chunked" else piece)
        if given.cut or given.cut_at is not None:
            return False
        if given.hold_open:
            request.answered.set()
            _wait_for_end(connection)
            return False
        if given.framing == "chunked":
            connection.sendall(b"0\r\n\r\n")
        return given.framing != "close"

    def _wait(self, gate: BodyPiece) -> None:
        """Pass a gate. Closing the server ends the wait."""
        if isinstance(gate, (int, float)):
            self._closing.wait(gate)
        elif isinstance(gate, threading.Event):
            while not gate.wait(0.005) and not self._closing.is_set():
                pass
        elif callable(gate):
            gate()


def _make_answer(scripted: ScriptedAnswer, request: Request) -> Answer:
    """Return the answer to a request; a script that cannot make one is an answer that says why, since nobody else would."""
    try:
        made = scripted(request) if callable(scripted) else scripted
        given = made if isinstance(made, Answer) else Answer(made)
        if isinstance(given.body, Turn):
            turn_pieces(given.body, request.path, {})
    except Exception as error:
        text = str(error) if isinstance(error, ValueError) and not callable(scripted) else f"{type(error).__name__}: {error}"
        return Answer({"error": {"message": f"the scripted answer could not be made: {text}"}}, status=400)
    return given


def _body_pieces(body: Body, request: Request) -> Iterator[BodyPiece]:
    if isinstance(body, Turn):
        try:
            asked = json.loads(request.body or b"{}")
        except ValueError:
            asked = {}
        yield from turn_pieces(body, request.path, asked if isinstance(asked, dict) else {})
    elif isinstance(body, (str, bytes)):
        yield body
    elif isinstance(body, Mapping):
        yield json.dumps(body)
    else:
        yield from body


def _split(pieces: Iterable[BodyPiece], given: Answer) -> Iterator[BodyPiece]:
    """Cut the body as the answer wants it: bytes to send, and gates."""
    waiting = b""
    offset = 0
    for piece in pieces:
        if isinstance(piece, (str, bytes)):
            sent = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece
            if given.chunk_size is None and given.split_at is None:
                yield sent
            else:
                waiting += sent
            continue
        yield from _cut(waiting, offset, given)
        offset += len(waiting)
        waiting = b""
        yield piece
    yield from _cut(waiting, offset, given)


def _cut(text: bytes, offset: int, given: Answer) -> Iterator[bytes]:
    if given.chunk_size:
        for start in range(0, len(text), given.chunk_size):
            yield text[start : start + given.chunk_size]
        return
    start = 0
    for place in sorted(given.split_at or ()):
        if start < place - offset < len(text):
            yield text[start : place - offset]
            start = place - offset
    if text[start:]:
        yield text[start:]


def _head(given: Answer, length: int) -> bytes:
    reason = given.reason
    if reason is None:
        reason = HTTPStatus(given.status).phrase if given.status in {item.value for item in HTTPStatus} else "Unknown"
    headers = {"content-type": "application/json" if isinstance(given.body, Mapping) else "text/event-stream"}
    if given.framing == "chunked":
        headers["transfer-encoding"] = "chunked"
    elif given.framing == "length":
        headers["content-length"] = str(length)
    else:
        headers["connection"] = "close"
    headers.update({name.lower(): value for name, value in given.headers.items()})
    lines = [f"HTTP/1.1 {given.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_request(stream: Any, number: int) -> Request | None:
    """Read one request; None at the end of the connection."""
    line = stream.readline(65537)
    if not line.strip():
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := stream.readline(65537)).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int(stream.readline().split(b";")[0], 16):
            body += stream.read(size)
            stream.readline()
        stream.readline()
    else:
        body = stream.read(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, number)


def _wait_for_end(connection: socket.socket) -> None:
    """Block until the client closes the connection, or the server is closed."""
    while connection.recv(65536):
        pass


def _shut(connection: socket.socket) -> None:
    try:
        # Of a TLS socket only the plain way ends a read that another thread is in.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        pass


def _wake_listener(listener: socket.socket) -> None:
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:  # macOS: a listening socket is not connected; a connection wakes it too
        try:
            socket.create_connection(listener.getsockname(), timeout=1).close()
        except OSError:
            pass
