"""`hat report paper`: the report catalogue of the source paper, each item from runs of one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from hatstack import paths
from hatstack.cli.output import emit, table


def paper(root: Path, item: str | None, harness: str, profile: Path | None) -> None:
    """One item as text, JSON and a page; without an item the catalogue, with what can be made now."""
    from hat_components.data import write_text
    from hat_components.paper.catalogue import items, render
    from hat_components.paper.page import page_html
    from hat_components.paper.sources import Sources

    shared = Path("docs") / "results"  # rows of `hat ablate` from any machine
    sources = Sources.scan(
        [root, *([shared] if shared.is_dir() else [])], harness=paths.harness(harness), profile=profile
    )
    if profile is not None:
        from hat_serving.sglang.flags import settings
        from hat_serving.sglang.profile import read_profile

        read = read_profile(profile)
        sources.served, sources.served_digest = settings(read), read.digest
    if item is None:
        found = [render(ident, sources) for ident in items()]
        rows = [(one.id, one.title, one.state, "; ".join(need.how for need in one.missing)) for one in found]
        data = [
            {"item": one.id, "title": one.title, "state": one.state, "columns": list(one.columns),
             "missing": [asdict(need) for need in one.missing]}
            for one in found
        ]  # fmt: skip
        emit(data, lambda: table(("item", "shows", "state", "lacks"), rows))
        return
    made = render(item, sources)
    page = root / "paper" / f"{item}.html"
    write_text(page, page_html([made], made.section.title))
    lines = [made.section.title, made.section.lead]
    for one in made.section.tables:
        lines += ["", one.caption + (f" ({one.note})" if one.note else ""), table(one.head, one.rows)]
    lines += ["", *(f"missing: {need.what}\n  make it: {need.how}" for need in made.missing)]
    lines += [f"passed over: {path}: {why}" for path, why in made.broken.items()]
    emit(
        {
            "item": made.id,
            "title": made.title,
            "state": made.state,
            "tables": [asdict(one) for one in made.section.tables],
            "missing": [asdict(need) for need in made.missing],
            "broken": made.broken,
            "page": str(page),
        },
        "\n".join([*lines, str(page)]),
    )
