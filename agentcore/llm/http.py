"""One POST: its head, its body as it arrives, and what went wrong in words.

What ended a read is decided by the abort signal, never by the exception: an unchunked body that an abort shut
(`llm/connections.py`) looks like a good end.
"""

from __future__ import annotations

import base64
import http.client
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import requests
import urllib3
import urllib3.exceptions

from agentcore.abort import AbortSignal
from agentcore.llm.connections import SocketGuard, adapter_for, proxies_for, sending
from agentcore.llm.failures import Failure


class RequestFailed(Exception):
    """A request or its answer failed; `failure` says how, and whether a new try could help."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class ReadTimedOut(RequestFailed):
    """The next bytes of a body did not come in time."""


class RequestAborted(Exception):
    """The abort signal was set."""


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
        if any(char.isspace() for char in url) or not url.lower().startswith(("http://", "https://")):
            raise ValueError("a blank in the URL, or no scheme")
        prepared.prepare_url(url, None)
        proxies = proxies_for(url)
    except (requests.RequestException, ValueError) as error:
        raise RequestFailed(_no_url(url)) from error
    prepared.headers = cast(Any, {"Content-Length": str(len(body)), **headers})
    prepared.body = body
    try:
        adapter = adapter_for(url, proxies)
    except FileNotFoundError as error:
        text = f"there is no CA bundle at {error}: correct REQUESTS_CA_BUNDLE, or unset it"
        raise RequestFailed(Failure("setup", False, text)) from None
    except OSError as error:  # ssl.SSLError is one too
        text = f"the CA bundle cannot be read ({error}): correct REQUESTS_CA_BUNDLE, or unset it"
        raise RequestFailed(Failure("setup", False, text)) from None
    sending.guard = guard
    try:
        for is_resend in (False, True):
            if signal is not None and signal.aborted:
                raise RequestAborted
            guard.is_fresh = is_resend
            try:
                response = adapter.send(prepared, stream=True, timeout=cast(Any, (connect_timeout, timeout)), proxies=proxies)
            except urllib3.exceptions.LocationValueError as error:
                raise RequestFailed(_no_url(url)) from error
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
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
        sending.guard = None
    answer = HttpAnswer(response, guard, signal, host)
    if signal is not None and signal.aborted:
        answer.close()
        raise RequestAborted
    return answer


def host_of(url: str) -> str:
    """Return host and port of a URL, the only parts that a text may name: keys travel in the others."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{parts.port}" if parts.port else host or "the server"
    except ValueError:
        return "the server"


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    return f"{url.partition('://')[0].lower()}://{host_of(url)}"


def secrets_of(url: str) -> list[str]:
    """Return what must not be shown of a URL: the password in front of its host, and keys and tokens in its query."""
    found: list[str] = []
    try:
        parts = urlsplit(url)
        if parts.password or parts.username:
            found += [parts.password or parts.username or ""]
        for name, value in parse_qsl(parts.query):
            if re.search("key|token|secret|sig|auth|password", name, re.IGNORECASE):
                found.append(value)
    except ValueError:
        pass
    return [spelling for secret in found for spelling in {secret, unquote(secret)} if spelling]


def login_of(url: str) -> dict[str, str]:
    """Return the header for a name and password in front of the host, as `requests` makes it."""
    try:
        user, password = requests.utils.get_auth_from_url(url)
    except ValueError:
        user = ""  # no URL at all, which is said where it is used
    if not user:
        return {}
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {token}"}


def _no_url(url: str) -> Failure:
    has_scheme = url.lower().startswith(("http://", "https://"))
    way_out = "correct base_url" if has_scheme else "base_url must begin with http:// or https://"
    return Failure("setup", False, f"{_without_secrets(url)!r} is no URL that a request can go to: {way_out}")


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
        limit = f" within {connect_timeout:g} s" if connect_timeout is not None else ""
        return Failure("timeout", True, f"no connection to {host}{limit}: timed out, check the network and base_url")
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
