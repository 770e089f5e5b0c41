"""Hypothesis strategies and builders for harnesses, vocabularies, plans and trajectories."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import strategies as st

from hat_harness.augment import AnyOperator, Words
from hat_harness.augment.operators import (
    ActivationName,
    DistractorSkill,
    DistractorTool,
    HookMessage,
    HookPolicy,
    Language,
    Markup,
    ParameterName,
    ParameterOrder,
    ParameterType,
    Register,
    ResultEnvelope,
    RuleEdit,
    SectionOrder,
    SkillDescription,
    SkillName,
    SkillOrder,
    SkillText,
    ToolDescription,
    ToolName,
    ToolOrder,
)
from hat_harness.canonical import surface_arguments
from hat_harness.render import activation_quote, render_result, render_skill, render_system, skill_quote, tool_quote
from hat_harness.spec import Activation, FewShot, Harness, Hook, Layout, Prompt, Skill, Tool

NOUNS = ["item", "order", "faq", "chat", "price", "stock", "coupon", "stage", "room", "gift", "size", "colour"]
VERBS = ["get", "find", "show", "move", "read", "check", "list", "open"]
PROSE = [
    "be kind .",
    "answer in one line",
    "prices stay as they are .",
    "don't guess",
    "请直接回答 。",
    "naïve café ☕",
    "use a tool .",
]
GATE, OPENER = "thanks for watching", "dear"

TRAINED = Words(
    names={
        "": ("skill", "flow", "mode", "unit", "task", "amber", "birch", "cedar", "delta", "ember"),
        **{noun: (f"{noun}ish", f"{noun}like", "goods", "ware") for noun in NOUNS},
        "get_item": ("fetch", "read", "lookup"),
        "red": ("crimson", "scarlet"),
    },
    gates=("come back soon", "stay with us", "see you tonight", "checked by host"),
    openers=("friend", "hello", "hi there", "guest"),
    descriptions={noun: (f"about the {noun}", f"{noun} things") for noun in NOUNS},
    distractors=(("city_weather", "weather report for a city"), ("play_song", "play a song"), ("taxi", "book a taxi")),
)
HELD_OUT = Words(
    names={
        "": ("agent", "module", "routine", "acorn", "basil", "coral", "dahlia"),
        **{noun: (f"{noun}esque", "merch", "stuff") for noun in NOUNS},
    },
    gates=("verified just now", "have a lovely day", "keep it cosy"),
    openers=("darling", "buddy", "captain"),
    distractors=(("bus_times", "times of the night bus"), ("tea_recipe", "recipe for green tea")),
)
ROOM = {"list": ["red mug", "blue lamp"], "sale": "ten"}


def some(rng: Random, most: int) -> int:
    return rng.randint(0, most)


def unique(rng: Random, count: int, taken: set[str]) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        name = rng.choice(
            [rng.choice(NOUNS), f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}", f"{rng.choice(NOUNS)}-{some(rng, 99)}"]
        )
        if name not in taken:
            taken.add(name)
            found.append(name)
    return found


def property_schema(rng: Random, depth: int = 1) -> dict[str, Any]:
    kinds = ["string", "integer", "boolean", "enum", "number", "ranged", "array"] + (["object"] if depth else [])
    kind = rng.choice(kinds)
    note = {"description": rng.choice(["which one", "the `item` it is for", "商品", ""])} if rng.random() < 0.5 else {}
    if kind == "enum":
        return {"type": "string", "enum": rng.sample(["red", "blue", "green", "绿"], 3), **note}
    if kind == "ranged":
        return {"type": "integer", "minimum": 0, "maximum": 99, **note}
    if kind == "array":
        return {"type": "array", "items": {"type": "string"}, **note}
    if kind == "object":
        return {"type": "object", "properties": {"item": {"type": "string"}, "x": property_schema(rng, 0)}, **note}
    return {"type": kind, **note}


def tool_of(rng: Random, identifier: str, name: str) -> Tool:
    names = unique(rng, rng.choice([0, 1, 1, 2, 3]), set())
    schema: dict[str, Any] = {"type": "object", "properties": {key: property_schema(rng) for key in names}}
    if names and rng.random() < 0.7:
        schema["required"] = rng.sample(names, rng.randint(1, len(names)))
    if rng.random() < 0.5:
        schema["additionalProperties"] = False
    if len(names) > 1 and rng.random() < 0.3:
        schema["dependentRequired"] = {names[0]: [names[1]]}
    if names and rng.random() < 0.15:
        schema["$defs"] = {"shape": {"required": names[:1]}}
        schema["allOf"] = [{"$ref": "#/$defs/shape"}]
        schema["required"] = sorted({*schema.get("required", ()), names[0]})
    about = rng.choice(["reads one record", "see also `get_item`", f"give `{names[0]}`" if names else "no input"])
    return Tool(id=identifier, name=name, description=about, parameters=schema, read_only=rng.random() < 0.8)


def value_for(rng: Random, schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "integer":
        return rng.randint(0, 99)
    if kind == "number":
        return rng.choice([1, 2.5, -3])
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return [value_for(rng, schema["items"]) for _ in range(some(rng, 2))]
    if kind == "object":
        return {key: value_for(rng, inner) for key, inner in schema["properties"].items()}
    return rng.choice(["red mug", "7", "yes", "灯", "true", ""])


def arguments_for(rng: Random, tool: Tool) -> dict[str, Any]:
    """Valid canonical-surface arguments of a tool without adapters, in a drawn order."""
    schema = tool.parameters
    properties = list(schema.get("properties", {}))
    wanted = [key for key in properties if key in schema.get("required", ()) or rng.random() < 0.6]
    for first, then in schema.get("dependentRequired", {}).items():
        if first in wanted:
            wanted += [key for key in then if key not in wanted]
    rng.shuffle(wanted)
    return {key: value_for(rng, schema["properties"][key]) for key in wanted}


def reference(rng: Random, tools: list[Tool], skills: list[str], activation: Activation) -> str:
    tool = rng.choice(tools) if tools else None
    forms = (
        [f"`{activation.tool}`", f'`{activation.tool}({activation.parameter}="{rng.choice(skills)}")`']
        if skills
        else [""]
    )
    if skills:
        forms.append(f"then `{rng.choice(skills)}`")
    if tool is not None:
        forms.append(f"call `{tool.name}`")
        for name in list(tool.parameters["properties"])[:1]:
            forms += [f"`{tool.name}.{name}`", f"`{tool.name}({name}=1)`", f"give `{name}` to it", f"`{name}=red mug`"]
        call = {"name": tool.name, "arguments": arguments_for(rng, tool)}
        forms.append(f"```json\n{json.dumps(call, ensure_ascii=False)}\n```")
    return rng.choice(forms)


def text_of(rng: Random, tools: list[Tool], skills: list[str], activation: Activation) -> str:
    pieces = [rng.choice(PROSE) if rng.random() < 0.5 else reference(rng, tools, skills, activation) for _ in range(3)]
    return rng.choice([" ", "\n"]).join(pieces)


HOOKS = (
    Hook(
        id="gate",
        event="stop",
        when="!reply.endsWith(args.gate)",
        action="require",
        message='end with "{gate}"',
        arguments={"gate": GATE},
    ),
    Hook(
        id="opener",
        event="stop",
        when="!reply.startsWith(args.opener)",
        action="require",
        message="use `use_skill`",
        arguments={"opener": OPENER},
    ),
)


def make_harness(rng: Random, few_shots: bool = True) -> Harness:
    taken = {"use_skill"}
    tool_names = unique(rng, rng.randint(1, 4), taken)
    skill_names = unique(rng, rng.randint(1, 4), set() if rng.random() < 0.2 else taken)
    tools = [tool_of(rng, rng.choice([name, f"{name}_tool"]), name) for name in tool_names]
    activation = Activation(tool="use_skill", parameter=rng.choice(["skill", "name"]))
    opener = f'open with "{OPENER}" .'
    skills = [
        Skill(
            id=name,
            name=name,
            description=f"about {name} " + rng.choice(["", "see `use_skill`"]),
            body=rng.choice([opener + "\n", ""]) + text_of(rng, tools, skill_names, activation),
            tools=tuple(tool.id for tool in rng.sample(tools, some(rng, 1))),
        )
        for name in skill_names
    ]
    prompts = (
        Prompt(id="gate", section="rules", text=f"end every reply with = {GATE}"),
        Prompt(id="more", section="rules", order=1, text=text_of(rng, tools, skill_names, activation)),
    )
    layout = rng.choice(
        [
            Layout(),
            Layout(
                skill="{name} = {description} .",
                tool="- {name}({parameters}) : {description}",
                result="<r>{result}</r>",
            ),
        ]
    )
    harness = Harness(
        name="test",
        layout=layout,
        prompts=prompts,
        skills=tuple(skills),
        tools=tuple(tools),
        hooks=HOOKS,
        activation=activation,
        sections=tuple(rng.sample(["skills", "tools", "rules", "room"], 4)),
    )
    if few_shots and rng.random() < 0.3:
        shot = FewShot(id="shot", messages=tuple(make_trajectory(rng, harness, wrong=False)[1:]))
        harness = harness.model_copy(update={"few_shots": (shot,)})
    return harness


def make_trajectory(rng: Random, harness: Harness, text: bool = False, wrong: bool = True) -> list[dict[str, Any]]:
    """A session under `harness`: right and wrong calls, quoted catalogue lines, replies that keep and break the rules."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": render_system(harness, ROOM)},
        {"role": "user", "content": "how much is the `item` ? get_item"},
    ]
    for number in range(rng.randint(1, 3)):
        messages += exchange(rng, harness, f"call_{number}", text, wrong)
    start = rng.choice([f"{OPENER} , ", "", "dearest , "])
    end = rng.choice([f" . {GATE}", " ."])
    messages.append({"role": "assistant", "content": f"{start}the price is 40{end}", "reasoning_content": "price 40"})
    return messages


def exchange(rng: Random, harness: Harness, identifier: str, text: bool, wrong: bool) -> list[dict[str, Any]]:
    activation = harness.activation
    if harness.skills and rng.random() < 0.4:
        skill = rng.choice(harness.skills)
        name, arguments = activation.tool, {activation.parameter: skill.name}
        reasoning = "skill | " + rng.choice([skill_quote(harness, skill), activation_quote(harness)])
        answer = rng.choice([render_skill(harness, skill), f'skill "{skill.name}" is loaded already'])
    elif not wrong or rng.random() < 0.7:
        tool = rng.choice(harness.tools)
        flat = arguments_for(rng, tool) if not tool.adapters else {}
        name, arguments = tool.name, surface_arguments(tool, flat) if tool.adapters else flat
        reasoning = "price | " + tool_quote(harness, tool) + f" so `{tool.name}`"
        answer = render_result(harness, rng.choice(["price 40", '{"price": 40}']))
        if wrong and rng.random() < 0.2:
            arguments = {**arguments, rng.choice(["qqq", "item", "ware"]): rng.choice([1, "7", [True]])}
            answer = f'error : unknown parameter "qqq" , parameters are "{", ".join(arguments)}"'
    else:
        name, arguments, reasoning = "no_such_tool", {"x": 1}, "?"
        answer = f'error : no tool "no_such_tool" , tools are "{harness.tools[0].name}"'
    written: Any = json.dumps(arguments, ensure_ascii=False) if text else arguments
    call = {"id": identifier, "type": "function", "function": {"name": name, "arguments": written}}
    return [
        {"role": "assistant", "content": "", "reasoning_content": reasoning, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identifier, "name": name, "content": answer},
    ]


NAME_MODES = ("trained", "held_out", "random", "random_held_out", "combination", "swap", "misleading", "char_noise")
STRUCTURAL = ("skill_name", "tool_name", "parameter_name", "activation", "parameter_type", "skill_order", "tool_order")
STRUCTURAL += ("parameter_order", "section_order", "markup", "result_envelope")
CONTENT = ("skill_description", "tool_description", "skill_text", "register")
PERTURBATION = ("distractor_skill", "distractor_tool", "hook_policy", "hook_message", "rule_edit")


def make_operator(rng: Random, family: str) -> AnyOperator:
    mode: Any = {rng.choice(NAME_MODES): 1.0}
    phrase: Any = {rng.choice(["trained", "held_out", "random", "random_held_out"]): 1.0}
    layout: Any = {rng.choice(["trained", "grammar", "held_out", "unseen"]): 1.0}
    made: dict[str, AnyOperator] = {
        "skill_name": SkillName(modes=mode, share=rng.choice([1.0, 0.5])),
        "tool_name": ToolName(modes=mode, share=rng.choice([1.0, 0.5])),
        "parameter_name": ParameterName(modes=mode, share=rng.choice([1.0, 0.5])),
        "activation": ActivationName(modes=mode),
        "parameter_type": ParameterType(share=0.8),
        "skill_order": SkillOrder(),
        "tool_order": ToolOrder(),
        "parameter_order": ParameterOrder(),
        "section_order": SectionOrder(),
        "markup": Markup(modes=layout, name_first=0.5),
        "result_envelope": ResultEnvelope(modes={rng.choice(["trained", "held_out"]): 1.0}),
        "skill_description": SkillDescription(original=0.2),
        "tool_description": ToolDescription(original=0.2),
        "skill_text": SkillText(modes=phrase),
        "register": Register(),
        "language": Language(),
        "distractor_skill": DistractorSkill(counts=(0, 1, 2)),
        "distractor_tool": DistractorTool(counts=(0, 1, 2)),
        "hook_policy": HookPolicy(modes=phrase),
        "hook_message": HookMessage(),
        "rule_edit": RuleEdit(edits=(rng.choice(["replace", "remove"]),)),
    }
    return made[family]


@st.composite
def operators(draw: st.DrawFn, families: tuple[str, ...] = STRUCTURAL + CONTENT + PERTURBATION) -> list[AnyOperator]:
    chosen = draw(st.lists(st.sampled_from(families), min_size=1, max_size=len(families), unique=True))
    rng = draw(st.randoms(use_true_random=False))
    return [make_operator(rng, family) for family in chosen]


@st.composite
def harnesses(draw: st.DrawFn, few_shots: bool = True) -> Harness:
    return make_harness(draw(st.randoms(use_true_random=False)), few_shots)


@st.composite
def sessions(draw: st.DrawFn, text: bool = False) -> tuple[Harness, list[dict[str, Any]]]:
    rng = draw(st.randoms(use_true_random=False))
    harness = make_harness(rng)
    return harness, make_trajectory(rng, harness, text)


seeds = st.integers(min_value=0, max_value=2**31)
