"""The llm room."""
