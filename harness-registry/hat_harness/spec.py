"""What a harness is: the typed, immutable content of a harness folder (`hatstack.harness/1`).

Always holds: a `Harness` is complete and internally consistent, since only `hat_harness.load` and the augmentation
operators build one and both validate it (`hat_harness.validate`). Canonical ids (`Skill.id`, `Tool.id`, `Parameter`
names of the canonical tool) never change under augmentation; what the model sees are the `name`s.
Not here: reading folders (load), digests (digest), rendering (render), the agent loop (session).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Literal["hatstack.harness/1"] = "hatstack.harness/1"
NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$"
"""Names that OpenAI function calling and MCP (SEP-986) both accept."""

HookEvent = Literal["session_start", "before_model", "after_model", "before_tool", "after_tool", "stop"]
HookAction = Literal["block", "require", "refuse", "silence", "replace", "annotate"]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Part(BaseModel):
    """Base of everything inside a harness: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Layout(Part):
    """How sections are written. Templates are `str.format` strings over the named fields and nothing else."""

    section: str = "# {title}\n{body}"
    """One section; fields `title`, `TITLE` (upper case), `body`."""
    skill: str = "*{description}:{name}"
    """One catalogue line; fields `name`, `description`. Description first: a small model then reads by induction."""
    tool: str = "*{description}:{name}({parameters})"
    """One tool line; fields `name`, `description`, `parameters` (names joined by commas)."""
    join: str = "\n"
    """Between lines of a section."""
    result: str = "{result}"
    """Envelope around a tool result; field `result`."""
    tools: Literal["inline", "schema", "both"] = "inline"
    """Tools as lines of the system prompt, as OpenAI function definitions beside it, or both."""


class Prompt(Part):
    """One prompt part, `prompts/<id>.md`. `text` is markdown without the front matter."""

    id: Name
    section: str
    """The section it belongs to; several parts of one section stand in order of `order`, then id."""
    title: str = ""
    """Heading of the section; taken from its first part that has one, else the section's name."""
    order: int = 0
    protected: bool = False
    """Kept whole when a segment is closed at the token budget."""
    language: Literal["en", "zh"] = "en"
    text: str


class Skill(Part):
    """One Agent Skill, `skills/<folder>/SKILL.md`. `id` is canonical, `name` is what the model sees."""

    id: str
    name: Name
    description: Annotated[str, Field(min_length=1, max_length=1024)]
    kind: Literal["reply", "strategy"] = "reply"
    """`reply` skills compose what the viewer reads; `strategy` skills say which tools to chain."""
    body: str
    tools: tuple[str, ...] = ()
    """Canonical ids of the tools that the skill may need (front matter `allowed-tools`)."""
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    resources: tuple[str, ...] = ()
    """Paths of further files of the skill's folder, relative to it; listed, never run."""


AdapterKind = Literal[
    "integer_as_string",
    "string_as_integer",
    "boolean_as_words",
    "words_as_boolean",
    "values",
    "array_of_one",
    "inner_names",
    "nested",
]


class Adapter(Part):
    """One retyped parameter (or group) of a tool: how a canonical argument is written for the model, and back.

    Laws and order of application: `hat_harness.canonical`. Names here are canonical parameter names.
    """

    kind: AdapterKind
    parameters: Annotated[tuple[str, ...], Field(min_length=1)]
    """Canonical parameters it is applied to; exactly one, except for `nested`."""
    values: dict[str, str] = Field(default_factory=dict)
    """`values`: canonical value → the value the model sees. `boolean_as_words`: `true`, `false` → the word that the model
    writes for each. `words_as_boolean`: `true`, `false` → the canonical word that each stands for. `inner_names`: name of a
    property of any object inside the parameter → the name that the model sees."""
    into: str = ""
    """`nested`: the name of the object, as the model sees it, that holds the group."""


class Tool(Part):
    """One MCP tool definition, `tools/<id>.json`. `parameters` is JSON Schema (draft 2020-12) of type object."""

    id: str
    name: Name
    title: str = ""
    """MCP `title`, for people; the model never sees it."""
    description: str
    parameters: dict[str, Any]
    output: dict[str, Any] | None = None
    """MCP `outputSchema`, or None where the result is free text."""
    read_only: bool = True
    """MCP `readOnlyHint`: no effect on the room or an order."""
    idempotent: bool = True
    """MCP `idempotentHint`: the same call twice has the effect of one."""
    timeout_s: float = 10.0
    parameter_names: dict[str, str] = Field(default_factory=dict)
    """Canonical parameter → the name in `parameters`, for those that augmentation renamed."""
    adapters: tuple[Adapter, ...] = ()
    """Retypings, in the order in which they turn canonical arguments into those of `parameters`."""


class Hook(Part):
    """One lifecycle hook, an entry of `hooks/*.yaml`."""

    id: Name
    event: HookEvent
    when: str
    """CEL over the context of `hat_harness.hooks`; true: the hook fires. An error counts as true (fails closed)."""
    action: HookAction
    message: str = ""
    """What `block`, `require` tell the model, `refuse` tells the viewer, `silence` and `annotate` tell the trace.
    For `replace`: the text that replaces the reply, or the tool result."""
    max_rounds: Annotated[int, Field(ge=0, le=8)] = 2
    """How often `require` or `block` may ask for another round in one turn, then the safe reply is given."""
    order: int = 0
    arguments: dict[str, str] = Field(default_factory=dict)
    """Named phrases that `when` and `message` may refer to as `args.<name>` and `{name}`."""


class Activation(Part):
    """The tool by which the model loads a skill."""

    tool: Name = "use_skill"
    parameter: Name = "skill"
    description: str = "load a skill first"
    required: bool = True
    """A reply before any activation is a fault that hooks and metrics can see; False for a harness without skills."""
    once_per: Literal["turn", "segment"] = "turn"
    """Activating the same skill again within this span yields a short note instead of its body."""


class Retry(Part):
    """Per-call recovery: `attempts` further tries, waiting `backoff_s`, then twice that, ... up to `backoff_max_s`."""

    attempts: Annotated[int, Field(ge=0, le=10)] = 2
    backoff_s: Annotated[float, Field(ge=0)] = 0.25
    backoff_max_s: Annotated[float, Field(ge=0)] = 4.0


class Limits(Part):
    """Bounds of one turn and one segment."""

    model_calls: Annotated[int, Field(ge=1, le=64)] = 8
    """Model calls per turn, restarts included."""
    tool_calls: Annotated[int, Field(ge=0, le=64)] = 8
    parallel_tools: Annotated[int, Field(ge=1, le=32)] = 4
    output_tokens: Annotated[int, Field(ge=1)] = 512
    """Per model call."""
    segment_tokens: Annotated[int, Field(ge=64)] = 8192
    """Token budget of a segment; at the budget it is closed and a new one opened with the protected parts."""
    deadline_s: Annotated[float, Field(gt=0)] = 15.0
    """Per turn; then the safe reply."""
    restarts: Annotated[int, Field(ge=0, le=3)] = 1
    """Trajectory-level restarts per turn."""


class Recovery(Part):
    """What happens when calls or trajectories fail."""

    retry: Retry = Retry()
    fallback_model: str = ""
    """Logical model name to use once retries are used up; "" for none."""
    safe_reply: str = "one moment please"
    """Shown when the turn cannot be completed; it states no fact."""


class FewShot(Part):
    """A worked example that prompts may carry; rewritten together with everything it names."""

    id: Name
    messages: tuple[dict[str, Any], ...]


class File(Part):
    """A further file of a skill's folder: listed to the model, never run. Part of the digest by its raw bytes."""

    path: str
    """Relative to the harness folder: `skills/<folder>/<path in Skill.resources>`."""
    content: str
    encoding: Literal["utf-8", "base64"] = "utf-8"


class Harness(Part):
    """A whole harness. Tuples are in the order in which the model sees them."""

    format: Literal["hatstack.harness/1"] = FORMAT
    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
    description: str = ""
    language: Literal["en", "zh"] = "en"
    sections: tuple[str, ...] = ("skills", "tools", "rules", "room")
    """Order of the system prompt. `skills`, `tools`, `room` are built in; any other is made of prompts."""
    layout: Layout = Layout()
    prompts: tuple[Prompt, ...] = ()
    skills: tuple[Skill, ...] = ()
    tools: tuple[Tool, ...] = ()
    hooks: tuple[Hook, ...] = ()
    few_shots: tuple[FewShot, ...] = ()
    files: tuple[File, ...] = ()
    """Contents of the skills' resources, in order of path."""
    activation: Activation = Activation()
    limits: Limits = Limits()
    recovery: Recovery = Recovery()
    aliases: dict[str, str] = Field(default_factory=dict)
    """Skill folder name (Agent Skills forbids underscores) → canonical id, where they differ."""
    client_tools: Annotated[int, Field(ge=0, le=64)] = 0
    """Most tools of its own that a client may bring to a conversation; 0: none, and neither hashed nor written out."""

    def skill(self, name: str) -> Skill | None:
        """The skill that the model knows as `name`, or None."""
        return next((skill for skill in self.skills if skill.name == name), None)

    def tool(self, name: str) -> Tool | None:
        """The tool that the model knows as `name`, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)
