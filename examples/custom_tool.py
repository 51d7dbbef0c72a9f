"""A function with annotations and a docstring becomes a tool: name, description and schema are read off it.

The model here plays a script (`agentcore.testing`), so that the example runs anywhere and says the same each time.
"""

from typing import Literal

from agentcore import Agent, ToolResultMessage, tool
from agentcore.testing import calls, says, scripted_stream


@tool
def forecast(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Tell tomorrow's weather.

    Args:
        city: The city's name, in English.
        unit: The unit of the temperature.
    """
    degrees = 4 if unit == "celsius" else 39
    return f"Snow in {city}, {degrees} degrees {unit}."


model = scripted_stream(
    calls("forecast", city="Oslo") + calls("forecast", city="Bergen", unit="kelvin"),
    says("Snow in Oslo; for Bergen I asked in a unit that there is not."),
)

agent = Agent(tools=[forecast], stream_fn=model)
answer = agent.run("What will the weather be in Oslo and Bergen?")

print(forecast.parameters["properties"]["city"])
for message in agent.messages:
    if isinstance(message, ToolResultMessage):
        print("failed:" if message.is_error else "result:", message.text.splitlines()[0])
print(answer.text)

# It prints:
# {'type': 'string', 'description': "The city's name, in English."}
# result: Snow in Oslo, 4 degrees celsius.
# failed: Validation failed for tool "forecast":
# Snow in Oslo; for Bergen I asked in a unit that there is not.
