"""Catalogue items as HTML: one section, or a page of several in the style of the run report.

Always holds: every text is escaped; plots bring their own escaped markup (report.svg) and have a table beside them. Not
here: what stands in it (items_*).
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from hat_components.paper.catalogue import Rendered
from hat_components.report.step import TEMPLATES
from hat_components.report.view import NAMES, Table


def section_html(one: Rendered) -> str:
    """`<section>` of one item: lead, plots, tables, and what is missing."""
    parts = [Markup('<section id="{}"><h2>{}</h2>').format(one.id, one.section.title)]
    if one.section.lead:
        parts.append(Markup('<p class="lead">{}</p>').format(one.section.lead))
    parts += [Markup(plot) for plot in one.section.plots]  # noqa: S704 - SVG from report.svg, which escapes its texts
    parts += [_table(table) for table in one.section.tables]
    if one.missing:
        rows = Markup("").join(
            Markup("<li>{}: <code>{}</code></li>").format(need.what, need.how) for need in one.missing
        )
        parts.append(Markup('<div class="missing"><ul>{}</ul></div>').format(rows))
    return str(Markup("").join([*parts, Markup("</section>")]))


def page_html(found: Sequence[Rendered], title: str) -> str:
    """A page of its own with these items."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svg"] = Markup  # plots escape their own texts (report.svg)
    return environment.get_template("page.html.j2").render(
        title=title,
        run="",
        sections=[one.section for one in found],
        conversations=[],
        missing=[(f"{one.id}: {need.what}", need.how) for one in found for need in one.missing],
        headline=[],
        names=NAMES,
    )


def _table(table: Table) -> Markup:
    head = Markup("").join(Markup("<th>{}</th>").format(cell) for cell in table.head)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row))
        for row in table.rows
    )
    note = f" ({table.note})" if table.note else ""
    return Markup(
        '<div class="scroll"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(escape(table.caption + note), head, body)
