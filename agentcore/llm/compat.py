"""How servers bend a wire format: a table of data, so that no wire format has to know a vendor by name.

`compat_of(model)` puts together what is known, later rows over earlier ones, `Model.compat` over all of them. Its keys are
those of the reference (`"supportsStore": false`); snake_case is understood too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal

from agentcore.codec import camel_case
from agentcore.models import Model

ThinkingFormat = Literal[
    "openai",
    "openrouter",
    "deepseek",
    "zai",
    "qwen",
    "qwen-chat-template",
    "chat-template",
    "together",
    "ant-ling",
    "string-thinking",
]


@dataclass(frozen=True)
class Compat:
    """What a server takes and wants. The defaults are those of the API's own vendor.

    Chat completions and Responses:

    - `supports_store`, `supports_developer_role`, `supports_reasoning_effort`, `supports_usage_in_streaming`,
      `supports_strict_mode`: the field may be sent
    - `max_tokens_field`: the name of the token limit
    - `thinking_format`: how thinking is asked for; `chat_template_kwargs` is what `"chat-template"` sends
    - `requires_…`: what the server insists on in the history
    - `cache_control_format`: `"anthropic"` where cache breakpoints are set as in that API
    - `send_session_affinity_headers`, `session_affinity_format`: headers that keep a conversation on one machine
    - `key_header`: the header that carries the key: `authorization` (as a bearer token) or another one (as it is)
    - `open_router_routing`, `vercel_gateway_routing`: passed on to these gateways
    - `short_call_ids`: call ids must be of nine letters and digits

    Anthropic messages: `supports_eager_tool_input_streaming`, `supports_cache_control_on_tools`, `supports_temperature`,
    `force_adaptive_thinking` (thinking by effort, not by budget), `allow_empty_signature`.

    `supports_long_cache_retention` and `supports_explicit_prompt_cache_mode` are about prompt caching.
    """

    supports_store: bool = True
    supports_developer_role: bool = True
    supports_reasoning_effort: bool = True
    supports_usage_in_streaming: bool = True
    supports_strict_mode: bool = True
    supports_long_cache_retention: bool = True
    supports_explicit_prompt_cache_mode: bool = False
    max_tokens_field: str = "max_completion_tokens"
    thinking_format: ThinkingFormat = "openai"
    chat_template_kwargs: Mapping[str, Any] | None = None
    requires_tool_result_name: bool = False
    requires_assistant_after_tool_result: bool = False
    requires_thinking_as_text: bool = False
    requires_reasoning_content_on_assistant_messages: bool = False
    cache_control_format: Literal["anthropic"] | None = None
    send_session_affinity_headers: bool = False
    session_affinity_format: Literal["openai", "openai-nosession", "openrouter"] = "openai"
    zai_tool_stream: bool = False
    open_router_routing: Mapping[str, Any] | None = None
    vercel_gateway_routing: Mapping[str, Any] | None = None
    key_header: str = "authorization"
    short_call_ids: bool = False
    supports_item_ids: bool = False
    supports_eager_tool_input_streaming: bool = True
    supports_cache_control_on_tools: bool = True
    supports_temperature: bool = True
    force_adaptive_thinking: bool = False
    allow_empty_signature: bool = False


@dataclass(frozen=True)
class _Row:
    """Holds where the provider is one of `providers` or the address has one of `urls` in it, and the id begins with `ids`."""

    changes: Mapping[str, Any]
    providers: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


_PLAIN = {"supports_store": False, "supports_developer_role": False}
_PLAINEST = {
    **_PLAIN,
    "supports_strict_mode": False,
    "supports_long_cache_retention": False,
    "supports_reasoning_effort": False,
    "max_tokens_field": "max_tokens",
}
_LOCAL = {
    **_PLAIN,
    "supports_strict_mode": False,
    "supports_long_cache_retention": False,
    "max_tokens_field": "max_tokens",
}

_TABLE: tuple[_Row, ...] = (
    _Row({"supports_item_ids": True}, providers=("openai", "openai-codex", "opencode", "github-copilot", "azure-openai-responses")),
    _Row({"supports_item_ids": True}, urls=("api.openai.com", ".openai.azure.com")),
    _Row({"key_header": "api-key"}, providers=("azure-openai-responses",), urls=(".openai.azure.com",)),
    _Row(_PLAIN, providers=("cerebras", "opencode", "zai"), urls=("api.cerebras.ai", "opencode.ai", "api.z.ai")),
    _Row(
        {"thinking_format": "zai", "supports_reasoning_effort": False},
        providers=("zai",),
        urls=("api.z.ai", "open.bigmodel.cn"),
    ),
    _Row({**_PLAIN, "supports_reasoning_effort": False}, providers=("xai",), urls=("api.x.ai",)),
    _Row(
        {"thinking_format": "deepseek", "requires_reasoning_content_on_assistant_messages": True},
        providers=("deepseek",),
        urls=("api.deepseek.com",),
    ),
    _Row({**_PLAIN, "max_tokens_field": "max_tokens", "supports_strict_mode": False}, urls=("api.deepseek.com",)),
    _Row({**_PLAINEST, "thinking_format": "together"}, providers=("together",), urls=("api.together.",)),
    _Row(
        {**_PLAINEST, "supports_long_cache_retention": True},
        providers=("moonshotai", "moonshotai-cn"),
        urls=("api.moonshot.",),
    ),
    _Row(_PLAINEST, providers=("nvidia",), urls=("integrate.api.nvidia.com",)),
    _Row(_PLAINEST, providers=("cloudflare-ai-gateway",), urls=("gateway.ai.cloudflare.com",)),
    _Row(
        {**_PLAIN, "supports_long_cache_retention": False},
        providers=("cloudflare-workers-ai",),
        urls=("api.cloudflare.com",),
    ),
    _Row(
        {**_PLAINEST, "supports_strict_mode": True, "thinking_format": "ant-ling"},
        providers=("ant-ling",),
        urls=("api.ant-ling.com",),
    ),
    _Row({**_PLAINEST, "short_call_ids": True}, urls=("api.mistral.ai",)),
    _Row(
        {"supports_developer_role": False, "thinking_format": "openrouter", "session_affinity_format": "openrouter"},
        providers=("openrouter",),
        urls=("openrouter.ai",),
    ),
    _Row(
        {"supports_developer_role": True},
        providers=("openrouter",),
        urls=("openrouter.ai",),
        ids=("anthropic/", "openai/"),
    ),
    _Row({"cache_control_format": "anthropic"}, providers=("openrouter",), urls=("openrouter.ai",), ids=("anthropic/",)),
    _Row({**_PLAINEST, "supports_reasoning_effort": True}, urls=("api.fireworks.ai", "api.perplexity.ai", "api.deepinfra.com")),
    # Servers that people run themselves: by the name that is given, or by the port that each is known for.
    _Row(_LOCAL, providers=("ollama", "local", "vllm", "llama.cpp", "lmstudio", "lm-studio", "sglang"), urls=(":11434", ":1234/")),
)


def compat_of(model: Model) -> Compat:
    """Return what the server of a model takes and wants. Keys of `model.compat` that nothing is known of are passed over."""
    known = _known(model.provider, model.base_url, model.id)
    if not model.compat:
        return known
    changes = {}
    for key, value in model.compat.items():
        name = _NAMES.get(key)
        if name is not None:
            changes[name] = value
    return replace(known, **changes) if changes else known


@lru_cache(maxsize=256)
def _known(provider: str, base_url: str, model_id: str) -> Compat:
    changes: dict[str, Any] = {}
    for row in _TABLE:
        if provider not in row.providers and not any(part in base_url for part in row.urls):
            continue
        if row.ids and not model_id.startswith(row.ids):
            continue
        changes.update(row.changes)
    return Compat(**changes)


_NAMES = {key: item.name for item in fields(Compat) for key in (item.name, camel_case(item.name))}
