"""The command ``cksc``: what can be typed, and how errors reach the person who typed it.

What a command does is in `cksc_dist.commands`, loaded when the command runs: ``cksc --help`` needs no NumPy.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from cksc_dist.errors import CkscError

__all__ = ["main"]

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

_TOP = """\
Exact DTW distances of multivariate time series, and a classifier on top of them whose decisions can be read.

examples:
  cksc demo                          see all of it at work on made series, in a few seconds
  cksc info gestures.npz             what is in a file
  cksc demo --save gestures          keep the model, and beside it the series held out
  cksc predict gestures gestures.test.npz --explain
"""
_DEMO = """\
Make gestures of four classes, compute their DTW distances, train CKSC on one half, and classify the other.

examples:
  cksc demo
  cksc demo --seed 3 --per-class 100
  cksc demo --save gestures          then: cksc predict gestures gestures.test.npz
"""
_INFO = """\
Read series in any known form and say what they are.

Forms: .ts and .arff files of the UEA and UCR archives, .npz, .mat (Cricket), a folder with NAME_TRAIN and
NAME_TEST, a folder with joints/ (UTKinect), a folder of <OBJECT>/*.mat (Schunk). Each SOURCE is told apart.

examples:
  cksc info gestures.npz
  cksc info Taps_TRAIN.ts Taps_TEST.ts --option missing=interpolate
"""
_PREDICT = """\
Classify series with a saved model, and say which training series each decision rests on.

The model must have been trained on series: CKSC(kernel="dtw").fit(series, labels).save(MODEL).
Distances are computed only to training series that carry weight in the model.

examples:
  cksc predict gestures new.npz
  cksc predict gestures new.npz --explain --top 5
  cksc predict gestures new.npz --json decisions.jsonl
  cksc predict gestures new.npz --json - | head -1
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    arguments
        What follows ``cksc``; None: what the process was started with.

    Examples
    --------
    >>> main(["info", "no-such-file.ts"])  # the error goes to stderr
    2
    """
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            run: Callable[[argparse.Namespace], None] = options.run
            run(options)
            sys.stdout.flush()
        except BrokenPipeError:
            # the reader has what it wanted; without this Python would complain when it closes the stream
            _discard_output()
            return EXIT_BROKEN_PIPE
        except KeyboardInterrupt:
            print("cksc: interrupted", file=sys.stderr)
            return EXIT_INTERRUPTED
        except (CkscError, OSError) as error:
            if options.debug:
                traceback.print_exc()
            print(f"cksc: error: {error}", file=sys.stderr)
            return EXIT_ERROR
    return 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"cksc: warning: {message}", file=sys.stderr)


def _discard_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument("--debug", action="store_true", help="show the traceback of an error")

    parser = argparse.ArgumentParser(
        prog="cksc", description=_TOP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, text: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text.split(".\n")[0],
            description=text,
            parents=[everywhere],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run)
        return sub

    demo = command("demo", _DEMO, _demo)
    demo.add_argument("--seed", type=_at_least(0), default=0, metavar="N", help="which series to make (0)")
    demo.add_argument("--per-class", type=_at_least(2), default=40, metavar="N", help="series a class (40)")
    demo.add_argument("--save", type=Path, metavar="MODEL", help="write MODEL, and MODEL.test.npz beside it")
    _add_n_jobs(demo)

    info = command("info", _INFO, _info)
    info.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="file or folder with series")
    _add_reader_options(info)

    predict = command("predict", _PREDICT, _predict)
    predict.add_argument("model", type=Path, metavar="MODEL", help="folder that save() wrote")
    predict.add_argument("source", type=Path, metavar="SOURCE", help="file or folder with series")
    predict.add_argument(
        "--json",
        metavar="FILE",
        help="write one JSON object a line; - is stdout, the rest is then on stderr",
    )
    predict.add_argument(
        "--top",
        type=_at_least(1),
        default=3,
        metavar="N",
        help="training series to name a decision (3)",
    )
    predict.add_argument("--explain", action="store_true", help="print each decision in full")
    _add_reader_options(predict)
    _add_n_jobs(predict)
    return parser


def _add_n_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n-jobs", type=int, default=-1, metavar="N", help="threads; -1: all cores (-1)")


def _add_reader_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--option",
        dest="reader_options",
        type=_reader_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the form that is read: missing=interpolate (.ts, .arff), centre=none (UTKinect), "
        "baseline=none (Schunk); may be given several times",
    )


def _at_least(low: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
        return value

    return whole_number


def _reader_option(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in missing=interpolate")
    return name, None if value.lower() == "none" else value


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from cksc_dist import __version__

        print(f"cksc {__version__}")
        parser.exit()


def _demo(options: argparse.Namespace) -> None:
    from cksc_dist.commands.demo import demo

    demo(options.seed, options.per_class, options.n_jobs, options.save)


def _info(options: argparse.Namespace) -> None:
    from cksc_dist.commands.info import info

    info(options.sources, dict(options.reader_options))


def _predict(options: argparse.Namespace) -> None:
    from cksc_dist.commands.predict import predict

    predict(
        options.model,
        options.source,
        dict(options.reader_options),
        json_file=options.json,
        top=options.top,
        explain=options.explain,
        n_jobs=options.n_jobs,
    )


if __name__ == "__main__":
    sys.exit(main())
