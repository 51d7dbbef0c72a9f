"""How fast the library is, each figure beside a floor measured in the same run: `python -m benchmarks`. See README.md here."""
