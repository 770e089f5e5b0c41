"""`hat harness …`: what a harness folder says, whether it is sound, what an edit of it does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from hatstack import paths
from hatstack.cli.failure import CheckError, ConflictError, InputError, UsageError
from hatstack.cli.harness_look import read_object
from hatstack.cli.output import DryRun, Output, emit, say, table

if TYPE_CHECKING:
    from hat_harness.augment import AugmentPlan
    from hat_harness.spec import Harness

app = typer.Typer(no_args_is_help=True, help="Harnesses: prompts, skills, tools and hooks around a model.")
Folder = Annotated[str, typer.Argument(metavar="HARNESS", help="A harness folder, or the name of a shipped one.")]


def _load(name: str) -> Harness:
    from hat_harness.load import load_harness

    return load_harness(paths.harness(name))


@app.command("init")
def init(
    target: Annotated[Path, typer.Argument(help="Folder to make; it must not exist.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="Harness to start from.", show_default="live-commerce; empty with --skills or --mcp"
        ),
    ] = None,
    skills: Annotated[
        list[Path] | None,
        typer.Option("--skills", help="Folder of an Agent Skill, or of many, to take in; may be repeated."),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option("--mcp", help="Address of an MCP server whose tools to take in; may be repeated."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Its name.", show_default="the folder's name")] = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Make a new harness folder from one that stands, from Agent Skills or from the tools of MCP servers."""
    from pydantic import ValidationError

    from hat_harness.load import save_harness
    from hatstack.cli import bring

    if target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another folder")
    brought = bring.Brought(bring.blank() if source is None and (skills or mcp) else _load(source or "live-commerce"))
    bring.add_tools(brought, mcp or [])
    bring.add_folders(brought, skills or [])
    start = brought.harness
    chosen = name or target.resolve().name.lower().replace("_", "-")
    try:
        made = type(start).model_validate({**start.model_dump(), "name": chosen})
    except ValidationError:
        cure = "--name with lower case words joined by -"
        raise UsageError(f"{chosen!r} is no harness name", place=str(target), cure=cure) from None
    if not dry_run:

        def save(harness: Harness, part: Path) -> None:
            save_harness(harness, part)
            bring.write_bindings(brought, part)

        _save(made, target, save)
    for note in brought.notes:
        say(f"note  {note}")
    emit(
        {
            "folder": str(target),
            "name": made.name,
            "from": start.name,
            "skills": len(made.skills),
            "tools": len(made.tools),
            "notes": brought.notes,
            "changed": not dry_run,
        },
        f"{'would make' if dry_run else 'made'} {target} from {start.name}\nnext  hat harness validate {target}",
    )


def _save(harness: Harness, target: Path, save: Any) -> None:
    """Write a harness folder so that its final name only ever holds all of it."""
    part = target.with_name(f".{target.name}.part{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        save(harness, part)
        part.rename(target)
    except OSError as error:
        cure = "choose another folder"
        raise InputError(f"cannot be written: {error.strerror}", place=str(target), cure=cure) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


@app.command("validate")
def validate(folder: Folder, output: Output = None) -> None:
    """Check a harness folder; every problem is named with file and line."""
    from hat_harness.digest import harness_digest

    harness = _load(folder)
    digest = harness_digest(harness)
    counts = {name: len(getattr(harness, name)) for name in ("prompts", "skills", "tools", "hooks")}
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    emit(
        {"valid": True, "name": harness.name, "digest": digest, **counts},
        lambda: f"{harness.name} is valid: {told}\n{digest}",
    )


@app.command("show")
def show(folder: Folder, output: Output = None) -> None:
    """Show a harness: its digest and every part with the digest of its content."""
    from hat_harness.digest import harness_digest, part_digests, short

    harness = _load(folder)
    parts = part_digests(harness)
    emit(
        {**harness.model_dump(mode="json"), "digest": harness_digest(harness), "parts": parts},
        lambda: "\n".join(
            [
                f"{harness.name}  {short(harness_digest(harness))}  {harness.language}  {harness.description}".rstrip(),
                "",
                table(("part", "digest"), [(path, short(digest)) for path, digest in parts.items()]),
            ]
        ),
    )


@app.command("diff")
def diff(
    old: Folder,
    new: Folder,
    text: Annotated[bool, typer.Option("--text", help="Show edits of texts word by word.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the difference as a page of its own into this file.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="End with exit code 1 when there is a difference.")] = False,
    output: Output = None,
) -> None:
    """Say what an edit means: renamed skills, retyped parameters, moved sections, changed texts."""
    from hat_harness.diff import diff as semantic

    before, after = _load(old), _load(new)
    changes = semantic(before, after)
    if html is not None:
        from hat_harness.diff_page import diff_page

        _write(html, diff_page(before, after, changes))
    emit(
        {
            "equal": not changes,
            "changes": [{"kind": c.kind, "path": c.path, "before": c.before, "after": c.after} for c in changes],
        },
        lambda: "\n".join(_told(change, text) for change in changes) or "no difference",
    )
    if check and changes:
        raise CheckError(f"{len(changes)} differences", place=new)


def _write(path: Path, text: str) -> None:
    from hat_components.data import write_text

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", place=str(path), cure="give another file") from None
    say(f"wrote {path}")


def _told(change: Any, text: bool) -> str:
    both = isinstance(change.before, str) and isinstance(change.after, str)
    if not (text and both and change.kind == "changed"):
        return str(change)
    from hat_harness.diff import words

    marks = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}
    body = "".join(marks[kind].format(piece) for kind, piece in words(change.before, change.after))
    return f"{change.path} changed:\n  " + body.replace("\n", "\n  ")


@app.command("render")
def render(
    folder: Folder,
    room: Annotated[Path | None, typer.Option("--room", help="JSON file with the room view.")] = None,
    skill: Annotated[str | None, typer.Option("--skill", help="Show what activating this skill gives.")] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Show what each part costs, in tokens.")] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer",
            help="tokenizer.json, or a model's folder, to count with.",
            show_default="an estimate: a quarter of the UTF-8 bytes",
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Show what the model reads: system prompt, worked examples, function definitions; and what each part costs."""
    from hat_harness.export import openai_message
    from hat_harness.render import few_shot_messages, parts_cost, render_skill, render_system, tool_definitions
    from hatstack.cli.harness_look import counter

    harness = _load(folder)
    view = read_object(room) if room else {}
    count = counter(tokenizer)
    if skill is not None:
        found = next((one for one in harness.skills if skill in (one.id, one.name)), None)
        if found is None:
            known = ", ".join(one.id for one in harness.skills) or "none"
            raise InputError(f"no skill {skill!r}", place=folder, cure=f"one of: {known}")
        text = render_skill(harness, found)
        emit({"skill": found.id, "text": text, "tokens": count(text)}, text)
        return
    text = render_system(harness, view)
    costs = parts_cost(harness, view, count)
    shots = [openai_message(message) for message in few_shot_messages(harness)]
    tools = list(tool_definitions(harness))
    beside = [json.dumps(item, ensure_ascii=False) for item in (*shots, *tools)]
    emit(
        {
            "system": text,
            "few_shots": shots,
            "tools": tools,
            "counted": "exact" if tokenizer else "estimate",
            "cost": [{"part": part, "tokens": size} for part, size in costs],
        },
        lambda: (
            table(("part", "tokens" if tokenizer else "tokens, about"), [*costs, ("all", sum(n for _, n in costs))])
            if cost
            else "\n".join([text, *beside])
        ),
    )


@app.command("explain")
def explain(
    folder: Folder,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Recorded session; what its hooks read comes from a replay.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="Which session of a file with many.")] = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="JSON file with the fields that hooks read (reply, skills, …).")
    ] = None,
    event: Annotated[str | None, typer.Option("--event", help="Only hooks of this event.")] = None,
    reply: Annotated[str | None, typer.Option("--reply", help="Shortcut for the field `reply`.")] = None,
    output: Output = None,
) -> None:
    """Say which hooks fired in a recorded session, or would fire over a context, and on which values they decide."""
    from hat_harness.hooks import EVENTS
    from hat_harness.hooks import explain as explain_hook
    from hatstack.cli.harness_look import explained, read_trace

    if event is not None and event not in EVENTS:
        raise UsageError(f"no event {event!r}", place="--event", cure=f"one of: {', '.join(EVENTS)}")
    if trace is not None and (context is not None or reply is not None):
        raise UsageError("--trace and another context", place="hat harness explain", cure="give one of them")
    if session is not None and trace is None:
        raise UsageError("--session without --trace", place="hat harness explain", cure="give the file of traces")
    harness = _load(folder)
    known = {hook.id: hook for hook in harness.hooks}
    if trace is not None:
        recorded = explained(harness, read_trace(trace, session), str(trace))
        found = [(known[one.explanation.hook], one.explanation, one.turn) for one in recorded]
    else:
        fields = {**(read_object(context) if context else {}), **({"reply": reply} if reply is not None else {})}
        found = [(hook, explain_hook(hook, fields), 0) for hook in harness.hooks]
    chosen = [one for one in found if event in (None, one[0].event)]
    emit(
        [
            {
                "hook": hook.id,
                "event": hook.event,
                "action": hook.action,
                "when": hook.when,
                "fires": told.fires,
                "error": told.error,
                "fields": dict(told.fields),
                **({"turn": turn} if trace else {}),
            }
            for hook, told, turn in chosen
        ],
        lambda: "\n".join(_verdict(hook, told, turn) for hook, told, turn in chosen) or "no hooks",
    )


def _verdict(hook: Any, told: Any, turn: int) -> str:
    where = f"turn {turn}  " if turn else ""
    lines = [
        f"{where}{hook.id} ({hook.event}): {'fires -> ' + hook.action if told.fires else 'does not fire'}",
        f"  when {hook.when}",
    ]
    lines += [f"  {name} = {json.dumps(value, ensure_ascii=False, default=str)}" for name, value in told.fields.items()]
    if told.error:
        lines.append(f"  error, which counts as firing: {told.error}")
    return "\n".join(lines)


@app.command("augment")
def augment(
    folder: Folder,
    target: Annotated[
        Path | None, typer.Option("--to", help="Folder for the rewritten harness; it must not exist.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the draw; the same seed gives the same bytes.")] = 1,
    suite: Annotated[
        str | None, typer.Option("--suite", help="Draw as this held-out suite does, instead of as training does.")
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="Only this family of rewrites, and surely; may be repeated.")
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option("--pair", help="Harness that says the same in another language, for --family language."),
    ] = None,
    scenario: Annotated[str, typer.Option("--scenario", help="Scenario whose words are drawn from.")] = "live_commerce",
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Rewrite a harness as training does: new names, orders, texts, distractors, with everything that refers to them."""
    from hat_components.scenarios import load as load_scenario
    from hat_harness.augment import apply
    from hat_harness.diff import diff as semantic
    from hat_harness.load import save_harness

    if target is not None and target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another folder")
    words = load_scenario(scenario)
    base = _load(folder)
    other = _load(pair) if pair is not None else None
    plan, held_out = _plan(suite, family), words.vocabulary(held_out=True)
    state = apply(base, plan, seed, words.vocabulary(), held_out=held_out, pair=other)
    changes = semantic(base, state.harness)
    if target is not None and not dry_run:
        _save(state.harness, target, save_harness)
    emit(
        {
            "seed": seed,
            "families": list(state.families),
            "changes": [str(change) for change in changes],
            "folder": str(target) if target else None,
            "changed": target is not None and not dry_run,
            "state": state.model_dump(mode="json"),
        },
        lambda: "\n".join([f"families: {', '.join(state.families) or 'none'}", *(f"  {change}" for change in changes)]),
    )


def _plan(suite: str | None, families: list[str] | None) -> AugmentPlan:
    from pydantic import TypeAdapter

    from hat_harness.augment import HOLDOUTS, AnyOperator, suite_plan, trained_plan
    from hat_harness.augment.operators import Family

    if suite is not None and suite not in HOLDOUTS:
        raise UsageError(f"no suite {suite!r}", place="--suite", cure=f"one of: {', '.join(sorted(HOLDOUTS))}")
    plan = trained_plan() if suite is None else suite_plan(suite)
    if not families:
        return plan
    unknown = sorted(set(families) - set(get_args(Family)))
    if unknown:
        cure = f"one of: {', '.join(sorted(get_args(Family)))}"
        raise UsageError(f"no family {unknown[0]!r}", place="--family", cure=cure)
    chosen = tuple(operator for operator in plan.operators if operator.type in families)
    # Families that training leaves out are drawn as they are by default.
    more = (TypeAdapter[Any](AnyOperator).validate_python({"type": name}) for name in set(families) - plan.families())
    chosen += tuple(sorted(more, key=lambda operator: operator.type))
    return plan.model_copy(update={"operators": chosen, "p": 1.0, "original": 0.0})
