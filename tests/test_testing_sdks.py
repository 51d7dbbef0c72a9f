"""The providers' official SDKs understand the scripted server, so a user's own code can be tested against it.

Each SDK brings threads and connections of its own, so each runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from agentcore.messages import Usage
from agentcore.testing import SseServer, calls, ends, says, thinks

TURN = thinks("hm", signature="c2ln") + says("Hel", "lo") + calls("read", path="a.txt") + ends(usage=Usage(input=70, output=20))

CHAT = """
from openai import OpenAI
client = OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}],
                                    stream_options={"include_usage": True}) as stream:
    for event in stream:
        pass
    final = stream.get_final_completion()
message, usage = final.choices[0].message, final.usage
result = [message.content, [[c.function.name, json.loads(c.function.arguments)] for c in message.tool_calls],
          final.choices[0].finish_reason, usage.prompt_tokens, usage.completion_tokens]
"""
RESPONSES = """
from openai import OpenAI
client = OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
with client.responses.stream(model="m", input="hi") as stream:
    for event in stream:
        pass
    final = stream.get_final_response()
result = [final.output_text, [[i.name, json.loads(i.arguments)] for i in final.output if i.type == "function_call"],
          final.status, final.usage.input_tokens, final.usage.output_tokens]
"""
ANTHROPIC = """
from anthropic import Anthropic
client = Anthropic(base_url=url, api_key="k", max_retries=0)
with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
    for event in stream:
        pass
    final = stream.get_final_message()
result = ["".join(b.text for b in final.content if b.type == "text"),
          [[b.name, b.input] for b in final.content if b.type == "tool_use"],
          final.stop_reason, final.usage.input_tokens, final.usage.output_tokens]
"""
GEMINI = """
from google import genai
from google.genai import types
client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
text, calls = "", []
for chunk in client.models.generate_content_stream(model="m", contents="hi"):
    for part in chunk.candidates[0].content.parts or ():
        if part.function_call:
            calls.append([part.function_call.name, part.function_call.args])
        elif part.text and not part.thought:
            text += part.text
result = [text, calls, chunk.candidates[0].finish_reason.name,
          chunk.usage_metadata.prompt_token_count, chunk.usage_metadata.candidates_token_count]
"""


@pytest.mark.parametrize(
    ("module", "code", "word"),
    [
        pytest.param("openai", CHAT, "tool_calls", id="openai: chat completions"),
        pytest.param("openai", RESPONSES, "completed", id="openai: responses"),
        pytest.param("anthropic", ANTHROPIC, "tool_use", id="anthropic: messages"),
        pytest.param("google.genai", GEMINI, "STOP", id="google-genai: generate_content_stream"),
    ],
)
def test_an_official_sdk_reads_a_scripted_turn(module: str, code: str, word: str) -> None:
    """Text, calls, stop reason and usage of a turn come out of the provider's own client as they were scripted."""
    if not is_installed(module):
        pytest.skip(f"{module} is not installed: pip install -e '.[test]' brings it")
    with SseServer(TURN) as server:
        result = run(code, server.url)
    assert result == ["Hello", [["read", {"path": "a.txt"}]], word, 70, 20]


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is not there
        return False


def run(code: str, url: str) -> Any:
    script = f"import json\nurl = {url!r}\n{code}\nprint(json.dumps(result))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])
