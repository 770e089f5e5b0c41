"""T1, T2, T12, T13, T19: what the data are drawn from, which sets there are, what the harness and the engine consist of."""

from __future__ import annotations

from collections.abc import Mapping

from hat_components.data import Dataset, load_manifest
from hat_components.paper.catalogue import Made, Need, item, points
from hat_components.paper.sources import Sources
from hat_components.report.view import Table
from hat_components.scenarios import load
from hat_components.step import InputError
from hat_harness.digest import part_digest
from hat_harness.errors import LoadError
from hat_harness.load import load_harness
from hat_harness.spec import Harness

SIMULATION = Need("no simulated items", "hat run --profile smoke")
HARNESS = Need("no harness is named", "hat report paper --item t12 --harness live-commerce")
PROFILE = Need("no serving profile is named", "hat report paper --item t19 --serving-profile FILE")
_PUBLISHED_MIX = (
    ("product Q&A", "46"), ("casual chat and engagement", "19"), ("clarification follow-up", "16"), ("after-sales", "7"),
    ("discount and promotion", "4"), ("presentation order", "2"), ("FAQ-based", "2"), ("silent refusal", "< 1"),
)  # fmt: skip


def _datasets(sources: Sources) -> list[tuple[str, Dataset]]:
    return [(source.run, found) for source, found in sources.load("dataset", lambda path: load_manifest(path.parent))]


@item("t1", "Intent mix of the traffic", ("Intent", "Configured, %", "Drawn, %", "Turns"), SIMULATION,
      published=(("Intent", "Share, %"), _PUBLISHED_MIX))  # fmt: skip
def intents(sources: Sources) -> Made:
    """Configured and drawn shares of the newest test set; of the newest other set where there is none."""
    drawn = [(run, one) for run, one in _datasets(sources) if one.kind == "items" and one.facts.get("intents")]
    if not drawn:
        return Made()
    run, chosen = next((pair for pair in drawn if "test" in pair[1].splits), drawn[0])
    counts: Mapping[str, int] = chosen.facts["intents"]
    total = sum(counts.values())
    weights = _weights(chosen)
    whole = sum(weights.values()) or 1.0
    names = sorted({*counts, *weights}, key=lambda name: (-weights.get(name, 0.0), name))
    rows = tuple(
        (
            name,
            points(weights[name] / whole) if name in weights else "—",
            points(counts.get(name, 0) / total),
            str(counts.get(name, 0)),
        )
        for name in names
    )
    table = Table(chosen.name, ("Intent", "Configured, %", "Drawn, %", "Turns"), rows)
    return Made((table,), lead=f"{chosen.count} items, {total} turns, run {run}, {chosen.digest[7:19]}.")


def _weights(chosen: Dataset) -> dict[str, float]:
    """The intent weights that a set was drawn with; {} for a scenario that has none."""
    try:
        scenario = load(str(chosen.facts.get("scenario", "")), chosen.facts.get("settings"))
    except InputError:
        return {}
    weights = getattr(getattr(scenario, "settings", None), "weights", None)
    return dict(weights()) if weights is not None else {}


@item("t2", "Evaluation sets", ("Set", "n", "Source", "Role", "Digest"), SIMULATION,
      published=(("Set", "n", "Source"), (
          ("T1", "978", "real live room"), ("T2", "978", "T1 under augmented harnesses"), ("T3", "2023", "synthetic"),
          ("T4", "541", "public IFEval"), ("C_judge", "482", "human-labelled"), ("D_perf", "110", "deployment replay"),
      )))  # fmt: skip
def sets(sources: Sources) -> Made:
    """Every dataset by content, and the public prompts that ship."""
    from hat_components.evaluate import ifeval

    unique = {one.digest: (run, one) for run, one in reversed(_datasets(sources))}
    rows = [
        (
            one.name,
            str(one.count),
            str(one.facts.get("scenario", one.kind)),
            one.purpose or "untagged",
            one.digest[7:19],
        )
        for _, one in sorted(unique.values(), key=lambda pair: pair[1].name)
    ]
    if not rows:
        return Made()
    rows.append(("T4", str(len(ifeval.prompts())), "public IFEval", "evaluation", ifeval.DIGEST[7:19]))
    return Made((Table("Sets", ("Set", "n", "Source", "Role", "Digest"), tuple(rows)),))


def _inventory(sources: Sources) -> Harness | None:
    if sources.harness is None:
        return None
    try:
        return load_harness(sources.harness)
    except LoadError as error:
        raise InputError(str(error), place=str(sources.harness), cure="hat harness validate") from error


@item("t12", "Tool inventory", ("Name", "Kind", "Responsibility", "Digest"), HARNESS)
def tools(sources: Sources) -> Made:
    """Tools of the harness: what each is for, and whether it changes anything."""
    harness = _inventory(sources)
    if harness is None:
        return Made()
    rows = [
        (tool.name, "reads" if tool.read_only else "has effects", tool.description, part_digest(tool)[7:19])
        for tool in harness.tools
    ]
    if harness.skills:
        activation = harness.activation
        rows.append((activation.tool, "built in", activation.description, "—"))
    return Made((Table(harness.name, ("Name", "Kind", "Responsibility", "Digest"), tuple(rows)),))


@item("t13", "Skill inventory", ("Name", "Kind", "Responsibility", "Digest"), HARNESS)
def skills(sources: Sources) -> Made:
    """Skills of the harness: reply and strategy."""
    harness = _inventory(sources)
    if harness is None:
        return Made()
    rows = tuple((skill.name, skill.kind, skill.description, part_digest(skill)[7:19]) for skill in harness.skills)
    return Made((Table(harness.name, ("Name", "Kind", "Responsibility", "Digest"), rows),))


@item("t19", "Serving profile", ("Setting", "Argument", "Value", "Digest"), PROFILE, published=(("Argument", "Value"), (
    ("--speculative-algo", "NEXTN"), ("--speculative-num-steps", "3"), ("--speculative-eagle-topk", "1"),
    ("--speculative-num-draft-tokens", "4"), ("--speculative-accept-threshold-single", "0.5"),
    ("--speculative-accept-threshold-acc", "0.7"),
)))  # fmt: skip
def serving(sources: Sources) -> Made:
    """Every setting of a serving profile with the engine's argument for it; presets are written out."""
    if sources.profile is None or not sources.served:
        return Made()
    digest = sources.served_digest[7:19]
    rows = tuple((name, argument or "—", value, digest) for name, argument, value in sources.served)
    return Made((Table(sources.profile.stem, ("Setting", "Argument", "Value", "Digest"), rows),))
