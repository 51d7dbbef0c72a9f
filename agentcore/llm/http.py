"""One POST, and a socket that an abort can shut.

Waiting for the network happens inside `requests`, where no other thread can reach: closing a response from another thread blocks
until the server speaks again, and before the headers there is no response to close. So every connection registers its socket with
the `SocketGuard` of the request that uses it, at each step:

    new connection      the plain socket, as a duplicate, until the TLS handshake is over
    request sent        the socket of the connection, new or kept alive
    answer awaited      the same; it stays until the connection goes back to the pool, under the guard's lock

`SocketGuard.shut()` shuts that socket, and the thread that waits sees the end of the stream. So an abort never hits a connection
that already serves somebody else. What ended a read is then decided by the abort signal, never by the exception: an unchunked body
that was shut looks like a good end. Looking up a name and connecting are bounded by the connect timeout alone; an abort takes hold
after them.

There is one adapter for each CA bundle and process, with its TLS context loaded once (loading the CA bundle takes 20 ms of CPU),
shared by all threads; a forked child starts with none. Proxies are those of the environment, as for any user of `requests`. No
`requests.Session` is needed: no cookies, no `.netrc`, and a redirect is not followed, so that a key goes to the host that was
chosen and to no other.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import requests
import requests.adapters
import requests.utils
import urllib3
import urllib3.connection
import urllib3.connectionpool
import urllib3.exceptions

from agentcore.abort import AbortSignal
from agentcore.llm.failures import Failure

MAX_CONNECTIONS = 1000
"""Idle connections that are kept for one host."""


class RequestFailed(Exception):
    """A request or its answer failed; `failure` says how, and whether a new try could help."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class ReadTimedOut(RequestFailed):
    """The next bytes of a body did not come in time."""


class RequestAborted(Exception):
    """The abort signal was set."""


# --- the guard -------------------------------------------------------------------------------------------------------


class SocketGuard:
    """Knows the socket that one request waits on, and shuts it when asked.

    `is_fresh` asks for a new connection; `was_reused` tells whether the last one had served before.

    Threads:
        `shut` may be called from any thread; all else belongs to the thread that makes the request.
    """

    def __init__(self) -> None:
        # _lock guards _held and _is_shut. Shutting a socket does not block, so it happens under the lock: that is what keeps a
        # late abort off a connection that has gone back to the pool.
        self._lock = threading.Lock()
        self._held: dict[Any, tuple[socket.socket, bool]] = {}
        self._is_shut = False
        self.is_fresh = False
        self.was_reused = False

    def hold(self, connection: Any, sock: Any, *, is_duplicate: bool = False) -> None:
        """Take a connection's socket under guard in place of the one held for it; shut it at once if an abort came before."""
        plain = sock
        while not isinstance(plain, socket.socket):  # TLS inside TLS: a wrapper around the outer socket
            plain = plain.socket
        with self._lock:
            self._drop(connection)
            self._held[connection] = (plain, is_duplicate)
            if self._is_shut:
                _shut(plain)

    def let_go(self, connection: Any) -> None:
        """Forget a connection, which may serve another request from now on."""
        with self._lock:
            self._drop(connection)

    def shut(self) -> None:
        """Shut the socket that is held, and every one that comes later."""
        with self._lock:
            self._is_shut = True
            for plain, _ in self._held.values():
                _shut(plain)

    def set_timeout(self, seconds: float | None) -> None:
        """Bound the wait for the next bytes."""
        with self._lock:
            for plain, _ in self._held.values():
                plain.settimeout(seconds)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            for connection in list(self._held):
                self._drop(connection)

    def _drop(self, connection: Any) -> None:
        held = self._held.pop(connection, None)
        if held is not None and held[1]:
            held[0].close()


def _shut(plain: socket.socket) -> None:
    try:
        # The plain socket's own shutdown: that of a TLS socket hands the reader ciphertext.
        socket.socket.shutdown(plain, socket.SHUT_RDWR)
    except OSError:
        pass


class _Sending(threading.local):
    """The guard of the request that this thread is making."""

    guard: SocketGuard | None = None


_sending = _Sending()


class _Guarded:
    """What both connection classes add: the socket is registered at each step."""

    guard: SocketGuard | None = None
    has_served = False
    sock: Any

    def _new_conn(self) -> socket.socket:
        plain: socket.socket = super()._new_conn()  # type: ignore[misc]
        guard = _sending.guard
        if guard is not None:
            self.guard = guard
            # A duplicate, because wrapping it in TLS takes the descriptor away from this object.
            guard.hold(self, plain.dup(), is_duplicate=True)
        return plain

    def request(self, *args: Any, **kwargs: Any) -> None:
        guard = self.guard = _sending.guard
        if guard is not None:
            guard.was_reused = self.has_served
            if self.sock is not None:
                guard.hold(self, self.sock)
        super().request(*args, **kwargs)  # type: ignore[misc]

    def getresponse(self, *args: Any, **kwargs: Any) -> Any:
        if self.guard is not None:
            self.guard.hold(self, self.sock)
        answer = super().getresponse(*args, **kwargs)  # type: ignore[misc]
        self.has_served = True
        return answer

    def close(self) -> None:
        super().close()  # type: ignore[misc]
        self.has_served = False


class _Connection(_Guarded, urllib3.connection.HTTPConnection):
    pass


class _TlsConnection(_Guarded, urllib3.connection.HTTPSConnection):
    pass


class _GuardedPool:
    """What both pools add: a connection leaves its guard on the way back, and is new when the guard asks for that."""

    def _put_conn(self, conn: Any) -> None:
        guard = getattr(conn, "guard", None)
        if guard is not None:
            conn.guard = None
            guard.let_go(conn)
        super()._put_conn(conn)  # type: ignore[misc]

    def _get_conn(self, timeout: float | None = None) -> Any:
        guard = _sending.guard
        if guard is not None and guard.is_fresh:
            return self._new_conn()  # type: ignore[attr-defined]
        return super()._get_conn(timeout)  # type: ignore[misc]


class _Pool(_GuardedPool, urllib3.connectionpool.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(_GuardedPool, urllib3.connectionpool.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}


class _Adapter(requests.adapters.HTTPAdapter):
    """An adapter whose connections can be shut, with a TLS context that is loaded once."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_connections=100, pool_maxsize=MAX_CONNECTIONS)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **self._tls(kwargs))
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **self._tls(kwargs))
        if manager.pool_classes_by_scheme is not _POOLS:
            if proxy.lower().startswith("socks"):
                return manager  # its connections bring a socket of their own; an abort waits for the server there
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def _tls(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**kwargs, "ssl_context": self._context, "cert_reqs": self._context.verify_mode}

    def get_connection_with_tls_context(self, request: Any, verify: Any, proxies: Any = None, cert: Any = None) -> Any:
        return self.get_connection(request.url, proxies)

    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        proxy = requests.utils.select_proxy(url, proxies)
        if proxy:
            scheme = "" if "://" in proxy else "http://"
            return self.proxy_manager_for(scheme + proxy).connection_from_url(url)
        return self.poolmanager.connection_from_url(url)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Nothing: the context has the certificates, and naming them here would load them for every connection again."""


# _lock guards _adapters. Making an adapter reads the CA bundle under it, once for each.
_lock = threading.Lock()
_adapters: dict[str | None, _Adapter] = {}


def _adapter_for(url: str, proxies: Mapping[str, str]) -> _Adapter:
    """Return the adapter for an address: the one of its CA bundle, or the one that needs none."""
    key: str | None = None
    if proxies or not url.lower().startswith("http:"):
        environ = os.environ
        named = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
        key = named or requests.utils.DEFAULT_CA_BUNDLE_PATH
    adapter = _adapters.get(key)
    if adapter is None:
        with _lock:
            adapter = _adapters.get(key)
            if adapter is None:
                adapter = _adapters[key] = _Adapter(_load_context(key))
    return adapter


def _load_context(path: str | None) -> ssl.SSLContext:
    context = urllib3.util.create_urllib3_context()
    if path is None:
        return context  # for connections without TLS
    if not os.path.exists(path):
        raise RequestFailed(Failure("setup", False, f"there is no CA bundle at {path}: correct REQUESTS_CA_BUNDLE, or unset it"))
    if os.path.isdir(path):
        context.load_verify_locations(capath=path)
    else:
        context.load_verify_locations(cafile=path)
    return context


def close_connections() -> None:
    """Close all idle connections to providers. Those in use are closed when they are done; new ones are made as needed."""
    with _lock:
        adapters = list(_adapters.values())
        _adapters.clear()
    for adapter in adapters:
        adapter.close()


def _forget_after_fork() -> None:
    """In a forked child: the connections belong to the parent, and a lock may have been held by a thread that is not here."""
    global _lock, _adapters
    _lock = threading.Lock()
    _adapters = {}
    _proxies.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


# --- proxies and certificates of the environment ---------------------------------------------------------------------

_PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_proxies: dict[tuple[object, ...], dict[str, str]] = {}  # looking them up anew takes 50 µs


def _proxies_for(url: str) -> dict[str, str]:
    environ = os.environ
    parts = urlsplit(url)
    key = (parts.scheme, parts.netloc, *(environ.get(name) or environ.get(name.upper()) for name in _PROXY_NAMES))
    found = _proxies.get(key)
    if found is None:
        if len(_proxies) > 1000:
            _proxies.clear()
        found = _proxies[key] = requests.utils.get_environ_proxies(url, no_proxy=None)
    return found


# --- one POST --------------------------------------------------------------------------------------------------------


class HttpAnswer:
    """The answer to a POST: the headers are there, the body is read as it arrives.

    Threads:
        Belongs to the thread that made the request.
    """

    def __init__(self, response: requests.Response, guard: SocketGuard, signal: AbortSignal | None, host: str) -> None:
        self.status = response.status_code
        self.reason = response.reason or ""
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.host = host
        self._raw: urllib3.response.BaseHTTPResponse = response.raw
        self._guard = guard
        self._signal = signal
        self._is_at_end = False

    def read(self) -> bytes:
        """Return what has arrived, waiting for the first byte; nothing at the end of the body, and after an abort.

        Raises:
            RequestFailed: The connection broke (`network`), or nothing came in time (`timeout`).
        """
        try:
            got = self._raw.read1(65536, decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError, http.client.HTTPException, ValueError) as error:
            self._is_at_end = True
            if self._signal is not None and self._signal.aborted:
                return b""
            raise _read_failure(error, self.host) from error
        if not got:
            self._is_at_end = True
        return got

    def read_text(self, limit: int = 65536, seconds: float = 5.0) -> str:
        """Return the body as text: at most `limit` bytes of it, and what came within `seconds`, if it does not end."""
        pieces: list[bytes] = []
        size = 0
        deadline = time.monotonic() + seconds
        try:
            while size < limit and (left := deadline - time.monotonic()) > 0:
                self.set_timeout(left)
                got = self.read()
                if not got:
                    break
                pieces.append(got)
                size += len(got)
        except RequestFailed:
            pass
        return b"".join(pieces)[:limit].decode("utf-8", "replace")

    def set_timeout(self, seconds: float | None) -> None:
        """Bound the wait for the next bytes."""
        try:
            self._guard.set_timeout(seconds)
        except OSError:
            pass  # the socket is gone; the next read says so

    def drain(self, seconds: float = 0.1) -> None:
        """Read the end of a body of which nothing more is wanted, so that its connection can serve again.

        After `[DONE]` there is only the end of the body to come, mostly in the same packet. A server that does not send it
        costs `seconds` and the connection.
        """
        if self._is_at_end:
            return
        self.set_timeout(seconds)
        try:
            for _ in range(8):
                if not self.read():
                    return
        except RequestFailed:
            pass

    def close(self) -> None:
        """Give the connection back if the body was read to its end, else close it."""
        try:
            if not self._is_at_end:
                self._raw.close()
            self._raw.release_conn()
        except (OSError, urllib3.exceptions.HTTPError):
            pass  # it was broken already; nothing is left of it
        finally:
            self._guard.close()


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    connect_timeout: float | None,
    timeout: float | None,
    signal: AbortSignal | None,
    on_guard: Callable[[SocketGuard], None],
) -> HttpAnswer:
    """Send a POST and wait for the headers of the answer.

    A kept connection that the server closes without a byte is no failure of the server: the request is sent once more, on a
    new connection.

    Args:
        connect_timeout: Seconds for making the connection.
        timeout: Seconds until the headers are there; None waits without limit.
        signal: Looked at before each send.
        on_guard: Gets the guard of the request before anything is sent.

    Raises:
        RequestFailed: No answer came.
        RequestAborted: The signal was set before or while waiting.
    """
    guard = SocketGuard()
    on_guard(guard)
    host = host_of(url)
    prepared = requests.PreparedRequest()
    prepared.method = "POST"
    try:
        if any(char.isspace() for char in url):
            raise ValueError("a blank in the URL")
        prepared.prepare_url(url, None)
        proxies = _proxies_for(url)
    except (requests.RequestException, ValueError) as error:
        raise RequestFailed(
            Failure("setup", False, f"{_without_secrets(url)!r} is no URL that a request can go to: correct base_url")
        ) from error
    prepared.headers = cast(Any, {"Content-Length": str(len(body)), **headers})
    prepared.body = body
    adapter = _adapter_for(url, proxies)
    _sending.guard = guard
    try:
        for is_resend in (False, True):
            if signal is not None and signal.aborted:
                raise RequestAborted
            guard.is_fresh = is_resend
            try:
                response = adapter.send(prepared, stream=True, timeout=cast(Any, (connect_timeout, timeout)), proxies=proxies)
            except requests.RequestException as error:
                if signal is not None and signal.aborted:
                    raise RequestAborted from None
                if not is_resend and guard.was_reused and _closed_without_a_byte(error):
                    continue
                raise RequestFailed(_send_failure(error, host, connect_timeout, timeout)) from error
            break
    except BaseException:
        guard.close()
        raise
    finally:
        _sending.guard = None
    answer = HttpAnswer(response, guard, signal, host)
    if signal is not None and signal.aborted:
        answer.close()
        raise RequestAborted
    return answer


def host_of(url: str) -> str:
    """Return host and port of a URL, the only parts that a text may name: keys travel in the others."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "the server"
    except ValueError:
        return "the server"


def _without_secrets(url: str) -> str:
    """Return a URL without what may hold a key: the query, and what stands before an `@`."""
    scheme, mark, rest = url.partition("?")[0].partition("://")
    return scheme + mark + rest.rpartition("@")[2]


def _causes(error: BaseException | None) -> list[BaseException]:
    """Return an exception and all that it wraps: urllib3 and requests put the real one in several places."""
    found: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting:
        item = waiting.pop()
        if not isinstance(item, BaseException) or any(item is known for known in found):
            continue
        found.append(item)
        waiting += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
    return found


def _has(causes: list[BaseException], *types: type[BaseException]) -> bool:
    return any(isinstance(cause, types) for cause in causes)


def _closed_without_a_byte(error: BaseException) -> bool:
    return _has(_causes(error), http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


def _send_failure(error: BaseException, host: str, connect_timeout: float | None, timeout: float | None) -> Failure:
    causes = _causes(error)
    if _has(causes, urllib3.exceptions.ProxyError) and not _has(causes, urllib3.exceptions.NameResolutionError):
        return Failure("network", True, f"the proxy did not connect to {host}: check HTTPS_PROXY and NO_PROXY")
    if _has(causes, ssl.SSLCertVerificationError):
        reason = next(cause.verify_message for cause in causes if isinstance(cause, ssl.SSLCertVerificationError))
        text = f"the certificate of {host} is not trusted ({reason}): set REQUESTS_CA_BUNDLE to the file of your CA"
        return Failure("network", False, text)
    if _has(causes, socket.gaierror):
        return Failure("network", True, f"there is no host {host}, or no network: check base_url and the connection")
    if _has(causes, ConnectionRefusedError):
        return Failure("network", True, f"connection refused by {host}: check that the server runs and that base_url is right")
    if _has(causes, urllib3.exceptions.ConnectTimeoutError):
        return Failure("timeout", True, f"no connection to {host} within {connect_timeout:g} s: timed out, check the network")
    if _has(causes, urllib3.exceptions.ReadTimeoutError, TimeoutError):
        limit = f" within {timeout:g} s" if timeout is not None else ""
        return Failure("timeout", True, f"no answer from {host}{limit}: timed out, raise StreamOptions.timeout for slow models")
    if _has(causes, http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        return Failure("network", True, f"connection closed by {host} before it answered")
    if _has(causes, ssl.SSLError):
        return Failure("network", False, f"no TLS connection to {host}: check that base_url is right, https or http")
    if _has(causes, http.client.HTTPException):
        return Failure("protocol", False, f"{host} does not answer in HTTP: check that base_url is right, https or http")
    if isinstance(error, requests.exceptions.InvalidSchema) and "SOCKS" in str(error):
        return Failure("setup", False, "a SOCKS proxy needs one more package: pip install 'requests[socks]', or unset ALL_PROXY")
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)):
        return Failure("setup", False, f"base_url does not lead to a host: it must look like http://{host}/v1")
    if isinstance(error, requests.exceptions.InvalidHeader):
        return Failure("setup", False, "a header of the request is not valid: check the API key and the headers for line breaks")
    return Failure("network", True, f"connection error with {host} ({type(error).__name__}): check the network and base_url")


def _read_failure(error: BaseException, host: str) -> RequestFailed:
    if _has(_causes(error), urllib3.exceptions.ReadTimeoutError, TimeoutError):
        return ReadTimedOut(Failure("timeout", True, f"{host} stalled in the middle of its answer: timed out"))
    if isinstance(error, urllib3.exceptions.DecodeError):
        return RequestFailed(Failure("protocol", True, f"the answer of {host} is not encoded as its headers say"))
    return RequestFailed(Failure("network", True, f"connection broken: {host} broke off in the middle of its answer"))
