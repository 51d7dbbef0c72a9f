"""The floor: what anybody would write with `requests` and `sseclient-py` alone.

A kept session, keep-alive, one dict appended for each message, the whole history written with `json.dumps` for each request, the
tool called inline. No events, no hooks, no abort, no error that says what to do. What the library takes more is its price.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import requests
import sseclient

SYSTEM = "You are a careful assistant."
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Tell the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def look(city: str) -> str:
    """The tool of both sides."""
    return f"It is sunny in {city}."


def stream_events(session: requests.Session, url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Make one request; yield the JSON of each event."""
    headers = {"Content-Type": "application/json"}
    with session.post(f"{url}/v1/chat/completions", data=json.dumps(body), headers=headers, stream=True) as response:
        response.raise_for_status()
        pieces = iter(lambda: response.raw.read1(65536), b"")
        for event in sseclient.SSEClient(pieces).events():
            if event.data == "[DONE]":
                # Reading on to the end of the body is what keeps the connection.
                for _ in pieces:
                    pass
                return
            yield json.loads(event.data)


def read_answer(events: Iterator[dict[str, Any]], on_delta: Callable[[str], object] | None = None) -> dict[str, Any]:
    """Put the message of an answer together."""
    text: list[str] = []
    thinking: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    for said in events:
        for choice in said["choices"]:
            delta = choice["delta"]
            piece = delta.get("content")
            if piece:
                text.append(piece)
                if on_delta is not None:
                    on_delta(piece)
            piece = delta.get("reasoning_content")
            if piece:
                thinking.append(piece)
                if on_delta is not None:
                    on_delta(piece)
            for part in delta.get("tool_calls") or ():
                call = calls.get(part["index"])
                if call is None:
                    call = calls[part["index"]] = {"id": part["id"], "name": part["function"]["name"], "pieces": []}
                call["pieces"].append(part["function"]["arguments"])
                if on_delta is not None:
                    on_delta(part["function"]["arguments"])
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": "".join(call["pieces"])}}
            for call in calls.values()
        ]
    return message


def run_tool_loop(session: requests.Session, url: str) -> list[dict[str, Any]]:
    """Run a conversation until the model calls no tool any more; return its messages."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Travel."}]
    while True:
        body = {
            "model": "bench",
            "messages": messages,
            "tools": [TOOL],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        message = read_answer(stream_events(session, url, body))
        messages.append(message)
        if "tool_calls" not in message:
            return messages
        for call in message["tool_calls"]:
            result = look(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
