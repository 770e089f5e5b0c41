"""F2, T14, T8: harness evolution with a fixed policy.

F2 and T14 show the newest evolution's trajectory for the policy that decided it; T8 shows, per policy, errors before and
after each edit and the held-out reduction with its interval.
"""

from __future__ import annotations

from hat_components.evolve.result import Evolution, HeldOut, Stage, load_evolution
from hat_components.paper.catalogue import Made, Need, item, points, span
from hat_components.paper.sources import Sources
from hat_components.report import svg
from hat_components.report.view import Table

EVOLVE = Need(
    "no evolution of a harness",
    "hat evolve live-commerce --model FOLDER --candidate evolution-1 --candidate evolution-2",
)
POLICIES = Need("no evolution with two policies", "hat evolve live-commerce --policies naive=FOLDER,hsa=FOLDER")
_PUBLISHED_T14 = (
    ("Stage", "Accuracy", "Effectiveness"),
    (
        ("ReAct", "80.33", "84.58"),
        ("Harness base", "82.40", "87.16"),
        ("Evolution 1", "92.13", "84.16"),
        ("Evolution 2 (selected)", "92.55", "92.75"),
        ("Evolution 4", "91.51", "89.96"),
    ),
)
_PUBLISHED_T8 = (
    ("Policy", "Errors before", "Errors after", "Reduction, %"),
    (("naive SFT", "149", "122", "−18.1"), ("HAT", "238", "115", "−51.7")),
)


def _newest(sources: Sources, policies: int = 1) -> Evolution | None:
    found = (made for _, made in sources.load("evolution", load_evolution) if len(made.policies) >= policies)
    return next(found, None)


def _score(stage: Stage, policy: str, metric: str) -> str:
    if policy not in stage.measured:
        return "not tried"
    score = stage.measured[policy].scores[metric]
    return f"{points(score.mean)} {span(score.low, score.high)}"


@item("t14", "Harness evolution with a fixed policy", ("Stage", "Change", "Accuracy", "Effectiveness", "Diagnosis"), EVOLVE,
      published=_PUBLISHED_T14)  # fmt: skip
def trajectory(sources: Sources) -> Made:
    """One row per stage, the selected one marked."""
    found = _newest(sources)
    if found is None:
        return Made()
    policy = next(iter(found.policies))
    rows = tuple(
        (
            stage.name + (" (selected)" if stage.name == found.selected else ""),
            stage.note or "the harness as it was",
            _score(stage, policy, "accuracy"),
            _score(stage, policy, "effectiveness"),
            stage.diagnosis or ("not tried" if stage.outcome == "not_tried" else "where it begins"),
        )
        for stage in found.stages
    )
    table = Table(
        "Stages", ("Stage", "Change", "Accuracy", "Effectiveness", "Diagnosis"), rows,
        "percent, mean over items [95 % interval]",
    )  # fmt: skip
    return Made((table, *_effects(found, policy)), lead=_lead(found, policy), missing=_unchecked(found))


@item("f2", "Evolution of the harness: curve with the selected point", ("Stage", "Accuracy", "Effectiveness"), EVOLVE)
def curve(sources: Sources) -> Made:
    """Accuracy and Effectiveness by stage."""
    found = _newest(sources)
    if found is None:
        return Made()
    policy = next(iter(found.policies))
    tried = [(number, stage) for number, stage in enumerate(found.stages) if policy in stage.measured]
    lines = [
        svg.Curve(
            metric.capitalize(),
            tuple((float(number), 100 * stage.measured[policy].scores[metric].mean) for number, stage in tried),
        )
        for metric in ("accuracy", "effectiveness")
    ]
    at = next((number for number, stage in tried if stage.name == found.selected), 0)
    best = found.stages[at].measured[policy].scores[found.objective].mean
    lines.append(svg.Curve(f"selected: {found.selected}", ((float(at), 100 * best),)))
    plot = svg.curves("Scores by stage, percent", lines, x_label="stage", y_label="percent")
    rows = tuple(
        (
            f"{number} {stage.name}",
            *(points(stage.measured[policy].scores[m].mean) for m in ("accuracy", "effectiveness")),
        )
        for number, stage in tried
    )
    table = Table("Stages", ("Stage", "Accuracy", "Effectiveness"), rows, "percent")
    return Made((table,), (plot,), _lead(found, policy), _unchecked(found))


@item("t8", "Does an operator's edit work on this model?",
      ("Policy", "Stage", "Errors before", "Errors after", "Reduction, %", "95 % interval"), POLICIES,
      published=_PUBLISHED_T8)  # fmt: skip
def by_policy(sources: Sources) -> Made:
    """Errors before and after each edit per policy, then the held-out check."""
    found = _newest(sources, 2)
    if found is None:
        return Made()
    rows = []
    for policy in found.policies:
        base = found.stages[0].measured[policy]
        for stage in found.stages[1:]:
            if policy in stage.measured:
                after = stage.measured[policy].errors
                rows.append(
                    (policy, stage.name, str(base.errors), str(after), _fell(base.errors, after), _gap(stage, policy))
                )
    development = Table(
        "Development items", ("Policy", "Stage", "Errors before", "Errors after", "Reduction, %", "AVG against base"),
        tuple(rows), "turns that are wrong",
    )  # fmt: skip
    held = tuple(_held(name, one, found) for name, one in found.held_out.items())
    tables = [development]
    if held:
        held_head = ("Policy", "Stage", "Errors before", "Errors after", "Reduction, %", "95 % interval", "says")
        tables.insert(0, Table("Held-out items", held_head, held, "turns that are wrong; interval over items"))
    if found.contrast:
        rows_ = tuple((name, points(one.delta, sign=True), span(one.low, one.high, sign=True), one.text)
                      for name, one in found.contrast.items())  # fmt: skip
        first = next(iter(found.policies))
        head = ("Policy", f"Gain less that of {first}, points", "95 % interval", "says")
        tables.append(Table("Whom the edit helps more", head, rows_, "paired by item"))
    return Made(tuple(tables), lead=f"Selected on development items by {next(iter(found.policies))}: {found.selected}.",
                missing=_unchecked(found))  # fmt: skip


def _lead(found: Evolution, policy: str) -> str:
    base = found.stages[0].measured[policy]
    why = "edits in a row stopped gaining" if found.stopped == "patience" else "all edits were tried"
    return (
        f"Policy {policy}, {base.items} development items, {base.turns} turns; selected {found.selected} by "
        f"{found.objective}; ended because {why}. Base harness {found.base[7:19]}."
    )


def _unchecked(found: Evolution) -> tuple[Need, ...]:
    if found.held_out or found.selected == "base":
        return ()
    return (Need("no held-out check", "hat evolve … with held-out items (--test)"),)


def _effects(found: Evolution, policy: str) -> tuple[Table, ...]:
    """What each edit fixed and broke, by intent and by hook, and refusals."""
    by_intent: list[tuple[str, ...]] = []
    by_hook: list[tuple[str, ...]] = []
    refusals: list[tuple[str, ...]] = []
    for stage in found.stages:
        made = stage.measured.get(policy)
        if made is None:
            continue
        over, missed = made.over_refusal, made.missed_refusal
        refusals.append((stage.name, f"{over.count} of {over.n}", points(over.value), span(over.low, over.high),
                         f"{missed.count} of {missed.n}"))  # fmt: skip
        if made.effect is None:
            continue
        for rows, tallies in ((by_intent, made.effect.intents), (by_hook, made.effect.hooks)):
            rows += [
                (f"{stage.name} · {name or 'no hook fired'}", str(one.fixed), str(one.broken), str(one.n))
                for name, one in tallies.items()
                if one.fixed or one.broken
            ]
    head = ("Stage", "Fixed", "Broken", "Turns")
    return (
        Table("What each edit fixed and broke, by intent", head, tuple(by_intent), "against the stage before"),
        Table("The same by hook that fired", head, tuple(by_hook), "a hook that fired need not be the cause"),
        Table("Refusals", ("Stage", "Over-refused", "Rate, %", "95 % interval", "Missed refusals"), tuple(refusals)),
    )


def _fell(before: int, after: int) -> str:
    return points((after - before) / before, sign=True) if before else "—"


def _gap(stage: Stage, policy: str) -> str:
    total = stage.measured[policy].total
    if total is None:
        return "—"
    gap = total.objective
    return f"{points(gap.delta, sign=True)} {span(gap.low, gap.high, sign=True)}"


def _held(name: str, one: HeldOut, found: Evolution) -> tuple[str, ...]:
    reduction = "—" if one.reduction is None else points(-one.reduction, sign=True)
    interval = span(-one.reduction_high, -one.reduction_low, sign=True)
    said = one.effect.objective.kind.replace("_", " ")
    return (name, found.selected, str(one.errors_before), str(one.errors_after), reduction, interval, said)
