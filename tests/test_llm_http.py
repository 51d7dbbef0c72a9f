"""One POST: an abort takes hold wherever the request waits, and never hits another connection."""

from __future__ import annotations

import importlib.util
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.events import AssistantMessageEvent, RetryEvent
from agentcore.llm import Context, StreamOptions, close_connections, stream
from agentcore.llm.connections import SocketGuard
from agentcore.llm.http import post
from agentcore.messages import UserMessage
from agentcore.models import Model
from agentcore.testing import Answer, SseServer, answer, says, waits

HALF = ['data: {"choices":[{"delta":{"content":"half"}}]}\n\n']
SOON = 0.1  # seconds within which an abort must have ended a request


def ask(model: Model, **options: Any) -> Iterator[AssistantMessageEvent]:
    return stream(model, Context("", [UserMessage("hi")]), StreamOptions(**options))


def last_of(events: Iterator[AssistantMessageEvent]) -> Any:
    *_, last = events
    return last


class Asking:
    """A request on a thread of its own, and how long it lives on after an abort."""

    def __init__(self, model: Model, **options: Any) -> None:
        self.controller = AbortController()
        self.started = threading.Event()
        self.events: list[AssistantMessageEvent] = []
        self.seen = threading.Condition()
        self._options = {"stall_timeout": 30, **options}
        self._model = model
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for event in ask(self._model, signal=self.controller.signal, **self._options):
            with self.seen:
                self.events.append(event)
                self.seen.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.seen:
            assert self.seen.wait_for(condition, 5)

    def abort(self) -> float:
        """Abort, wait for the end, and return the seconds that it took."""
        begun = time.perf_counter()
        self.controller.abort("enough")
        self._thread.join(5)
        assert not self._thread.is_alive()
        return time.perf_counter() - begun

    def is_aborted(self) -> bool:
        message = self.events[-1].message  # type: ignore[union-attr]
        return (message.stop_reason, message.error_message) == ("aborted", "Request was aborted")


# --- abort -----------------------------------------------------------------------------------------------------------


def test_an_abort_before_the_start_sends_nothing() -> None:
    """A signal that is set already ends the call without a request."""
    controller = AbortController()
    controller.abort()
    with SseServer(says("never")) as server:
        last = last_of(ask(server.model(), signal=controller.signal))
        assert last.message.stop_reason == "aborted"
        assert server.requests == []


def test_an_abort_ends_the_wait_for_headers() -> None:
    """A server that takes the request and never answers is left at once."""
    with SseServer(answer(never=True)) as server:
        asking = Asking(server.model())
        assert server.wait_for_requests(1)
        assert asking.abort() < SOON
        assert asking.is_aborted()
        assert server.requests[0].gone.wait(2)


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_an_abort_ends_a_silent_stream(framing: Any) -> None:
    """A stream that fell silent is left at once, what came is kept, and an unchunked body is not taken for finished."""
    with SseServer(answer(HALF, framing=framing, hold_open=True)) as server:
        asking = Asking(server.model())
        asking.wait_for(lambda: any(event.type == "text_delta" for event in asking.events))
        assert asking.abort() < SOON
        assert asking.is_aborted()
        assert asking.events[-1].message.text == "half"  # type: ignore[union-attr]
        assert server.requests[0].gone.wait(2)


def test_an_abort_ends_a_silent_stream_on_a_reused_connection() -> None:
    """On a connection that has served before, an abort takes hold as fast."""
    with SseServer(says("first"), answer(HALF, hold_open=True), says("third")) as server:
        assert last_of(ask(server.model())).message.text == "first"
        asking = Asking(server.model())
        asking.wait_for(lambda: any(event.type == "text_delta" for event in asking.events))
        assert server.requests[1].connection == server.requests[0].connection
        assert asking.abort() < SOON
        assert asking.is_aborted()
        assert last_of(ask(server.model())).message.text == "third"


def test_an_abort_ends_a_pause_before_a_retry() -> None:
    """An abort during a retry's pause ends it; nothing more is sent."""
    with SseServer(answer("busy", status=503, headers={"retry-after": "30"})) as server:
        asking = Asking(server.model())
        asking.wait_for(lambda: any(isinstance(event, RetryEvent) for event in asking.events))
        assert asking.abort() < SOON
        assert asking.is_aborted()
        assert len(server.requests) == 1


def test_a_late_abort_does_not_hit_another_request() -> None:
    """C007: aborting a request that has ended leaves the connection alone, which serves another one by then."""
    gate = threading.Event()
    with SseServer(says("one"), says("two, ") + waits(gate) + says("whole")) as server:
        first = AbortController()
        assert last_of(ask(server.model(), signal=first.signal)).message.text == "one"
        other = Asking(server.model())
        other.wait_for(lambda: any(event.type == "text_delta" for event in other.events))
        assert server.requests[1].connection == server.requests[0].connection
        first.abort()
        gate.set()
        other.wait_for(lambda: other.events[-1].type in ("done", "error"))
        assert other.events[-1].message.text == "two, whole"  # type: ignore[union-attr]
        other.abort()


def test_an_abort_between_the_end_of_the_body_and_the_end_of_the_call_hits_nobody() -> None:
    """C007: with its last byte a connection goes back to the others, and from that moment an abort leaves it alone."""
    with SseServer(says("one"), says("two")) as server:
        guards: list[SocketGuard] = []
        address = server.url + "/v1/chat/completions"
        first = post(address, {}, b"{}", connect_timeout=5, timeout=5, signal=None, on_guard=guards.append)
        while first.read():
            pass
        guards[0].shut()
        second = post(address, {}, b"{}", connect_timeout=5, timeout=5, signal=None, on_guard=guards.append)
        first.close()
        assert "two" in second.read_text()
        second.close()
        assert server.connections == 1


def test_many_late_aborts_never_hit_another_request() -> None:
    """C007 under load: each request is aborted just after its end, while others use the connections that it gives back."""
    with SseServer(answer(says("fine")), repeat=True) as server:
        model = server.model()
        failures: list[Any] = []

        def work() -> None:
            for _ in range(40):
                controller = AbortController()
                last = last_of(ask(model, signal=controller.signal, max_retries=0))
                controller.abort()
                if last.message.text != "fine":
                    failures.append(last.message)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failures == []


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A TLS context for a server on 127.0.0.1, whose CA the environment names."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    yield context
    close_connections()


def test_a_kept_tls_connection_serves_again(server_context: ssl.SSLContext) -> None:
    """Over TLS, with the CA bundle that the environment names, two requests share one connection."""
    with SseServer(says("one"), says("two"), ssl_context=server_context) as server:
        assert [last_of(ask(server.model())).message.text for _ in range(2)] == ["one", "two"]
        assert server.connections == 1


def test_an_abort_ends_a_silent_tls_stream(server_context: ssl.SSLContext) -> None:
    """Over TLS a silent stream is left at once, on a new connection and on a reused one, and no garbage is read."""
    answers = [answer(HALF, hold_open=True), says("whole"), answer(HALF, hold_open=True), answer(never=True)]
    with SseServer(*answers, ssl_context=server_context) as server:
        for index in range(4):
            if index == 1:
                assert last_of(ask(server.model())).message.text == "whole"
                continue
            asking = Asking(server.model())
            assert server.wait_for_requests(index + 1)
            if index < 3:
                asking.wait_for(lambda asking=asking: any(event.type == "text_delta" for event in asking.events))  # type: ignore[misc]
            assert asking.abort() < SOON
            assert asking.is_aborted()


def test_an_abort_ends_a_stalled_tls_handshake(server_context: ssl.SSLContext) -> None:
    """A server that accepts and then says nothing, not even its part of the handshake, is left at once."""
    with SseServer(ssl_context=server_context, stall_handshake=True) as server:
        asking = Asking(server.model())
        deadline = time.monotonic() + 5
        while server.connections == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.05)  # the client is in the handshake by now; nothing tells when
        assert asking.abort() < SOON
        assert asking.is_aborted()


def test_an_untrusted_certificate_is_refused_with_the_way_out(
    server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of an unknown CA ends the request without a retry, and the text names the variable that helps."""
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with SseServer(says("never"), ssl_context=server_context) as server:
        events = list(ask(server.model()))
        message = events[-1].message  # type: ignore[union-attr]
        assert [event.type for event in events] == ["error"]
        assert "is not trusted" in message.error_message and "REQUESTS_CA_BUNDLE" in message.error_message


def test_a_missing_ca_bundle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CA bundle that is not there is an error that names the file."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    message = last_of(ask(Model("m", provider="local", base_url="https://127.0.0.1:1"))).message
    assert message.error_message == "there is no CA bundle at /nowhere/ca.pem: correct REQUESTS_CA_BUNDLE, or unset it"


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_serves_turn_after_turn() -> None:
    """Connections are kept: three turns use one, whether the last bytes come with the answer or a moment later."""
    late_end = answer(
        [*'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'.splitlines(True), 0.02]
    )
    with SseServer(says("one"), late_end, says("three")) as server:
        for _ in range(3):
            assert last_of(ask(server.model())).message.stop_reason == "done"
        assert server.connections == 1


def test_a_connection_that_was_closed_is_replaced_without_a_retry() -> None:
    """C017: a kept connection that the server closes without a byte costs one resend, and is no failure of the provider."""
    with SseServer(says("one"), answer(drop=True), says("two")) as server:
        model = server.model()
        assert last_of(ask(model)).message.text == "one"
        events = list(ask(model, max_retries=0))
        assert events[-1].message.text == "two"  # type: ignore[union-attr]
        assert not any(isinstance(event, RetryEvent) for event in events)
        assert [request.connection for request in server.requests] == [0, 0, 1]
        assert server.requests[1].body == server.requests[2].body


def test_a_new_connection_that_is_closed_is_a_failure() -> None:
    """Closed without a byte on a new connection, a request has failed: it is retried as such, visibly."""
    with SseServer(answer(drop=True), says("two")) as server:
        events = list(ask(server.model()))
        assert [event.type for event in events][:2] == ["retry", "start"]
        assert events[0].kind == "network"  # type: ignore[union-attr]


def test_closing_connections_leaves_none_open() -> None:
    """`close_connections` closes what is idle; the next request makes a new one."""
    with SseServer(says("one"), says("two")) as server:
        assert last_of(ask(server.model())).message.text == "one"
        close_connections()
        assert server.requests[0].gone.wait(2)
        assert last_of(ask(server.model())).message.text == "two"
        assert server.connections == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_makes_connections_of_its_own() -> None:
    """A child does not speak on a connection of its parent, and the parent's goes on."""
    with SseServer(says("parent"), says("child"), says("parent again")) as server:
        model = server.model()
        assert last_of(ask(model)).message.text == "parent"
        child = os.fork()
        if child == 0:
            try:
                fine = last_of(ask(model)).message.text == "child"
                os._exit(0 if fine else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert last_of(ask(model)).message.text == "parent again"
        assert [request.connection for request in server.requests] == [0, 1, 0]


def test_concurrent_requests_share_the_adapter() -> None:
    """Twenty requests at the same time are answered, and their connections are kept."""
    gate = threading.Event()
    with SseServer(answer(says("a") + waits(gate) + says("b")), repeat=True) as server:
        askings = [Asking(server.model()) for _ in range(20)]
        assert server.wait_for_requests(20)
        gate.set()
        for asking in askings:
            asking.wait_for(lambda asking=asking: bool(asking.events) and asking.events[-1].type == "done")  # type: ignore[misc]
            asking.abort()
        before = server.connections
        assert last_of(ask(server.model())).message.text == "ab"
        assert server.connections == before


# --- proxies ---------------------------------------------------------------------------------------------------------


class Proxy:
    """A small HTTP proxy on the loopback that forwards requests and opens tunnels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._listener]
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (got := client.recv(65536)):
            head += got
        line = head.split(b"\r\n", 1)[0].decode()
        self.lines.append(line)
        method, target, _ = line.split(" ")
        host, _, port = target.removeprefix("http://").partition("/")[0].partition(":")
        upstream = socket.create_connection((host, int(port)))
        self._sockets.append(upstream)
        if method == "CONNECT":
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream.sendall(head)
        self._start(self._pump, client, upstream)
        self._pump(upstream, client)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while got := source.recv(65536):
                sink.sendall(got)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        for item in self._sockets:
            try:
                item.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            item.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    made = Proxy()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, made.url)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield made
    close_connections()
    made.close()


def _through_a_proxy(server: SseServer) -> None:
    assert last_of(ask(server.model())).message.text == "whole"
    server.add(answer(HALF, hold_open=True), answer(never=True))
    for index in (1, 2):
        asking = Asking(server.model())
        assert server.wait_for_requests(index + 1)
        if index == 1:
            asking.wait_for(lambda asking=asking: any(event.type == "text_delta" for event in asking.events))  # type: ignore[misc]
        assert asking.abort() < SOON
        assert asking.is_aborted()


def test_the_proxy_of_the_environment_is_used_and_an_abort_takes_hold(proxy: Proxy) -> None:
    """Plain HTTP goes through the proxy that the environment names; an abort takes hold as without one."""
    with SseServer(says("whole")) as server:
        _through_a_proxy(server)
        assert proxy.lines[0] == f"POST {server.url}/v1/chat/completions HTTP/1.1"


def test_a_tunnel_through_the_proxy_is_used_and_an_abort_takes_hold(server_context: ssl.SSLContext, proxy: Proxy) -> None:
    """TLS goes through a tunnel of the proxy; an abort takes hold as without one."""
    with SseServer(says("whole"), ssl_context=server_context) as server:
        _through_a_proxy(server)
        assert proxy.lines[0].startswith(f"CONNECT 127.0.0.1:{server.port} ")


def test_no_proxy_is_heeded(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that `NO_PROXY` names is asked without the proxy, from the next request on."""
    with SseServer(says("by proxy"), says("straight")) as server:
        assert last_of(ask(server.model())).message.text == "by proxy"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert last_of(ask(server.model())).message.text == "straight"
        assert len(proxy.lines) == 1


def test_a_login_at_the_proxy_goes_to_the_proxy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name and a password in the proxy's address are sent to it, and are in no text if it is gone."""
    with SseServer(says("hi")) as server:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//me:s3cr3t@"))
        assert last_of(ask(server.model(), api_key="sk-own")).message.text == "hi"
        assert server.requests[0].headers["proxy-authorization"] == "Basic bWU6czNjcjN0"  # this proxy hands all on
        assert server.requests[0].headers["authorization"] == "Bearer sk-own"
        monkeypatch.setenv("http_proxy", "http://me:s3cr3t@127.0.0.1:9")
        message = failing(server.model())
        assert message.error_message == f"the proxy did not connect to 127.0.0.1:{server.port}: check HTTPS_PROXY and NO_PROXY"


def test_netrc_and_cookies_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C115: a login of `.netrc` never takes the place of the key, and what a server wants remembered is forgotten."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cr3t")
    monkeypatch.setenv("NETRC", str(netrc))
    with SseServer(answer(says("a"), headers={"set-cookie": "track=1; Path=/"}), says("b")) as server:
        for key in ("sk-own", None):
            last_of(ask(server.model(), api_key=key))
        assert [request.headers.get("authorization") for request in server.requests] == ["Bearer sk-own", None]
        assert not any("cookie" in request.headers for request in server.requests)


def test_curl_ca_bundle_counts_too(server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CURL_CA_BUNDLE` names the CA where `REQUESTS_CA_BUNDLE` does not, as with `requests`."""
    monkeypatch.setenv("CURL_CA_BUNDLE", os.environ["REQUESTS_CA_BUNDLE"])
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with SseServer(says("hi"), ssl_context=server_context) as server:
        assert last_of(ask(server.model())).message.text == "hi"


# --- failures --------------------------------------------------------------------------------------------------------


def failing(model: Model, **options: Any) -> Any:
    """Return the failed message of a request that is not retried."""
    message = last_of(ask(model, max_retries=0, **options)).message
    assert message.stop_reason == "error"
    return message


def test_a_refused_connection_names_the_host_and_the_way_out() -> None:
    """Nothing listens: the text names host and port, and what to check."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    message = failing(Model("m", provider="local", base_url=f"http://127.0.0.1:{port}/v1"))
    assert message.error_message == (
        f"connection refused by 127.0.0.1:{port}: check that the server runs and that base_url is right"
    )
    assert (message.error_kind, message.error_retryable) == ("network", True)


def test_an_unknown_host_is_named() -> None:
    """A host that does not exist is named, with what to check."""
    message = failing(Model("m", provider="local", base_url="http://no-such-host.invalid/v1"))
    assert message.error_message == "there is no host no-such-host.invalid, or no network: check base_url and the connection"


@pytest.mark.parametrize(
    "base_url",
    [
        "http://", "http://[::1", "http://host:port/v1", "localhost:8080/v1", "127.0.0.1:8080/v1", "//host/v1", "/v1", "ftp://host",
        "http://exa mple.com", "http://a..b/v1", "http://host:99999",
    ],
)  # fmt: skip
def test_a_wrong_base_url_is_an_error_that_says_so(base_url: str) -> None:
    """A base URL that is none is refused without a retry, in one line that names base_url."""
    message = failing(Model("m", provider="local", base_url=base_url))
    assert "base_url" in message.error_message and "\n" not in message.error_message
    assert message.error_retryable is False


@pytest.mark.parametrize(("api", "path"), [
    ("openai-completions", "/base/chat/completions?v=1"),
    ("openai-responses", "/base/responses?v=1"),
    ("anthropic-messages", "/base/v1/messages?v=1"),
    ("google-generative-ai", "/base/models/scripted:streamGenerateContent?alt=sse&v=1"),
])  # fmt: skip
def test_a_base_url_may_have_a_slash_a_query_and_a_fragment(api: str, path: str) -> None:
    """The path is added behind the base URL's own, the query stays behind both, a fragment goes nowhere."""
    with SseServer(says("hi")) as server:
        last = last_of(ask(server.model(api, base_url=f"{server.url}/base/?v=1#top")))
        assert (last.message.text, server.requests[0].path) == ("hi", path)


def test_a_name_and_a_password_in_the_base_url_log_in_as_with_requests() -> None:
    """They go out as a header, a header of one's own goes before them, and no text shows the password."""
    with SseServer(
        answer({"error": {"message": "no entry for s3cr3t-pass, Basic bWU6czNjcjN0LXBhc3M="}}, status=403), says("hi")
    ) as server:
        model = server.model(base_url=server.url.replace("//", "//me:s3cr3t-pass@") + "/v1")
        message = failing(model)
        assert server.requests[0].headers["authorization"] == "Basic bWU6czNjcjN0LXBhc3M="
        assert "s3cr3t" not in message.error_message and "bWU6" not in message.error_message
        last_of(ask(model, api_key="sk-own"))
        assert server.requests[1].headers["authorization"] == "Bearer sk-own"


def test_a_model_without_a_base_url_goes_to_no_other_vendor() -> None:
    """C115: a provider of one's own without an address is an error; its key does not go to the vendor of the wire format."""
    for api in ("openai-responses", "anthropic-messages", "google-generative-ai"):
        message = failing(Model("m", provider="mine", api=api), api_key="sk-mine")
        assert message.error_message == ("the model m has no base_url: set Model.base_url, or take a model of the catalogue")


def test_a_ca_bundle_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without certificates in it is an error that names the variable."""
    bundle = tmp_path / "ca.pem"
    bundle.write_text("no certificate")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    message = failing(Model("m", provider="local", base_url="https://127.0.0.1:9/v1"))
    assert message.error_message.startswith("the CA bundle cannot be read (")
    assert message.error_message.endswith("): correct REQUESTS_CA_BUNDLE, or unset it")


def test_a_key_in_a_wrong_base_url_does_not_show() -> None:
    """What a URL holds before its `@` and behind its `?` is in no text."""
    message = failing(Model("m", provider="local", base_url="http://sk-secret-1@exa mple.com/v1?key=sk-secret-2"))
    assert message.error_message == (
        "'http://exa mple.com/v1/chat/completions' is no URL that a request can go to: correct base_url"
    )


def test_a_socks_proxy_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SOCKS proxy that cannot be used is an error that says what to install."""
    if importlib.util.find_spec("socks") is not None:
        pytest.skip("PySocks is installed")
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    message = failing(Model("m", provider="local", base_url="http://10.255.255.1/v1"))
    assert message.error_message == ("a SOCKS proxy needs one more package: pip install 'requests[socks]', or unset ALL_PROXY")


def test_a_server_that_speaks_no_http_is_an_error_that_says_so() -> None:
    """An answer that is no HTTP is named as such."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            client.recv(65536)
            client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        message = failing(Model("m", provider="local", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join(5)
    assert "HTTP" in message.error_message or "connection closed" in message.error_message


def test_no_headers_in_time_is_a_timeout() -> None:
    """Headers that do not come within `timeout` are a retryable timeout, which names the setting."""
    with SseServer(answer(never=True)) as server:
        begun = time.perf_counter()
        message = failing(server.model(), timeout=0.2)
        assert time.perf_counter() - begun < 1.0
        assert message.error_message == (
            f"no answer from 127.0.0.1:{server.port} within 0.2 s: timed out, raise StreamOptions.timeout for slow models"
        )
        assert (message.error_kind, message.error_retryable) == ("timeout", True)


def test_a_redirect_is_not_followed() -> None:
    """C115: a redirect is an error that names the other host, which hears nothing, least of all the key."""
    with SseServer(says("never")) as other:
        redirect = Answer("", status=307, headers={"location": other.url + "/v1/chat/completions"})
        with SseServer(redirect) as server:
            message = failing(server.model(), api_key="sk-secret-0123")
        assert other.requests == []
    assert message.error_message == (
        f"307: 127.0.0.1:{server.port} redirects to http://127.0.0.1:{other.port}: set base_url to where the API is"
    )
