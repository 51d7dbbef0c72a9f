"""`python -m agentcore "prompt"`: the same as the `agentcore` command."""

from agentcore.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
