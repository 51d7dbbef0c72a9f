"""API keys: from the call, else from the environment.

A key is looked up by the *provider* of a model, never by its wire format: a server that speaks OpenAI's format does not get
OpenAI's key. A model that brings a header of its own for it (`Model.headers`, `StreamOptions.headers`) needs no key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from agentcore.models import Model
from agentcore.provider_keys import PROVIDER_KEY_VARIABLES

# Other names of providers in the table of all rooms.
_ALIASES = {
    "google-generative-ai": "google",
    "azure-openai": "azure-openai-responses",
    "opencode-go": "opencode",
    "openai-codex": "openai",
    "moonshotai-cn": "moonshotai",
}

WITHOUT_KEY = frozenset(
    {"openai-compatible", "ollama", "llama.cpp", "lmstudio", "lm-studio", "vllm", "sglang", "local", "scripted"}
)
"""Providers that are asked without a key where there is none."""

PASS_KEY = "pass StreamOptions(api_key=…) or Agent(get_api_key=…)"
"""The ways to give a key in code; the command line has others."""

_KEY_HEADERS = frozenset(
    {"authorization", "x-api-key", "api-key", "x-goog-api-key", "cf-aig-authorization", "proxy-authorization", "cookie"}
)


def key_variables(provider: str) -> tuple[str, ...]:
    """Return the environment variables that may hold the key of a provider; the first one set counts."""
    known = PROVIDER_KEY_VARIABLES.get(_ALIASES.get(provider, provider))
    if known is not None:
        # Tokens of a sign-in are no keys: they need another header, and mostly another address.
        return tuple(name for name in known if "OAUTH" not in name and not name.endswith("_AUTH_TOKEN"))
    if provider in WITHOUT_KEY or not provider:
        return ()
    return (re.sub(r"\W", "_", provider).upper() + "_API_KEY",)


def key_from_environment(provider: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the key of a provider that the environment holds, None where it holds none."""
    for name in key_variables(provider):
        value = (os.environ if environ is None else environ).get(name, "").strip()
        if value:
            return value
    return None


def find_key(model: Model, api_key: str | None) -> str | None:
    """Return the key for a model: the one given, else that of the environment."""
    return (api_key or "").strip() or key_from_environment(model.provider)


def brings_own_key(headers: Mapping[str, str | None]) -> bool:
    """Whether there is a header that carries a key."""
    return any(value and name.lower() in _KEY_HEADERS for name, value in headers.items())


def missing_key_text(model: Model) -> str:
    """Say that there is no key, and the ways to give one."""
    return f"no API key for the provider {model.provider or '(none)'}: {_ways_to_give_key(model.provider)}"


def key_was_missing_text(model: Model) -> str:
    """Say of a refused request that it bore no key, and the ways to give one."""
    if model.provider == "openai-compatible":
        return f"no API key was sent: {PASS_KEY.replace('pass ', 'pass openai_compatible(…, api_key=…), ')}"
    return f"no API key was sent: {_ways_to_give_key(model.provider)}"


def _ways_to_give_key(provider: str) -> str:
    names = " or ".join(key_variables(provider))
    return f"set {names}, or {PASS_KEY}" if names else PASS_KEY


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """Return what must not be shown of the headers of a request, longest first."""
    found: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if lower in _KEY_HEADERS or "token" in lower or "secret" in lower or "key" in lower:
            found.update((value, value.rpartition(" ")[2]))
    return sorted(filter(None, found), key=len, reverse=True)


def mask(text: str, secrets: Iterable[str]) -> str:
    """Put `***` in the place of every secret. A short one counts as a whole word only: `k` must not spoil every word with a k."""
    for secret in secrets:
        if len(secret) >= 8:
            text = text.replace(secret, "***")
        elif secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text
