"""Which environment variables hold the keys of which provider.

Two rooms need the same list: `llm` looks a key up here, and `tools` keeps these variables from the commands that a model
runs, so that no command prints, logs or sends one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PROVIDER_KEY_VARIABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "openai": ("OPENAI_API_KEY",),
        "anthropic": ("ANTHROPIC_OAUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "google-vertex": ("GOOGLE_CLOUD_API_KEY",),
        "amazon-bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
        "azure-openai-responses": ("AZURE_OPENAI_API_KEY",),
        "ai21": ("AI21_API_KEY",),
        "cerebras": ("CEREBRAS_API_KEY",),
        "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
        "deepinfra": ("DEEPINFRA_API_KEY",),
        "deepseek": ("DEEPSEEK_API_KEY",),
        "fireworks": ("FIREWORKS_API_KEY",),
        "github-copilot": ("COPILOT_GITHUB_TOKEN",),
        "groq": ("GROQ_API_KEY",),
        "huggingface": ("HF_TOKEN",),
        "kimi-coding": ("KIMI_API_KEY",),
        "minimax": ("MINIMAX_API_KEY",),
        "minimax-cn": ("MINIMAX_CN_API_KEY",),
        "mistral": ("MISTRAL_API_KEY",),
        "moonshotai": ("MOONSHOT_API_KEY",),
        "nvidia": ("NVIDIA_API_KEY",),
        "ollama": ("OLLAMA_API_KEY",),
        "opencode": ("OPENCODE_API_KEY",),
        "openrouter": ("OPENROUTER_API_KEY",),
        "perplexity": ("PERPLEXITY_API_KEY",),
        "qwen": ("DASHSCOPE_API_KEY",),
        "sambanova": ("SAMBANOVA_API_KEY",),
        "together": ("TOGETHER_API_KEY",),
        "vercel-ai-gateway": ("AI_GATEWAY_API_KEY",),
        "xai": ("XAI_API_KEY",),
        "xiaomi": ("XIAOMI_API_KEY",),
        "zai": ("ZAI_API_KEY",),
    }
)
"""Provider (as in `Model.provider`) → the names of the variables that may hold its key, the first one set counts."""


def is_provider_key_variable(name: str) -> bool:
    """Whether the environment variable `name` may hold a provider's key. Upper and lower case are the same, as on Windows.

    So does every `…_API_KEY`: the key of a provider that is not in the table is looked up under such a name.
    """
    upper = name.upper()
    return upper.endswith("_API_KEY") or upper in _ALL_NAMES


_ALL_NAMES = frozenset(name for names in PROVIDER_KEY_VARIABLES.values() for name in names)
