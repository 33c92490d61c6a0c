"""Options that several commands share, and how their text becomes settings. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

from cksc_dist.commands.amounts import parse_bytes
from cksc_dist.spec import (
    COSTS,
    DTYPES,
    ENGINES,
    EXECUTORS,
    METRICS,
    MODES,
    RECALLS,
    SCHEDULES,
    SELECTIONS,
    DistanceSpec,
    KernelSpec,
    ModelSpec,
    RunSpec,
)

__all__ = [
    "add_dims_option",
    "add_distance_options",
    "add_model_options",
    "add_n_jobs",
    "add_reader_options",
    "add_run_options",
    "at_least",
    "bandwidth",
    "distance_specs",
    "model_specs",
    "run_spec",
    "share",
    "window",
]

_PLAIN = DistanceSpec()
_MODEL = ModelSpec()
_KERNEL = KernelSpec()


def add_n_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the number of threads."""
    parser.add_argument("--n-jobs", type=int, default=-1, metavar="N", help="threads; -1: all cores (-1)")


def add_reader_options(parser: argparse.ArgumentParser) -> None:
    """Add options of the forms that series are read from."""
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


def add_distance_options(parser: argparse.ArgumentParser) -> None:
    """Add what a distance is."""
    group = parser.add_argument_group("what a distance is (each choice makes a matrix of its own)")
    computed = [metric for metric in METRICS if metric != "external"]
    group.add_argument("--metric", choices=computed, default=_PLAIN.metric, help="(%(default)s)")
    group.add_argument("--mode", choices=MODES, default=_PLAIN.mode, help="one warping for all dimensions, or one each")
    group.add_argument(
        "--window",
        type=window,
        default=_PLAIN.window,
        metavar="W",
        help="Sakoe-Chiba band: 10 is frames, 0.1 a fraction of the longer series (no band)",
    )
    group.add_argument("--cost", choices=COSTS, default=_PLAIN.cost, help="of two frames (%(default)s)")
    group.add_argument("--normalise", choices=("z",), default=_PLAIN.normalise, help="every dimension of every series")
    group.add_argument("--per-length", action="store_true", help="divide path sums by the sum of both lengths")
    group.add_argument("--engine", choices=ENGINES, default=_PLAIN.engine, help="(%(default)s)")
    group.add_argument("--dtype", choices=DTYPES, default=_PLAIN.dtype, help="float32 halves the disk (%(default)s)")


def add_dims_option(parser: argparse.ArgumentParser) -> None:
    """Add which dimensions are compared; several groups make several matrices."""
    parser.add_argument(
        "--dims",
        nargs="+",
        type=_dims,
        metavar="GROUP",
        help="dimensions to compare, counted from 0, as 0,2 or 3-5; several groups make one matrix each, and 'each' "
        "one for every dimension (all dimensions, one matrix)",
    )


def add_run_options(parser: argparse.ArgumentParser, *, always_dask: bool = False, trust: bool = True) -> None:
    """Add how work is run; a job that always uses Dask has no executor to choose, a plan nothing to trust."""
    group = parser.add_argument_group("how to run (changes no value)")
    group.add_argument(
        "--scheduler", metavar="ADDR", help="a running Dask scheduler, as tls://host:8786 or tcp://host:8786"
    )
    group.add_argument(
        "--require-tls",
        action="store_true",
        help="refuse a scheduler on the network without encryption (CKSC_REQUIRE_TLS=1 does so, too)",
    )
    if always_dask:
        parser.set_defaults(executor="dask")
    else:
        group.add_argument(
            "--executor",
            choices=EXECUTORS,
            default=RunSpec().executor,
            help="auto: threads where less than a minute is expected, otherwise Dask, on a cluster started on this "
            "machine unless --scheduler is given",
        )
    group.add_argument("--workers", type=at_least(1), metavar="N", help="threads or worker processes (one a core)")
    group.add_argument(
        "--memory", type=_memory, metavar="SIZE", help="of one worker, as 2GiB (its share of the machine's)"
    )
    if trust:
        group.add_argument(
            "--trust",
            action="store_true",
            help="take the ledger's word for tiles that are done; otherwise all of them are read and checked first",
        )
    else:
        parser.set_defaults(trust=False)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the parameters of a model and of its kernel."""
    group = parser.add_argument_group("model (CKSC)")
    group.add_argument("--sparsity", type=at_least(1), default=_MODEL.sparsity, metavar="T0", help="(%(default)s)")
    group.add_argument(
        "--alpha", type=float, default=_MODEL.alpha, metavar="X", help="discriminative term (%(default)s)"
    )
    group.add_argument("--atoms-per-class", type=at_least(1), metavar="N", help="atoms a class starts with (T0)")
    group.add_argument("--recall", choices=RECALLS, default=_MODEL.recall, help="(%(default)s)")
    group.add_argument("--schedule", choices=SCHEDULES, default=_MODEL.schedule, help="of the atoms (%(default)s)")
    group.add_argument("--selection", choices=SELECTIONS, default=_MODEL.selection, help="of NQP (%(default)s)")
    group.add_argument("--prune", type=float, default=_MODEL.prune, metavar="SHARE", help="drop small entries (off)")
    group.add_argument("--max-iter", type=at_least(1), default=_MODEL.max_iter, metavar="N", help="(%(default)s)")
    group.add_argument(
        "--tol", type=float, default=_MODEL.tol, metavar="X", help="stop below this change (%(default)s)"
    )
    kernel = parser.add_argument_group("kernel")
    kernel.add_argument(
        "--bandwidth",
        type=bandwidth,
        default=_KERNEL.bandwidth,
        metavar="RULE",
        help="mean, median, paper, squares, or a number (%(default)s)",
    )
    kernel.add_argument(
        "--factor", type=float, default=_KERNEL.factor, metavar="X", help="of the bandwidth (%(default)s)"
    )
    kernel.add_argument("--repair", choices=("clip", "flip"), help="of negative eigenvalues, in memory (none)")


def model_specs(options: argparse.Namespace) -> tuple[ModelSpec, KernelSpec]:
    """Return the parameters of a model and of its kernel, as typed."""
    return (
        ModelSpec(**{field.name: getattr(options, field.name) for field in fields(ModelSpec)}),
        KernelSpec(**{field.name: getattr(options, field.name) for field in fields(KernelSpec)}),
    )


def share(text: str) -> float:
    """Return a share between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return value


def bandwidth(text: str) -> str | float:
    """Return a rule for the bandwidth, or a number."""
    try:
        return float(text)
    except ValueError:
        return text


def distance_specs(options: argparse.Namespace, count_dims: Callable[[str], int]) -> list[DistanceSpec]:
    """Return the settings that were typed, one for each group of dimensions."""
    typed = {field.name: getattr(options, field.name) for field in fields(DistanceSpec) if field.name != "dims"}
    groups: list[tuple[int, ...] | None] = []
    for group in options.dims or [None]:
        groups += [(dim,) for dim in range(count_dims(options.store))] if group == "each" else [group]
    return [DistanceSpec(**typed, dims=dims) for dims in groups]


def run_spec(options: argparse.Namespace) -> RunSpec:
    """Return how to run, as typed."""
    return RunSpec(**{field.name: getattr(options, field.name) for field in fields(RunSpec)})


def at_least(low: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``low`` on."""

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


def window(text: str) -> int | float:
    """Return a band: whole frames, or a fraction."""
    with suppress(ValueError):
        return int(text)
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither frames (10) nor a fraction (0.1)") from None


def _memory(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _dims(text: str) -> Any:
    if text == "each":
        return text
    try:
        chosen: list[int] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            chosen += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no group of dimensions, as 0,2 or 3-5, nor 'each'") from None
    return tuple(chosen)
