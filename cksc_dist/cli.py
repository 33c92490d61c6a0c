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

from cksc_dist.commands.evaluate_options import (
    add_choice_options,
    add_protocol_options,
    choices_of,
    protocol_of,
)
from cksc_dist.commands.options import (
    add_dims_option,
    add_distance_options,
    add_model_options,
    add_n_jobs,
    add_reader_options,
    add_run_options,
    at_least,
    distance_specs,
    model_specs,
    run_spec,
    share,
)
from cksc_dist.commands.program import EXIT_ERROR, exit_code, in_words, on_this_machine, prepared
from cksc_dist.commands.screen import no_controls
from cksc_dist.errors import CkscError, InputError, typed

__all__ = ["main"]

EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

_TOP = """\
Exact DTW distances of multivariate time series, and a classifier on top of them whose decisions can be read.

examples:
  cksc demo                          see all of it at work on made series, in a few seconds
  cksc info gestures.npz             what is in a file
  cksc demo --save gestures          keep the model, and beside it the series held out
  cksc predict gestures gestures.test.npz --explain

  cksc ingest gestures.npz gestures.zarr       series into a store ...
  cksc distances gestures.zarr                 ... and their distance matrix, however large: resumes, never repeats
  cksc train gestures.zarr model               ... and a model from it, which predict takes
"""
_INGEST = """\
Read series in any known form (see cksc info --help) and write them into a store.

A store is a folder or a URL (s3://bucket/name; credentials come from the environment). Run again with the same
series, it does nothing; with others, it says so: see cksc append, or --replace.

examples:
  cksc ingest Taps_TRAIN.ts Taps_TEST.ts taps.zarr
  cksc ingest taps.zarr --distances D.npz      a ready matrix: D, and where there are such y (labels) and ids
"""
_PLAN = """\
Say what a distance matrix will take before a second is spent: tiles, pairs, disk, memory, time.

A sample of pairs is timed on this machine, or on the workers of --scheduler. What cannot fit is refused.

examples:
  cksc plan taps.zarr
  cksc plan taps.zarr --window 0.1 --dtype float32 --workers 16
"""
_DISTANCES = """\
Compute the distance matrix of a store, tile by tile; run it again, and only what is missing is computed.

Every setting makes a matrix of its own: a changed one never mixes with another. Kill it whenever you like.

examples:
  cksc distances taps.zarr
  cksc distances taps.zarr --window 0.1 --dtype float32
  cksc distances taps.zarr --dims each         one matrix for every dimension
  cksc distances taps.zarr --scheduler tcp://head:8786
"""
_STATUS = """\
Say what a store holds: which matrices, how far they are, how fast, and how to open them.

It may be asked at any time, also while another process computes.

examples:
  cksc status taps.zarr
"""
_VERIFY = """\
Check a store: every file, symmetry, and a random sample of entries against an independent engine.

Exits with 1 where anything is wrong or missing, and lists the bad tiles; --repair computes these and missing
ones. Of kernels, models, trainings, fits and tables it says what to do. Files that are no part of the store are named.

examples:
  cksc verify taps.zarr
  cksc verify taps.zarr --sample 2000 --repair
"""
_APPEND = """\
Add series to a store, and compute their distances in every matrix that it holds.

Only pairs with a new series are computed; of the old tiles, those at the edge are rewritten with their values kept.

examples:
  cksc append taps.zarr more.npz
"""
_TRAIN = """\
Train CKSC on the finished distance matrix of a store, and write a model that needs nothing but itself.

Every alternation is kept: kill it whenever you like, run it again, and it goes on where it stopped. A kernel that does
not fit in memory is written to the store once, row by row, and gone through once an alternation.

examples:
  cksc train taps.zarr taps.zarr/models/first
  cksc train taps.zarr model --sparsity 8 --alpha 0.2 --hold-out 0.5
  cksc train big.zarr model --scheduler tcp://head:8786 --drop-kernel
"""
_EVALUATE = """\
Compare methods on the series of a store: repeated stratified splits, every method tuned alike inside the training part.

Methods: cksc, kksvd, jksrc, lcnnksc, lpksvd, kgdl, ekdl, and for reference 1nn and svm. Distances that are missing are
computed. Every fit is kept: kill it whenever you like, run it again, and it goes on where it stopped. Where several
values are given of a kernel's setting, tuning chooses among them.

examples:
  cksc evaluate taps.zarr --quick
  cksc evaluate taps.zarr --method cksc,svm,1nn --sparsity 8
  cksc evaluate taps.zarr --mode dependent independent --window none 0.1 --factor 0.25 0.5 1 2
  cksc evaluate taps.zarr --sweep alpha sparsity --report taps.html --scheduler tcp://head:8786
"""
_REPORT = """\
Write a report to look at: one HTML file with pictures inside, which needs no network.

Of a store: its evaluations (cksc evaluate), the newest first: the table, accuracy of every split, confusion matrices,
what CKSC has learnt, and single decisions with the series that they are made of. Of a model: what it has learnt.

examples:
  cksc report taps.zarr
  cksc report taps.zarr --name evaluation --output taps.html
  cksc report taps.zarr/models/first
"""
_DOCTOR = """\
Look a cluster over before work that takes long: each line says ok, warn or fail, and what to do.

Versions and code on scheduler and workers, threads, memory, whether workers stay alive while they compute, a known
matrix, clocks, room on disk; with --store, whether all workers read and write the very same store, and whether its
distances fit in their memory. Without --scheduler: the cluster that would be started on this machine. Nothing is left
behind. Exits with 1 where anything fails. How to start a cluster: cluster/README.md.

examples:
  cksc doctor
  cksc doctor --scheduler tls://head:8786 --store /shared/taps.zarr
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
_FETCH = """\
Fetch a data set of the UEA archive of time series into FOLDER/NAME, which all commands read.

It comes as NAME.zip from timeseriesclassification.com, or from where --from or the variable CKSC_FETCH_URL says; of it
NAME_TRAIN and NAME_TEST are kept, whole or not at all. What is there already is not fetched again. Other data, and how
to get it: docs/data.md.

examples:
  cksc fetch --list
  cksc fetch BasicMotions
  cksc fetch ArticularyWordRecognition --to data
  cksc fetch Cricket --from file:///home/me/Downloads    a copy that came by other means
"""
_PREDICT = """\
Classify series with a saved model, and say which training series each decision rests on.

MODEL is a path or URL, and must have been trained on series: CKSC(kernel="dtw").fit(series, labels).save(MODEL).
Distances are computed only to training series that carry weight in the model. SOURCE is a file or folder in any
known form (see cksc info --help), or a store: that is how to classify more series than memory holds.
With a scheduler, all workers must find MODEL under the same name: in a folder that they share, or at a URL.

examples:
  cksc predict gestures new.npz
  cksc predict gestures new.npz --explain --top 5
  cksc predict gestures new.npz --json decisions.jsonl
  cksc predict gestures new.npz --json - | head -1
  cksc predict s3://bucket/gestures new.zarr --json decisions.jsonl --scheduler tcp://head:8786
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
    for word in arguments or ():
        if not _is_argument(word):
            print(f"cksc: error: {word[:100]!r} is no text that a system could pass on", file=sys.stderr)
            return EXIT_ERROR
    with prepared() as last_words, warnings.catch_warnings():
        options = _parser().parse_args(arguments)
        warnings.showwarning = _show_warning
        try:
            run: Callable[[argparse.Namespace], int | None] = options.run
            with on_this_machine():
                code = run(options)
            sys.stdout.flush()
        except BrokenPipeError:
            # the reader has what it wanted; without this Python would complain when it closes the stream
            _discard_output()
            return EXIT_BROKEN_PIPE
        except KeyboardInterrupt as interrupt:
            last_words("cksc: interrupted; what is done in a store is kept")
            return exit_code(interrupt)
        except (CkscError, OSError, MemoryError) as error:
            if options.debug:
                last_words(no_controls(traceback.format_exc()).rstrip("\n"))
            last_words(f"cksc: error: {in_words(error)}")
            return EXIT_ERROR
    return code or 0


def _is_argument(word: str) -> bool:
    """Tell whether a word can be the name of a file; what a shell passes on always can."""
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"cksc: warning: {no_controls(str(message))}", file=sys.stderr)


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

    def command(name: str, text: str, run: Callable[[argparse.Namespace], int | None]) -> argparse.ArgumentParser:
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
    demo.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="which series to make (0)")
    demo.add_argument("--per-class", type=at_least(2), default=40, metavar="N", help="series a class (40)")
    demo.add_argument("--save", type=Path, metavar="MODEL", help="write MODEL, and MODEL.test.npz beside it")
    add_n_jobs(demo)

    info = command("info", _INFO, _info)
    info.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="file or folder with series")
    add_reader_options(info)

    fetch = command("fetch", _FETCH, _fetch)
    fetch.add_argument("name", nargs="?", metavar="NAME", help="a data set, as BasicMotions")
    fetch.add_argument("--list", action="store_true", help="print the names of the multivariate sets, and do no more")
    fetch.add_argument("--to", type=Path, default=Path(), metavar="FOLDER", help="where to make the folder NAME (here)")
    fetch.add_argument(
        "--from", dest="base", metavar="URL", help="where NAME.zip lies: https, http or file (see above)"
    )
    fetch.add_argument("--replace", action="store_true", help="put it in the place of the files that are there")

    ingest = command("ingest", _INGEST, _ingest)
    ingest.add_argument("paths", nargs="+", metavar="SOURCE... STORE", help="what to read, and last the store to make")
    ingest.add_argument("--distances", type=Path, metavar="FILE", help="a ready matrix: .npy, .npz, .csv or .txt")
    ingest.add_argument("--replace", action="store_true", help="put the series in the place of those that are there")
    add_reader_options(ingest)

    plan = command("plan", _PLAN, _plan)
    distances = command("distances", _DISTANCES, _distances)
    for sub in (plan, distances):
        _add_store(sub)
        add_distance_options(sub)
        add_dims_option(sub)
        add_run_options(sub, trust=sub is distances)

    _add_store(command("status", _STATUS, _status))

    verify = command("verify", _VERIFY, _verify)
    _add_store(verify)
    verify.add_argument("--sample", type=at_least(0), default=200, metavar="N", help="entries to compute again (200)")
    verify.add_argument("--seed", type=at_least(0), metavar="N", help="which entries (others every time)")
    verify.add_argument("--distances", default="", metavar="PREFIX", help="first letters of matrices to check (all)")
    verify.add_argument("--repair", action="store_true", help="restore metadata, compute bad and missing tiles")
    add_run_options(verify, trust=False)

    append = command("append", _APPEND, _append)
    _add_store(append)
    append.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="file or folder with series")
    add_reader_options(append)
    add_run_options(append)

    train = command("train", _TRAIN, _train)
    _add_store(train)
    train.add_argument("model", metavar="MODEL", help="folder or URL to write, as STORE/models/NAME")
    train.add_argument("--distances", default="", metavar="PREFIX", help="first letters of the matrix, if several")
    train.add_argument("--rows", type=Path, metavar="FILE", help="training rows: a position or id a line (all)")
    train.add_argument("--hold-out", type=share, metavar="SHARE", help="keep so many away to measure accuracy on")
    add_model_options(train)
    train.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="of first atoms and --hold-out (0)")
    train.add_argument(
        "--train-on",
        choices=("auto", "memory", "disk", "cluster"),
        default="auto",
        help="where the kernel is: in memory; on disk, gone through by threads of this process; on disk, by workers "
        "(auto: memory where it fits, otherwise workers if --scheduler is given, otherwise disk)",
    )
    train.add_argument("--from-scratch", action="store_true", help="ignore what earlier runs have left")
    train.add_argument("--new-kernel", action="store_true", help="write the kernel copy again")
    train.add_argument("--drop-kernel", action="store_true", help="remove the kernel copy in the end")
    add_run_options(train, always_dask=True, trust=False)

    evaluate = command("evaluate", _EVALUATE, _evaluate)
    _add_store(evaluate)
    evaluate.add_argument("--method", default="all", metavar="NAMES", help="names, with commas between them (all)")
    evaluate.add_argument("--sparsity", type=at_least(1), default=6, metavar="T0", help="of all methods (%(default)s)")
    evaluate.add_argument("--alpha", type=float, default=0.2, metavar="X", help="of CKSC, tried first (%(default)s)")
    evaluate.add_argument("--name", default="evaluation", metavar="NAME", help="where results are kept (%(default)s)")
    evaluate.add_argument("--title", default="", metavar="TEXT", help="what the data set is called (that of the store)")
    add_protocol_options(evaluate)
    add_choice_options(evaluate)
    evaluate.add_argument(
        "--sweep", nargs="+", choices=("alpha", "sparsity"), default=[], help="CKSC over a parameter, for the report"
    )
    evaluate.add_argument("--report", type=Path, metavar="FILE", help="write the report there (none)")
    add_run_options(evaluate, always_dask=True)

    report = command("report", _REPORT, _report)
    report.add_argument("source", metavar="STORE|MODEL", help="folder or URL of a store or of a saved model")
    report.add_argument("--name", default="", metavar="NAME", help="evaluation that comes first (the newest)")
    report.add_argument("--output", type=Path, metavar="FILE", help="where it goes (NAME_OF_THE_SOURCE.html)")

    doctor = command("doctor", _DOCTOR, _doctor)
    doctor.add_argument("--store", metavar="STORE", help="folder or URL of a store that the workers are to work on")
    add_run_options(doctor, always_dask=True, trust=False)

    predict = command("predict", _PREDICT, _predict)
    predict.add_argument("model", metavar="MODEL", help="folder or URL that save() wrote")
    predict.add_argument("source", metavar="SOURCE", help="file or folder with series, or a store")
    predict.add_argument(
        "--json",
        metavar="FILE",
        help="write one JSON object a line; - is stdout, the rest is then on stderr",
    )
    predict.add_argument(
        "--top",
        type=at_least(1),
        default=3,
        metavar="N",
        help="training series to name a decision (3)",
    )
    predict.add_argument("--explain", action="store_true", help="print each decision in full")
    predict.add_argument("--all", action="store_true", help="print all decisions (the first 50)")
    add_reader_options(predict)
    add_run_options(predict, trust=False)
    return parser


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="folder or URL that cksc ingest wrote")


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


def _fetch(options: argparse.Namespace) -> None:
    from cksc_dist.commands.fetch import fetch_set, list_sets

    if options.list:
        list_sets()
    else:
        fetch_set(options.name, options.to, options.base, options.replace)


def _ingest(options: argparse.Namespace) -> None:
    from cksc_dist.commands.stores import ingest

    *sources, store = options.paths
    if not sources and options.distances is None:
        raise InputError(f"give what to read, and last the store to make: cksc ingest SOURCE {typed(store)}")
    ingest([Path(path) for path in sources], store, dict(options.reader_options), options.distances, options.replace)


def _plan(options: argparse.Namespace) -> None:
    from cksc_dist.commands.stores import count_dims, plan

    plan(options.store, distance_specs(options, count_dims), run_spec(options))


def _distances(options: argparse.Namespace) -> None:
    from cksc_dist.commands.stores import count_dims, distances

    distances(options.store, distance_specs(options, count_dims), run_spec(options))


def _status(options: argparse.Namespace) -> None:
    from cksc_dist.commands.stores import status

    status(options.store)


def _verify(options: argparse.Namespace) -> int:
    from cksc_dist.commands.stores import verify

    return verify(options.store, options.sample, options.seed, options.distances, options.repair, run_spec(options))


def _append(options: argparse.Namespace) -> None:
    from cksc_dist.commands.stores import append

    append(options.store, options.sources, dict(options.reader_options), run_spec(options))


def _train(options: argparse.Namespace) -> None:
    from cksc_dist.commands.train import train_model

    spec, kernel = model_specs(options)
    train_model(
        options.store,
        options.model,
        spec,
        kernel,
        run_spec(options),
        distances=options.distances,
        rows=options.rows,
        hold_out=options.hold_out,
        seed=options.seed,
        place=options.train_on,
        from_scratch=options.from_scratch,
        new_kernel=options.new_kernel,
        drop_kernel=options.drop_kernel,
    )


def _evaluate(options: argparse.Namespace) -> None:
    from cksc_dist.commands.evaluate import compare, method_names
    from cksc_dist.commands.screen import Screen

    compare(
        options.store,
        method_names(options.method),
        protocol_of(options),
        choices_of(options),
        run_spec(options),
        Screen(),
        name=options.name,
        title=options.title,
        distances=options.distances or "",
        sparsity=options.sparsity,
        alpha=options.alpha,
        sweeps=options.sweep,
        report=options.report,
    )


def _report(options: argparse.Namespace) -> None:
    from cksc_dist.commands.screen import Screen
    from cksc_dist.evaluate.report import write_report

    own = options.source.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr")
    screen = Screen()
    screen.line(f"report: {write_report(options.source, options.output or Path(f'{own}.html'), name=options.name)}")


def _doctor(options: argparse.Namespace) -> int:
    from cksc_dist.commands.doctor import doctor

    return doctor(run_spec(options), options.store)


def _predict(options: argparse.Namespace) -> None:
    from cksc_dist.commands.predict import predict

    predict(
        options.model,
        options.source,
        dict(options.reader_options),
        run_spec(options),
        json_file=options.json,
        top=options.top,
        explain=options.explain,
        show_all=options.all,
    )


if __name__ == "__main__":
    sys.exit(main())
