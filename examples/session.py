"""A session: a conversation in a file, as a tree. Each message is stored before any listener hears of it.

Going back to an earlier entry and asking something else makes a branch; nothing is ever overwritten.
"""

import tempfile
from pathlib import Path

from agentcore import Agent, JsonlSessionRepo, convert_to_llm
from agentcore.testing import says, scripted_stream

MODEL = "openai/gpt-5-mini"  # is stored with each answer, though it is a script that answers here

with tempfile.TemporaryDirectory() as folder:
    repo = JsonlSessionRepo(folder)
    with repo.create(cwd=folder) as session:
        agent = Agent(model=MODEL, session=session, stream_fn=scripted_stream(says("Noted."), says("At nine.")))
        agent.run("The meeting is at nine.")
        asked_from = session.get_leaf_id()
        agent.run("When is the meeting?")

        session.move_to(asked_from)
        again = Agent(model=MODEL, session=session, stream_fn=scripted_stream(says("In the morning.")))
        again.run("At what time of day is it?")
        metadata = session.get_metadata()

    with repo.open(metadata) as session:
        for message in convert_to_llm(session.build_context().messages):
            print(f"{message.role:>9}: {message.text}")
        print(len(session.get_entries()), "entries in", len(list(Path(folder).rglob("*.jsonl"))), "file")

# It prints:
#      user: The meeting is at nine.
# assistant: Noted.
#      user: At what time of day is it?
# assistant: In the morning.
# 7 entries in 1 file
