"""Screen: where a command prints. On a terminal `rich` draws; elsewhere there are plain, aligned lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["Screen", "end_bars", "no_controls"]

Item = TypeVar("Item")

# C0, DEL, C1, halves of letters, and what turns the direction of text; a line may be several, and have tabs
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_IN_A_CELL = re.compile(f"{_CONTROLS.pattern}|[\n\t]")


def _spelt(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def no_controls(text: str) -> str:
    """Return a text with control characters spelt out: names from files must not steer the terminal.

    Examples
    --------
    >>> print(no_controls("walk\x1b[2J"))
    walk\\x1b[2J
    """
    return _CONTROLS.sub(_spelt, text)


_bars: WeakSet[Progress] = WeakSet()


def end_bars() -> None:
    """Take away bars that were left where somebody interrupted: they hide the cursor, and draw over last words."""
    for bar in list(_bars):
        with suppress(OSError):  # the terminal is gone
            bar.stop()


class Screen:
    """Print lines and tables, and show on a terminal that work goes on.

    Parameters
    ----------
    stream
        Where to print; None: standard output.

    Examples
    --------
    >>> Screen().table(["class", "series"], [["walk", "20"], ["sit down", "9"]], right=[1])
    class     series
    walk          20
    sit down       9
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self._console: Console | None = None
        if self.stream.isatty():
            from rich.console import Console  # a tenth of a second that a pipe need not wait for

            self._console = Console(file=self.stream, highlight=False, markup=False)

    def line(self, text: str = "") -> None:
        """Print a line of text, with control characters spelt out."""
        print(no_controls(text), file=self.stream, flush=True)  # in a log that somebody follows

    def heading(self, text: str) -> None:
        """Print a line that stands out on a terminal."""
        if self._console is None:
            self.line(text)
        else:
            self._console.print(no_controls(text), style="bold", soft_wrap=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
        """Print a table; ``right`` are the columns of numbers. An empty header is left out."""
        header, *rows = ([_IN_A_CELL.sub(_spelt, cell) for cell in cells] for cells in (header, *rows))
        if self._console is not None:
            self._draw_table(self._console, header, rows, right)
            return
        lines = [header, *rows] if any(header) else list(rows)
        widths = [max(len(cells[c]) for cells in lines) for c in range(len(header))]
        for cells in lines:
            placed = [
                cell.rjust(width) if c in right else cell.ljust(width)
                for c, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            self.line("  ".join(placed).rstrip())

    @staticmethod
    def _draw_table(
        console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int]
    ) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=any(header), header_style="dim")
        for c, name in enumerate(header):
            table.add_column(name, justify="right" if c in right else "left", overflow="fold")
        for cells in rows:
            table.add_row(*(Text(cell) for cell in cells))
        console.print(table)

    def busy(self, text: str) -> AbstractContextManager[Any]:
        """Show a text while something runs; nothing is left of it, and it is not in a log."""
        return nullcontext() if self._console is None else self._console.status(no_controls(text))

    def track(self, items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
        """Go through items with a bar on a terminal."""
        if self._console is None:
            return iter(items)
        from rich.progress import track

        return iter(track(items, no_controls(text), total, console=self._console, transient=True))

    def bar(self) -> Progress | None:
        """Return a bar of work with rate and time left; None where the stream is no terminal."""
        if self._console is None:
            return None
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        ]
        bar = Progress(*columns, console=self._console, transient=True)
        _bars.add(bar)
        return bar

    def can_show(self, letters: str) -> bool:
        """Tell whether the stream's encoding has all these letters."""
        try:
            letters.encode(self.stream.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True
