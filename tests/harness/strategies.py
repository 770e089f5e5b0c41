"""Arbitrary valid harnesses."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hat_harness.spec import (
    Activation,
    FewShot,
    File,
    Harness,
    Hook,
    Layout,
    Limits,
    Prompt,
    Recovery,
    Retry,
    Skill,
    Tool,
)

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,12}", fullmatch=True)
IDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
LETTERS = st.characters(
    exclude_categories=("Cs",), exclude_characters=[chr(c) for c in (*range(9), *range(11, 32), 127)]
)
TEXTS = st.one_of(
    st.text(LETTERS, max_size=40),
    st.sampled_from(
        [
            "",
            "\n",
            "\n\nx\n",
            "---",
            "a\n---\nb\n",
            "yes",
            "1e5",
            "0x1F",
            "null",
            "- x",
            "k: v",
            "#c",
            " x ",
            "é\u2028",
            "a\x85b",
            "x\ufeff",
            "<<",
            "2001-01-01",
        ]
    ),
).map(lambda text: text.replace("`", "'"))
PATHS = st.sampled_from(["reference.md", "scripts/run.py", "assets/a b.bin", "assets/表.txt"])


def scalar() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of one argument."""
    return st.one_of(
        st.just({"type": "string"}),
        st.just({"type": "integer", "minimum": -5, "maximum": 99}),
        st.just({"type": "number", "minimum": 0.5}),
        st.just({"type": "boolean", "description": "no matter"}),
        st.just({"type": "string", "enum": ["red", "blue"]}),
        st.just({"type": "array", "items": {"type": "string"}}),
        st.just({"type": "object", "properties": {"inner": {"type": "string"}}}),
    )


@st.composite
def tools(draw: st.DrawFn, identifier: str, name: str) -> Tool:
    properties = draw(st.dictionaries(NAMES, scalar(), max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(
        id=identifier,
        name=name,
        title=draw(st.sampled_from(["", "A tool"])),
        description=draw(TEXTS),
        parameters=schema,
        output=draw(st.sampled_from([None, {"type": "object"}])),
        read_only=draw(st.booleans()),
        idempotent=draw(st.booleans()),
        timeout_s=draw(st.floats(0.01, 1e6)),
    )


@st.composite
def skills(draw: st.DrawFn, identifier: str, name: str, known: list[str]) -> Skill:
    return Skill(
        id=identifier,
        name=name,
        description=draw(TEXTS.filter(bool)),
        kind=draw(st.sampled_from(["reply", "strategy"])),
        body=draw(TEXTS),
        tools=tuple(draw(st.lists(st.sampled_from(known), unique=True))) if known else (),
        license=draw(st.sampled_from(["", "MIT"])),
        compatibility=draw(st.sampled_from(["", "any model"])),
        metadata=draw(st.dictionaries(NAMES.filter(lambda key: key not in ("kind", "name", "id")), TEXTS, max_size=2)),
        resources=tuple(sorted(draw(st.lists(PATHS, unique=True, max_size=2)))),
    )


HOOKS = st.builds(
    Hook,
    id=st.just("h"),
    event=st.just("stop"),
    when=st.sampled_from(["true", "reply == 'x'", "!reply.endsWith(args.gate)"]),
    action=st.sampled_from(["require", "replace"]),
    message=st.sampled_from(["again", "say {gate}"]),
    max_rounds=st.integers(0, 8),
    order=st.integers(-3, 3),
    arguments=TEXTS.map(lambda text: {"gate": text}),
)
SECONDS = st.floats(0.001, 1000)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    limits = Limits(segment_tokens=draw(st.integers(600, 9000)), deadline_s=draw(SECONDS))
    retry = Retry(backoff_s=draw(SECONDS), backoff_max_s=draw(SECONDS))
    layout = Layout(
        skill=draw(st.sampled_from(["*{description}:{name}", "{{{name}}}\n{description}"])),
        join=draw(st.sampled_from(["\n", " , ", ""])),
        tools=draw(st.sampled_from(["inline", "schema", "both"])),
    )
    return {
        "limits": limits,
        "recovery": Recovery(retry=retry, safe_reply=draw(TEXTS.filter(lambda text: bool(text.strip())))),
        "layout": layout,
        "activation": Activation(description=draw(TEXTS)),
        "description": draw(TEXTS),
        "language": draw(st.sampled_from(["en", "zh"])),
    }


@st.composite
def harnesses(draw: st.DrawFn) -> Harness:
    """A harness without findings."""
    ids = draw(st.lists(IDS, min_size=2, max_size=8, unique_by=lambda text: text.casefold()))
    names = draw(st.lists(NAMES.filter(lambda n: n != "use_skill"), min_size=len(ids), max_size=len(ids), unique=True))
    cut = draw(st.integers(0, len(ids)))
    tool_list = tuple(draw(tools(i, n)) for i, n in zip(ids[:cut], names[:cut], strict=True))
    known = [tool.id for tool in tool_list]
    skill_list = tuple(draw(skills(i, n, known)) for i, n in zip(ids[cut:], names[cut:], strict=True))
    parts = draw(st.lists(NAMES, max_size=3, unique_by=lambda text: text.casefold()))
    prompts = tuple(
        Prompt(id=p, section=draw(st.sampled_from(["rules", "room", "extra"])), text=draw(TEXTS), title=draw(TEXTS),
               order=draw(st.integers(-2, 2)), protected=draw(st.booleans()), language=draw(st.sampled_from(["en", "zh"])))
        for p in parts
    )  # fmt: skip
    hooks = tuple(draw(HOOKS).model_copy(update={"id": p}) for p in parts)
    sections = ["skills", "tools", "rules", "room", *(["extra"] if any(p.section == "extra" for p in prompts) else [])]
    aliases = {}
    if skill_list and draw(st.booleans()):
        aliases = {"alias-of-it": skill_list[0].id}
    harness = Harness(
        name="drawn",
        sections=tuple(draw(st.permutations(sections))),
        prompts=prompts,
        skills=skill_list,
        tools=tool_list,
        hooks=hooks,
        few_shots=tuple(FewShot(id=p, messages=({"role": "user", "content": draw(TEXTS)},)) for p in parts[:1]),
        aliases=aliases,
        **draw(settings()),
    )
    return with_files(harness)


def with_files(harness: Harness) -> Harness:
    """The harness with a content for every file that its skills list."""
    from hat_harness.names import skill_folders

    folders = skill_folders(harness)
    paths = sorted(f"skills/{folders[s.id]}/{path}" for s in harness.skills for path in s.resources)
    files = tuple(
        File(path=path, content="AAECAw==" if path.endswith(".bin") else f"text\r\nof {path}\n",
             encoding="base64" if path.endswith(".bin") else "utf-8")
        for path in paths
    )  # fmt: skip
    return harness.model_copy(update={"files": files})
