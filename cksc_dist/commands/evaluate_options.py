"""Options of an evaluation, and how their text becomes settings. Nothing heavy is imported before they are read."""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING

from cksc_dist.commands.options import at_least, bandwidth, share, window
from cksc_dist.errors import InputError
from cksc_dist.spec import MODES, DistanceSpec

if TYPE_CHECKING:
    from cksc_dist.evaluate.grids import KernelChoices
    from cksc_dist.evaluate.protocol import Protocol

__all__ = ["add_choice_options", "add_protocol_options", "choices_of", "protocol_of"]


def add_protocol_options(parser: argparse.ArgumentParser) -> None:
    """Add splits, folds and seed."""
    group = parser.add_argument_group("protocol")
    group.add_argument("--splits", type=at_least(1), metavar="N", help="stratified splits (10; 3 with --quick)")
    group.add_argument("--folds", type=at_least(2), metavar="N", help="of cross-validation (5; 3 with --quick)")
    group.add_argument("--test-size", type=share, default=0.5, metavar="SHARE", help="that is tested on (%(default)s)")
    group.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="split s has the seed N + s (0)")
    group.add_argument("--quick", action="store_true", help="fewer splits and folds, small grids: a first look")
    group.add_argument("--no-tuning", action="store_true", help="the first point of every grid: the plainest choice")


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Add the kernels that tuning chooses from."""
    group = parser.add_argument_group("kernel (of several values tuning chooses, for every method alike)")
    group.add_argument("--mode", nargs="+", choices=MODES, default=["dependent"], help="of DTW (dependent)")
    group.add_argument(
        "--window", nargs="+", type=_window, default=[None], metavar="W", help="band: none, 10 frames, or 0.1 (none)"
    )
    group.add_argument("--normalise", choices=("z",), help="every dimension of every series (no)")
    group.add_argument("--bandwidth", nargs="+", type=bandwidth, default=["mean"], metavar="RULE", help="(mean)")
    group.add_argument("--factor", nargs="+", type=float, metavar="X", help="of the bandwidth (1 0.5 0.25 0.1)")
    group.add_argument("--distances", metavar="PREFIX", help="take this matrix of the store, as it is")


def _window(text: str) -> int | float | None:
    return None if text.lower() == "none" else window(text)


def protocol_of(options: argparse.Namespace) -> Protocol:
    """Return the protocol that was typed."""
    from cksc_dist.evaluate.protocol import Protocol

    usual = Protocol.short() if options.quick else Protocol()
    return Protocol(
        options.splits or usual.n_splits,
        options.test_size,
        options.folds or usual.n_folds,
        options.seed,
        options.quick,
        not options.no_tuning,
    )


def choices_of(options: argparse.Namespace) -> KernelChoices:
    """Return the kernels that were typed."""
    from cksc_dist.evaluate.grids import FACTORS, KernelChoices

    distances = tuple(
        DistanceSpec(mode=mode, window=band, normalise=options.normalise)
        for mode, band in product(options.mode, options.window)
    )
    ready = options.distances is not None
    if ready and distances != (DistanceSpec(),):
        raise InputError("--distances takes a matrix as it is; leave out --mode, --window and --normalise")
    factors = tuple(options.factor or FACTORS)
    return KernelChoices(None if ready else distances, factors, tuple(options.bandwidth))
