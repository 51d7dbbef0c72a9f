"""API keys: whose variable is looked at, and what is masked."""

from __future__ import annotations

import pytest

from agentcore.llm.keys import brings_own_key, find_key, key_variables, mask, missing_key_text, secrets_in
from agentcore.models import Model


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai", ("OPENAI_API_KEY",)),
        ("anthropic", ("ANTHROPIC_API_KEY",)),
        ("google", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
        ("google-generative-ai", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
        ("huggingface", ("HF_TOKEN",)),
        ("my-corp.eu", ("MY_CORP_EU_API_KEY",)),
        ("openai-compatible", ()),
        ("local", ()),
        ("", ()),
    ],
)
def test_each_provider_has_its_own_variable(provider: str, variables: tuple[str, ...]) -> None:
    """The variable follows from the provider alone; servers without keys have none, least of all OpenAI's."""
    assert key_variables(provider) == variables


def test_a_given_key_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the call counts, else the first variable that is set; blanks around a key are no part of it."""
    model = Model("m", provider="google")
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert find_key(model, None) == "second"
    monkeypatch.setenv("GEMINI_API_KEY", " first\n")
    assert find_key(model, None) == "first"
    assert find_key(model, " given ") == "given"
    assert find_key(Model("m", provider="openai-compatible"), None) is None


def test_a_missing_key_is_named() -> None:
    """The text names the variables and the other ways."""
    assert missing_key_text(Model("m", provider="google")) == (
        "no API key for the provider google: set GEMINI_API_KEY or GOOGLE_API_KEY, "
        "or pass StreamOptions(api_key=…) or Agent(get_api_key=…)"
    )


def test_a_header_may_bring_the_key() -> None:
    """A header that carries a key, whatever its case, takes the place of one; an empty one does not."""
    assert brings_own_key({"Authorization": "Bearer x"}) and brings_own_key({"X-API-Key": "x"})
    assert not brings_own_key({"Authorization": ""}) and not brings_own_key({"X-Other": "x"})


def test_secrets_are_masked_wherever_they_stand() -> None:
    """The values of headers with keys and tokens are masked, with and without the word before them."""
    headers = {"authorization": "Bearer sk-12345678", "x-my-token": "tok-12345678", "content-type": "application/json"}
    assert mask("a key, k, and K2.", ["k", "K2"]) == "a key, ***, and ***."
    text = "got 'Bearer sk-12345678' and sk-12345678, tok-12345678, application/json"
    assert mask(text, secrets_in(headers)) == "got '***' and ***, ***, application/json"
