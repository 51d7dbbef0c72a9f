"""The models that are known: where they are, what they take, what they cost.

`catalogue.json` holds them by provider; a provider without models is one whose address is known. An id that is not listed is
taken all the same: what its provider says of all its models, and of those that are not listed (`unlisted`: they are newer),
holds for it, prices and window are unknown (0), and a snapshot of a listed model (`gpt-5-2025-08-07`,
`claude-haiku-4-5-20251001`, `…-latest`) is that model under another name. Where a window or a
limit is not certain, the file has a lower bound: a conversation is then compacted early, never refused.
"""

from __future__ import annotations

import json
import re
import threading
from copy import deepcopy
from importlib.resources import files
from typing import Any

from agentcore.codec import decode
from agentcore.models import Model

# _lock guards _providers and _models. Reading the file happens under it, once.
_lock = threading.Lock()
_providers: dict[str, dict[str, Any]] = {}
_models: dict[tuple[str, str], Model] = {}

_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest|preview|preview-\d{2}-(?:\d{4}|\d{2}(?:-\d{4})?))$")
_REASONING = re.compile(
    r"(?:^|/)(?:gpt-[5-9]|o\d|claude-(?:opus|sonnet|haiku|[a-z]+)-[4-9]|gemini-(?:2\.5|[3-9])|grok-[4-9]|deepseek-r)"
)
_SEEING = re.compile(r"(?:^|/)(?:gpt-[4-9]|o[134]|claude-|gemini-|grok-[4-9])")


def get_model(name: str, model_id: str | None = None) -> Model:
    """Return a model: `get_model("openai/gpt-5-mini")` or `get_model("openai", "gpt-5-mini")`. The object is the caller's own.

    Raises:
        ValueError: There is no provider in the name, or none is known by it and no model was registered for it. (An id that the
            catalogue does not have is no error.)
    """
    provider, _, id = (name, "", model_id) if model_id is not None else name.partition("/")
    if not provider or not id:
        raise ValueError(f'a model is named by its provider and its id, such as "openai/gpt-5-mini", not {name!r}')
    with _lock:
        _load()
        model = _models.get((provider, id))
        known = _providers.get(provider)
        if model is not None:
            return deepcopy(model)
        if known is None:
            names = ", ".join(sorted({*_providers, *(registered for registered, _ in _models)}))
            raise ValueError(
                f"no provider is called {provider!r}: take one of {names}, register_model(…), or openai_compatible(base_url, id)"
            )
        base = _SNAPSHOT.sub("", id)
        for listed in (base, f"{base}-latest", f"{base}-0", f"{base}-preview"):
            model = _models.get((provider, listed))
            if model is not None:
                copy = deepcopy(model)
                copy.id = copy.name = id
                return copy
    return Model(
        id,
        api=known["api"],
        provider=provider,
        base_url=known["baseUrl"],
        reasoning=bool(_REASONING.search(id)),
        input=["text", "image"] if _SEEING.search(id) else ["text"],
        compat=deepcopy(known.get("unlisted", {}).get("compat")),
    )


def list_models(provider: str | None = None) -> list[Model]:
    """Return the models that are known, or those of one provider, in order. The objects are the caller's own."""
    with _lock:
        _load()
        return [deepcopy(model) for (name, _), model in _models.items() if provider is None or name == provider]


def list_providers() -> list[str]:
    """Return the providers that are known, those without models too."""
    with _lock:
        _load()
        return list(dict.fromkeys([*_providers, *(name for name, _ in _models)]))


def register_model(model: Model) -> None:
    """Add a model, or replace the one of the same provider and id.

    Raises:
        ValueError: The model has no provider.
    """
    if not model.provider:
        raise ValueError(f"the model {model.id!r} has no provider: set Model.provider, which names it in get_model")
    with _lock:
        _load()
        _models[model.provider, model.id] = deepcopy(model)


def _load() -> None:
    if _providers:
        return
    raw = json.loads(files("agentcore.llm").joinpath("catalogue.json").read_text("utf-8"))
    for provider, known in raw["providers"].items():
        _providers[provider] = known
        for entry in known["models"]:
            described = {"api": known["api"], "provider": provider, "baseUrl": known["baseUrl"], **entry}
            _models.setdefault((provider, entry["id"]), decode(Model, described))
