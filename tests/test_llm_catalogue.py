"""The catalogue of models: its shape, looking up, registering."""

from __future__ import annotations

import json
import warnings
from importlib.resources import files
from typing import Any

import pytest

from agentcore.llm import catalogue, get_model, list_models, register_model
from agentcore.llm.compat import Compat
from agentcore.models import THINKING_LEVELS, Model

RAW: dict[str, Any] = json.loads(files("agentcore.llm").joinpath("catalogue.json").read_text("utf-8"))
APIS = {"openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"}
ENTRY_KEYS = {"id", "name", "reasoning", "input", "cost", "contextWindow", "maxTokens", "thinkingLevelMap", "compat"}
COST_KEYS = {"input", "output", "cacheRead", "cacheWrite", "tiers"}
ENTRIES = [
    pytest.param(entry, id=f"{provider}/{entry['id']}") for provider, known in RAW["providers"].items() for entry in known["models"]
]


@pytest.mark.parametrize("provider", RAW["providers"])
def test_a_provider_has_an_address_and_a_wire_format(provider: str) -> None:
    """Every provider says where it is and what it speaks; no id stands there twice."""
    known = RAW["providers"][provider]
    assert {"api", "baseUrl", "models"} <= set(known) <= {"api", "baseUrl", "models", "unlisted"}
    assert set(known.get("unlisted", {})) <= {"compat"}
    assert known["api"] in APIS
    assert known["baseUrl"].startswith("https://" if known["models"] else "http")
    assert not known["baseUrl"].endswith("/")
    ids = [entry["id"] for entry in known["models"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_well_formed(entry: dict[str, Any]) -> None:
    """Prices are prices, a window is larger than the longest answer, levels and switches are known ones."""
    assert {"id", "name", "reasoning", "input"} <= set(entry) <= ENTRY_KEYS
    assert entry["input"] in (["text"], ["text", "image"])
    cost = entry.get("cost", {})
    assert set(cost) <= COST_KEYS
    for prices in [cost, *cost.get("tiers", [])]:
        assert all(isinstance(price, (int, float)) and price >= 0 for name, price in prices.items() if name != "tiers")
        assert prices.get("cacheRead", 0) <= prices.get("input", 0) <= prices.get("output", 0)
    assert 0 < entry.get("maxTokens", 1) <= entry["contextWindow"]
    assert entry["reasoning"] or "thinkingLevelMap" not in entry
    assert set(entry.get("thinkingLevelMap", {})) <= set(THINKING_LEVELS)
    names = {name.replace("_", "").lower() for name in Compat.__dataclass_fields__}
    assert {name.lower() for name in entry.get("compat", {})} <= names


def test_a_model_is_found_by_provider_and_id() -> None:
    """Both spellings give the same model, with its address, wire format, prices and limits."""
    model = get_model("anthropic/claude-haiku-4-5")
    assert model == get_model("anthropic", "claude-haiku-4-5")
    assert (model.api, model.base_url) == ("anthropic-messages", "https://api.anthropic.com")
    assert (model.cost.input, model.cost.output, model.context_window) == (1, 5, 200_000)


def test_an_id_with_slashes_is_found() -> None:
    """Only the first slash separates the provider from the id."""
    assert get_model("openrouter/openai/gpt-5").id == "openai/gpt-5"


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("openai/gpt-5-2025-08-07", 1.25),
        ("anthropic/claude-haiku-4-5-20251001", 1),
        ("anthropic/claude-sonnet-4-20250514", 3),
        ("google/gemini-2.5-flash-preview-09-2025", 0.3),
    ],
)
def test_a_snapshot_is_the_model_under_another_name(name: str, price: float) -> None:
    """A dated id has the prices and limits of its model."""
    model = get_model(name)
    assert (f"{model.provider}/{model.id}", model.cost.input) == (name, price)
    assert model.context_window > 0


def test_an_unknown_id_works_without_a_warning() -> None:
    """An id that came out after the catalogue is asked like the provider's others; its price and window are not known."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = get_model("openai/gpt-9-turbo")
    assert (model.api, model.base_url, model.cost.input, model.context_window) == (
        "openai-responses",
        "https://api.openai.com/v1",
        0,
        0,
    )
    assert model.reasoning and "image" in model.input
    assert get_model("anthropic/claude-opus-9").compat == {"forceAdaptiveThinking": True}
    assert get_model("ollama/llama3.2").base_url == "http://localhost:11434/v1"


def test_an_unknown_provider_is_an_error_that_names_the_ways_out() -> None:
    """The text lists the known providers and the other ways to a model."""
    with pytest.raises(
        ValueError, match=r"no provider is called 'nowhere': take one of .*openai.*register_model.*openai_compatible"
    ):
        get_model("nowhere/model")
    with pytest.raises(ValueError, match=r'a model is named by its provider and its id, such as "openai/gpt-5-mini", not \'gpt\''):
        get_model("gpt")


def test_what_is_given_out_is_ones_own() -> None:
    """Changing a model that was looked up changes nothing in the catalogue."""
    get_model("openai/gpt-5").cost.input = 99
    list_models("openai")[0].name = "mine"
    assert get_model("openai/gpt-5").cost.input == 1.25
    assert list_models("openai")[0].name != "mine"


def test_models_are_listed_by_provider() -> None:
    """All models, or those of one provider; a provider without models lists none but is known."""
    assert {model.provider for model in list_models("groq")} == {"groq"}
    assert len(list_models()) == len(ENTRIES)
    assert list_models("ollama") == []
    assert "ollama" in catalogue.list_providers()


def test_a_registered_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of one's own is looked up like the others, and replaces one of the same name."""
    get_model("openai/gpt-5")
    monkeypatch.setattr(catalogue, "_models", dict(catalogue._models))
    register_model(Model("house", provider="home", base_url="http://home/v1", context_window=4096))
    assert get_model("home/house").context_window == 4096
    register_model(Model("gpt-5", provider="openai", context_window=1))
    assert get_model("openai/gpt-5").context_window == 1
    with pytest.raises(ValueError, match=r"the model 'x' has no provider: set Model\.provider"):
        register_model(Model("x"))
