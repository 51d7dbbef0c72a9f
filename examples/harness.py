"""A harness: an agent with a session, hooks, an extension, branches and compaction.

Everything is stored as it happens. Going back to an earlier entry makes a branch; what was left can be summarised. When the context
is nearly full it is compacted by itself; here that is asked for.
"""

from agentcore import AgentHarness, CompactionSettings, PromptTemplate, tool
from agentcore.harness import BeforeAgentStartEvent, BeforeAgentStartResult, ToolCallEvent
from agentcore.loop import BeforeToolCallResult
from agentcore.testing import calls, says, scripted_stream


@tool
def run_sql(query: str) -> str:
    """Ask the database."""
    return "3 rows"


class Safety:
    """An extension: whatever `register` adds is taken out again by what `use` returns."""

    def register(self, harness: AgentHarness) -> None:
        harness.add_tools([run_sql])
        harness.add_prompt_templates([PromptTemplate("count", "How many $1 are there?")])
        harness.on("before_agent_start", self.add_rule)
        harness.on("tool_call", self.guard)

    def add_rule(self, event: BeforeAgentStartEvent) -> BeforeAgentStartResult:
        return BeforeAgentStartResult(system_prompt=event.system_prompt + " Never change data.")

    def guard(self, event: ToolCallEvent) -> BeforeToolCallResult | None:
        if event.input["query"].startswith("DELETE"):
            return BeforeToolCallResult(block=True, reason="deleting is not allowed")
        return None


model = scripted_stream(
    calls("run_sql", query="SELECT 1 FROM users"),
    says("There are three users."),
    calls("run_sql", query="DELETE FROM users"),
    says("I may not delete them."),
    says("The user tried to delete users; that was refused."),
    says("Still three."),
    says("The user asked how many users there are: three."),
)
with AgentHarness(model="openai/gpt-5-mini", stream_fn=model, compaction=CompactionSettings(keep_recent_tokens=5)) as harness:
    remove = harness.use(Safety())
    harness.on("session_compact", lambda event: print("compacted:", event.compaction_entry.summary))

    harness.prompt_from_template("count", ["users"]).result(timeout=30)
    counted = harness.session.get_leaf_id()
    print(harness.run("Delete them.").text)
    print(model.contexts[0].system_prompt)

    harness.navigate_tree(counted, summarize=True, label="counted")
    print(harness.run("And now?").text)
    harness.compact()
    print([message.role for message in harness.messages])

    remove()
    print(harness.tools)

# It prints:
# I may not delete them.
# You are a helpful assistant. Never change data.
# Still three.
# compacted: The user asked how many users there are: three.
# ['compactionSummary', 'branchSummary', 'user', 'assistant']
# []
