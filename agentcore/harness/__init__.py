"""The harness room: sessions with compaction and branches, skills, prompt templates; the top of the tower.

May import everything below. Nothing of it is imported with the package: it comes when its names are first used.
"""

from agentcore.harness.branch_summaries import (
    BranchPreparation,
    BranchSummaryResult,
    CollectedBranch,
    collect_branch_entries,
    generate_branch_summary,
    prepare_branch_entries,
)
from agentcore.harness.compaction import (
    CompactionPreparation,
    CompactionResult,
    CompactionSettings,
    CutPoint,
    compact,
    find_cut_point,
    find_turn_start_index,
    prepare_compaction,
    should_compact,
)
from agentcore.harness.file_operations import FileOperations, extract_file_operations, format_file_operations
from agentcore.harness.resource_files import ResourceDiagnostic
from agentcore.harness.skills import (
    LoadedSkills,
    LoadedSourcedSkills,
    Skill,
    SourcedSkill,
    format_skill_invocation,
    format_skills_for_system_prompt,
    load_skills,
    load_sourced_skills,
    unique_skills,
)
from agentcore.harness.summaries import RetryListener, Summarizer, serialize_conversation
from agentcore.harness.templates import (
    LoadedPromptTemplates,
    LoadedSourcedPromptTemplates,
    PromptTemplate,
    SourcedPromptTemplate,
    format_prompt_template_invocation,
    load_prompt_templates,
    load_sourced_prompt_templates,
    parse_command_args,
    substitute_args,
)
from agentcore.harness.tokens import (
    ContextTokens,
    calculate_context_tokens,
    estimate_context_tokens,
    estimate_request_context_tokens,
    estimate_tokens,
)

__all__ = [
    "BranchPreparation",
    "BranchSummaryResult",
    "CollectedBranch",
    "CompactionPreparation",
    "CompactionResult",
    "CompactionSettings",
    "ContextTokens",
    "CutPoint",
    "FileOperations",
    "LoadedPromptTemplates",
    "LoadedSkills",
    "LoadedSourcedPromptTemplates",
    "LoadedSourcedSkills",
    "PromptTemplate",
    "ResourceDiagnostic",
    "RetryListener",
    "Skill",
    "SourcedPromptTemplate",
    "SourcedSkill",
    "Summarizer",
    "calculate_context_tokens",
    "collect_branch_entries",
    "compact",
    "estimate_context_tokens",
    "estimate_request_context_tokens",
    "estimate_tokens",
    "extract_file_operations",
    "find_cut_point",
    "find_turn_start_index",
    "format_file_operations",
    "format_prompt_template_invocation",
    "format_skill_invocation",
    "format_skills_for_system_prompt",
    "generate_branch_summary",
    "load_prompt_templates",
    "load_skills",
    "load_sourced_prompt_templates",
    "load_sourced_skills",
    "parse_command_args",
    "prepare_branch_entries",
    "prepare_compaction",
    "serialize_conversation",
    "should_compact",
    "substitute_args",
    "unique_skills",
]
