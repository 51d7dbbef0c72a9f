"""Connections to providers, and a socket that an abort can shut.

Waiting for the network happens inside `requests`, where no other thread can reach: closing a response from another thread blocks
until the server speaks again, and before the headers there is no response to close. So every connection registers its socket with
the `SocketGuard` of the request that uses it, at each step:

    new connection      the plain socket, as a duplicate, until the TLS handshake is over
    request sent        the socket of the connection, new or kept alive
    answer awaited      the same; it stays until the connection goes back to the pool, under the guard's lock

`SocketGuard.shut()` shuts that socket, and the thread that waits sees the end of the stream. So an abort never hits a connection
that already serves somebody else. Looking up a name and connecting are bounded by the connect timeout alone; an abort takes hold
after them.

There is one adapter for each CA bundle and process, with its TLS context loaded once (loading the CA bundle takes 20 ms of CPU),
shared by all threads; a forked child starts with none. Proxies are those of the environment, as for any user of `requests`. No
`requests.Session` is needed: no cookies, no `.netrc`, and a redirect is not followed, so that a key goes to the host that was
chosen and to no other.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
import requests.adapters
import requests.utils
import urllib3
import urllib3.connection
import urllib3.connectionpool

MAX_CONNECTIONS = 1000
"""Idle connections that are kept for one host."""


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


sending = _Sending()


class _Guarded:
    """What both connection classes add: the socket is registered at each step."""

    guard: SocketGuard | None = None
    has_served = False
    sock: Any

    def _new_conn(self) -> socket.socket:
        plain: socket.socket = super()._new_conn()  # type: ignore[misc]
        guard = sending.guard
        if guard is not None:
            self.guard = guard
            # A duplicate, because wrapping it in TLS takes the descriptor away from this object.
            guard.hold(self, plain.dup(), is_duplicate=True)
        return plain

    def request(self, *args: Any, **kwargs: Any) -> None:
        guard = self.guard = sending.guard
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


class _GuardedPool:
    """What both pools add: a connection leaves its guard on the way back, and is new when the guard asks for that."""

    def _put_conn(self, conn: Any) -> None:
        guard = getattr(conn, "guard", None)
        if guard is not None:
            conn.guard = None
            guard.let_go(conn)
        super()._put_conn(conn)  # type: ignore[misc]

    def _get_conn(self, timeout: float | None = None) -> Any:
        guard = sending.guard
        if guard is not None and guard.is_fresh:
            return self._new_conn()  # type: ignore[attr-defined]
        return super()._get_conn(timeout)  # type: ignore[misc]


def _guard_pools(pools: Mapping[str, type]) -> dict[str, Any]:
    """Return the pool classes for each scheme, and their connection classes, with what is added here."""
    return {
        scheme: type(
            f"_Guarded{pool.__name__}",
            (_GuardedPool, pool),
            {"ConnectionCls": type("_GuardedConnection", (_Guarded, pool.ConnectionCls), {})},  # type: ignore[attr-defined]
        )
        for scheme, pool in pools.items()
    }


_POOLS = _guard_pools({"http": urllib3.connectionpool.HTTPConnectionPool, "https": urllib3.connectionpool.HTTPSConnectionPool})


class _Adapter(requests.adapters.HTTPAdapter):
    """An adapter whose connections can be shut, with a TLS context that is loaded once."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        # _lock guards proxy_manager and the step in which a manager gets our pools.
        self._lock = threading.Lock()
        super().__init__(pool_connections=100, pool_maxsize=MAX_CONNECTIONS)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **self._tls(kwargs))
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        with self._lock:
            is_new = proxy not in self.proxy_manager
            manager = super().proxy_manager_for(proxy, **self._tls(kwargs))
            if is_new:
                # A SOCKS manager has pools of its own, whose connections know the way.
                is_socks = proxy.lower().startswith("socks")
                manager.pool_classes_by_scheme = _guard_pools(manager.pool_classes_by_scheme) if is_socks else _POOLS
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


def adapter_for(url: str, proxies: Mapping[str, str]) -> _Adapter:
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
        raise FileNotFoundError(path)
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


def proxies_for(url: str) -> dict[str, str]:
    """Return the proxies that the environment names for an address, by scheme; none where `NO_PROXY` says so."""
    environ = os.environ
    parts = urlsplit(url)
    key = (parts.scheme, parts.netloc, *(environ.get(name) or environ.get(name.upper()) for name in _PROXY_NAMES))
    found = _proxies.get(key)
    if found is None:
        if len(_proxies) > 1000:
            _proxies.clear()
        found = _proxies[key] = requests.utils.get_environ_proxies(url, no_proxy=None)
    return found
