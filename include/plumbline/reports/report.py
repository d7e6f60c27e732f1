"""The report: one HTML file that needs nothing else, and findings.json beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.model import to_plain
from plumbline.reports import wording
from plumbline.reports.actions import advice
from plumbline.reports.page import Page, collect_page
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.run_directory import RunDirectory
from plumbline.units import show_bytes

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MARKS = {"PASS": "✓", "WAIVED": "○", "WARN": "!", "NOT_RUN": "–", "STALE": "⧖", "INVALID": "?", "FAIL": "✗"}
"""Beside the word and the colour: no verdict is told by colour alone."""


def write_report(run: RunDirectory) -> Path:
    """Write derived/report.html and derived/findings.json; give the report's path. Raises OutputError when unjudged."""
    page = collect_page(JudgedRun(run))
    run.write_derived_json("findings.json", [to_plain(item) for item in (*page.closing, *page.others)])
    return run.write_derived("report.html", render(page))


def render(page: Page) -> str:
    """Give the page as HTML. Every piece of foreign text is escaped, and unseen characters in it are made visible."""
    return templates().get_template("report.html.j2").render(page=page)


@cache
def templates() -> Environment:
    """Give the templates, with the filters, marks and style that all pages share."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.filters.update(
        percent=wording.percent,
        plain=wording.plain,
        shortened=wording.shortened,
        node_list=wording.node_list,
        bytes=show_bytes,
        params=wording.params_in_words,
        svg=Markup,  # only for what plots.inline wrote
    )
    style = Markup((TEMPLATES / "report.css").read_text("utf-8"))  # noqa: S704 - our own file
    environment.globals.update(marks=MARKS, advice=advice, css=style)
    return environment


def _finalized(value: Any) -> Any:
    from markupsafe import Markup  # noqa: PLC0415

    return wording.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
