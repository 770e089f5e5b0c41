"""The operators: what can be rewritten, one small frozen config each, a union discriminated by `type`.

`law` says what holds of a family (DESIGN.md, Harness-state augmentation): `structural` rewrites keep meaning and
their inverse follows from operator and seed; `content` rewrites keep the task's meaning and record their inverse;
`perturbation` changes the surroundings or the rules and the expert still reaches the gold outcome.
Not here: carrying them out (naming, structure, content, perturb, faults) and choosing among them (plan).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hat_harness.augment.words import NameMode, PhraseMode

Law = Literal["structural", "content", "perturbation"]
Side = Literal["trained", "held_out"]
LayoutMode = Literal["trained", "grammar", "held_out", "unseen"]
FaultKind = Literal["timeout", "rate_limit", "server", "malformed", "schema_drift"]
Retyping = Literal["integer_string", "boolean_enum", "enum_rename", "array", "group"]
Weight = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Operator(BaseModel):
    """Base of all operators."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    law: ClassVar[Law]
    stage: ClassVar[int]
    """Operators run in order of stage: texts, phrases, names, types, distractors, orders, markup, faults."""

    p: Share | None = None
    """Probability that the family is on in one draw; None: the plan's."""


class _Naming(Operator):
    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 30

    modes: dict[NameMode, Weight] = {"trained": 1.0}
    """Where names come from; one mode is drawn per rewrite."""
    share: Share = 1.0
    """Probability that a single thing is renamed."""


class SkillName(_Naming):
    """Skill names, as the catalogue and the activation call write them."""

    type: Literal["skill_name"] = "skill_name"


class ToolName(_Naming):
    """Tool names."""

    type: Literal["tool_name"] = "tool_name"


class ParameterName(_Naming):
    """Names of the tools' parameters, and of the properties of objects inside them at any depth."""

    type: Literal["parameter_name"] = "parameter_name"


class ActivationName(_Naming):
    """Name and parameter of the tool that loads skills."""

    type: Literal["activation"] = "activation"


class ParameterType(Operator):
    """Types of parameters, each change undone by a tool adapter."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 40
    type: Literal["parameter_type"] = "parameter_type"
    kinds: tuple[Retyping, ...] = ("integer_string", "boolean_enum", "enum_rename", "array", "group")
    share: Share = 0.5
    """Probability that a parameter that can be retyped is."""


class SkillOrder(Operator):
    """Order of the skills in the catalogue."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 60
    type: Literal["skill_order"] = "skill_order"


class ToolOrder(Operator):
    """Order of the tools."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 60
    type: Literal["tool_order"] = "tool_order"


class ParameterOrder(Operator):
    """Order of the parameters within each tool."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 60
    type: Literal["parameter_order"] = "parameter_order"


class SectionOrder(Operator):
    """Order of the sections of the system prompt."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 60
    type: Literal["section_order"] = "section_order"
    outer: tuple[str, ...] = ("room",)
    """Sections that stay outside: each goes to the start or to the end, never between the others."""


class Markup(Operator):
    """How sections and catalogue lines are written."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 70
    type: Literal["markup"] = "markup"
    modes: dict[LayoutMode, Weight] = {"trained": 1.0}
    name_first: Share = 0.0
    """Probability that lines of the grammar put the name before the description."""


class ResultEnvelope(Operator):
    """The text around a tool result."""

    law: ClassVar[Law] = "structural"
    stage: ClassVar[int] = 70
    type: Literal["result_envelope"] = "result_envelope"
    modes: dict[Side, Weight] = {"trained": 1.0}


class _Paraphrase(Operator):
    law: ClassVar[Law] = "content"
    stage: ClassVar[int] = 10

    modes: dict[Side, Weight] = {"trained": 1.0}
    original: Share = 0.33
    """Probability that a description is left as it is."""


class SkillDescription(_Paraphrase):
    """Skill descriptions, from the vocabulary's paraphrases."""

    type: Literal["skill_description"] = "skill_description"


class ToolDescription(_Paraphrase):
    """Tool descriptions, from the vocabulary's paraphrases."""

    type: Literal["tool_description"] = "tool_description"


class _Phrases(Operator):
    stage: ClassVar[int] = 20

    modes: dict[PhraseMode, Weight] = {"trained": 0.5, "random": 0.5}
    """Random phrases half of the time are what makes a model read the rule instead of recalling it."""
    statements: tuple[str, ...] = ()
    """Ways to state the rule, with `{phrase}`; a sentence that states nothing else is replaced by one of them in
    the harness's language."""


class SkillText(_Phrases):
    """The opening phrase and the texts that ask for it, and paraphrases of skill bodies (`<id>.body`)."""

    law: ClassVar[Law] = "content"
    type: Literal["skill_text"] = "skill_text"
    arguments: tuple[str, ...] = ("opener",)
    """Hook arguments whose value is an opening phrase."""
    statements: tuple[str, ...] = (
        'open with "{phrase}" .',
        'begin the reply with "{phrase}" .',
        'say "{phrase}" at the start .',
        '用 "{phrase}" 开头',
        '回复先说 "{phrase}"',
    )


class Register(Operator):
    """Tone of prompts and skill bodies: formal, casual or polite wording with names and quotations untouched."""

    law: ClassVar[Law] = "content"
    stage: ClassVar[int] = 12
    type: Literal["register"] = "register"
    styles: tuple[Literal["formal", "casual", "polite"], ...] = ("formal", "casual", "polite")


class Language(Operator):
    """Texts from a paired harness that says the same in another language, part by part, matched by canonical id."""

    law: ClassVar[Law] = "content"
    stage: ClassVar[int] = 0
    type: Literal["language"] = "language"


class DistractorSkill(Operator):
    """Skills that fit no intent, added to the catalogue."""

    law: ClassVar[Law] = "perturbation"
    stage: ClassVar[int] = 50
    type: Literal["distractor_skill"] = "distractor_skill"
    counts: tuple[int, ...] = (0, 0, 1, 2)
    modes: dict[NameMode, Weight] = {"trained": 1.0}


class DistractorTool(Operator):
    """Tools that fit no intent."""

    law: ClassVar[Law] = "perturbation"
    stage: ClassVar[int] = 50
    type: Literal["distractor_tool"] = "distractor_tool"
    counts: tuple[int, ...] = (0, 0, 1)
    modes: dict[NameMode, Weight] = {"trained": 1.0}


class HookPolicy(_Phrases):
    """The gate phrase that hooks demand, and every text that states it."""

    law: ClassVar[Law] = "perturbation"
    type: Literal["hook_policy"] = "hook_policy"
    arguments: tuple[str, ...] = ("gate",)
    """Hook arguments whose value is a closing phrase."""
    statements: tuple[str, ...] = (
        "end every reply with = {phrase}",
        "stop gate : a reply must finish with = {phrase}",
        "replies are rejected unless they close with = {phrase}",
        "每条回复的结尾 = {phrase}",
        "回复最后一句 = {phrase}",
    )


class HookMessage(Operator):
    """The wording of what hooks tell the model; placeholders and names stay."""

    law: ClassVar[Law] = "perturbation"
    stage: ClassVar[int] = 14
    type: Literal["hook_message"] = "hook_message"
    frames: tuple[str, ...] = (
        "{message}",
        "note : {message}",
        "rejected : {message}",
        "{message} , try again",
        "注意：{message}",
        "未通过：{message}",
    )
    """Those in the harness's language are used."""


class RuleEdit(Operator):
    """A rule that changes so that the new behaviour is the right one (suite T2e); the record says old and new."""

    law: ClassVar[Law] = "perturbation"
    stage: ClassVar[int] = 22
    type: Literal["rule_edit"] = "rule_edit"
    edits: tuple[Literal["replace", "remove"], ...] = ("replace",)
    arguments: tuple[str, ...] = ("gate", "opener")
    """Hook arguments that may be edited; one is drawn."""
    modes: dict[PhraseMode, Weight] = {"held_out": 1.0}


class TransitionFault(Operator):
    """Faults of the tools: carried out by `FaultyBackend`, so that the harness itself stays as it is."""

    law: ClassVar[Law] = "perturbation"
    stage: ClassVar[int] = 80
    type: Literal["transition_fault"] = "transition_fault"
    rates: dict[FaultKind, Share] = {"timeout": 0.04, "rate_limit": 0.04, "server": 0.04, "malformed": 0.04}
    """Probability of each kind per call; together at most 1."""
    most_in_a_row: Annotated[int, Field(ge=0, le=8)] = 1
    """Calls that may fail one after the other within a session, so that retries can reach the gold outcome."""

    @model_validator(mode="after")
    def _bounded(self) -> TransitionFault:
        if sum(self.rates.values()) > 1 + 1e-9:
            raise ValueError("the fault rates add up to more than 1")
        return self


AnyOperator = Annotated[
    SkillName
    | ToolName
    | ParameterName
    | ParameterType
    | ActivationName
    | SkillOrder
    | ToolOrder
    | ParameterOrder
    | SectionOrder
    | Markup
    | ResultEnvelope
    | SkillDescription
    | ToolDescription
    | SkillText
    | Register
    | Language
    | DistractorSkill
    | DistractorTool
    | HookPolicy
    | HookMessage
    | RuleEdit
    | TransitionFault,
    Field(discriminator="type"),
]

Family = Literal[
    "skill_name",
    "tool_name",
    "parameter_name",
    "parameter_type",
    "activation",
    "skill_order",
    "tool_order",
    "parameter_order",
    "section_order",
    "markup",
    "result_envelope",
    "skill_description",
    "tool_description",
    "skill_text",
    "register",
    "language",
    "distractor_skill",
    "distractor_tool",
    "hook_policy",
    "hook_message",
    "rule_edit",
    "transition_fault",
]
