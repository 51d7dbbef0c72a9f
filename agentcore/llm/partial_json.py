"""stub"""
from __future__ import annotations
import json
from typing import Any


def parse_json_with_repair(text: str) -> Any:
    return json.loads(text)


def parse_streaming_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}
