"""The pieces of a page: one HTML file that needs no network and no script. All text from data is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Cell",
    "Picture",
    "cards",
    "definitions",
    "details",
    "heading",
    "page",
    "pictures",
    "spelt",
    "table",
    "text",
]

STYLE = """\
:root { --ink: #22282f; --faint: #57606a; --rule: #d5d9de; --blue: #0072b2; --pale: #eaf3f9; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: .5rem 0; overflow-wrap: anywhere; }
* + h1 { margin-top: 3.5rem; }
h2 { font-size: 1.4rem; line-height: 1.25; margin: 3rem 0 .75rem; padding-top: 1rem;
  border-top: 1px solid var(--rule); overflow-wrap: anywhere; }
h3 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .5rem 0; overflow-wrap: anywhere; }
.note { color: var(--faint); font-size: .9rem; }
.warning { border-left: 4px solid #d55e00; background: #fdf3ec; padding: .5rem .8rem; }
nav { margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; font-size: .95rem; }
a { color: var(--blue); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 165px), 1fr)); gap: .75rem;
  margin: 1.25rem 0; }
.card { border: 1px solid var(--rule); border-radius: .5rem; padding: .7rem .9rem; min-width: 0; }
.card b { display: block; font-size: 1.5rem; line-height: 1.25; font-weight: 650; overflow-wrap: anywhere; }
.card span { display: block; color: var(--faint); font-size: .875rem; overflow-wrap: anywhere; }
.card.first { background: var(--pale); border-color: #9cc7e0; }
/* where a table is wider than its box, a shadow at the right says so */
.scroll { overflow-x: auto; max-width: 100%; margin: .75rem 0;
  background: linear-gradient(90deg, #fff0, #fff 60%) right / 40px 100% no-repeat local,
    linear-gradient(270deg, #0003, #0000) right / 14px 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .94rem; font-variant-numeric: tabular-nums; }
th, td { padding: .42rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule);
  vertical-align: middle; }
th { font-weight: 600; color: var(--faint); font-size: .85rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
td.left, th.left { text-align: left; }
tr.own td { background: var(--pale); font-weight: 650; }
tr.apart td { border-top: 2px solid var(--faint); }
td small { color: var(--faint); font-weight: 400; font-size: .8rem; }
.bar { float: left; width: 84px; height: 10px; margin: .45em .6rem 0 0; background: #eef0f2; position: relative; }
.bar i { position: absolute; left: 0; top: 0; bottom: 0; background: #8a929b; }
tr.own .bar i { background: var(--blue); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 2.2rem 2.5rem;
  align-items: start; margin: 1rem 0; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(45%, 150px), 1fr)); gap: 1rem; }
.medium { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 1rem 1.5rem; }
.whole { grid-column: 1 / -1; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: .5rem 2.5rem;
  align-items: center; }
figure { margin: 0; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 560px; }
.small svg { max-width: 200px; }
.medium svg { max-width: 360px; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif !important; }
figcaption { margin-top: .5rem; font-size: .94rem; max-width: 46rem; overflow-wrap: anywhere; }
figcaption b { display: block; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--blue); }
dl { display: grid; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: .3rem 1.2rem; margin: .75rem 0;
  font-size: .94rem; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 600px) {
  main { padding: 1rem 1rem 3rem; }
  h1 { font-size: 1.5rem; } h2 { font-size: 1.25rem; }
  th, td { padding: .4rem .4rem; } .bar { display: none; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: .6rem; }
}
@media print {
  main { max-width: none; padding: 0; } nav { display: none; }
  figure, .card, tr { break-inside: avoid; } .scroll { overflow: visible; }
  body { font-size: 11pt; }
}
"""

_NO_LETTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def spelt(text: str) -> str:
    """Return a text with a sign in the place of all that no page may hold.

    Examples
    --------
    >>> spelt("left\\x00hand")
    'left�hand'
    """
    return _NO_LETTERS.sub("\ufffd", text)


def escape(text: str) -> str:
    """Return a text as HTML."""
    return html.escape(spelt(text))


@dataclass(frozen=True)
class Picture:
    """One figure of a page.

    Parameters
    ----------
    title, caption
        What it is, and what to see.
    drawings
        SVG; several stand side by side where there is room.
    size
        ``"one"`` fills a column; of ``"medium"`` and ``"small"`` ones several stand beside each other;
        ``"beside"`` is one over the whole width, with its caption beside it.
    """

    title: str
    caption: str
    drawings: Sequence[str]
    size: Literal["one", "small", "medium", "beside"] = "one"

    def html(self) -> str:
        """Return the figure with its caption."""
        several = self.size in ("small", "medium")
        inner = "".join(f"<div>{drawing}</div>" if several else drawing for drawing in self.drawings)
        body = f'<div class="{self.size}">{inner}</div>' if several else inner
        whole = {"medium": ' class="whole"', "beside": ' class="whole beside"'}.get(self.size, "")
        caption = f"<figcaption><b>{escape(self.title)}</b>{escape(self.caption)}</figcaption>"
        return f'<figure{whole} aria-label="{escape(self.title)}">{body}{caption}</figure>'


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    text
        What it says.
    remark
        In small letters after it.
    share
        Length of a bar before it, from 0 to 1; None: no bar.
    kind
        ``"left"``: text, not a number.
    """

    text: str
    remark: str = ""
    share: float | None = None
    kind: Literal["", "left"] = ""

    def html(self) -> str:
        """Return the cell."""
        bar = ""
        if self.share is not None:
            bar = f'<span class="bar"><i style="width:{100 * min(max(self.share, 0.0), 1.0):.1f}%"></i></span>'
        remark = f" <small>{escape(self.remark)}</small>" if self.remark else ""
        return f'<td class="{self.kind}">{bar}{escape(self.text)}{remark}</td>'


def heading(level: int, words: str) -> str:
    """Return a heading; 1 is the title."""
    return f"<h{level}>{escape(words)}</h{level}>"


def details(summary: str, content: str) -> str:
    """Return what is shown when it is asked for; ``content`` is HTML of these functions."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def text(words: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{escape(words)}</p>' if words else ""


def cards(items: Sequence[tuple[str, str]]) -> str:
    """Return figures that stand out, each with what it is; the first one more than the others."""
    parts = [
        f'<div class="card{" first" if at == 0 else ""}"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for at, (value, what) in enumerate(items)
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


def table(
    header: Sequence[str], rows: Sequence[Sequence[Cell]], kinds: Sequence[str] = (), left: Sequence[int] = ()
) -> str:
    """Return a table in a box of its own, in which it scrolls where it is too wide.

    Parameters
    ----------
    header
        Names of columns.
    rows
        Cells.
    kinds
        Of rows: ``"own"`` stands out, ``"apart"`` is set apart from what is above.
    left
        Columns of text.
    """
    names = "".join(f'<th class="{"left" if at in left else ""}">{escape(name)}</th>' for at, name in enumerate(header))
    lines = [
        f'<tr class="{kinds[at] if kinds else ""}">{"".join(cell.html() for cell in row)}</tr>'
        for at, row in enumerate(rows)
    ]
    return (
        '<div class="scroll" tabindex="0"><table><thead><tr>'
        f"{names}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def definitions(items: Sequence[tuple[str, str]]) -> str:
    """Return a list of names and what they stand for."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in items) + "</dl>"


def pictures(items: Sequence[Picture]) -> str:
    """Return figures side by side where there is room."""
    return f'<div class="figures">{"".join(item.html() for item in items)}</div>' if items else ""


def page(title: str, body: Sequence[str]) -> str:
    """Return the whole file."""
    # nothing may be fetched or run, whatever has come in with the data
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )
