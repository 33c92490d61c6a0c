"""What the main job does: videos, their descriptors, two kernels, the comparison on each, and one report.

STORE/videos/<class>/<video>.npy   made textures, where no data is given
STORE/descriptors/                 of all videos, in blocks
STORE/frames.zarr                  frame histograms as series, under DTW
STORE/lbptop.zarr                  LBP-TOP histograms, under chi-square: K = exp(-chi2 / mean chi2)
STORE/report.html
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from cksc_dist.commands.amounts import in_time
from cksc_dist.commands.evaluate import method_names, say_comparison
from cksc_dist.commands.options import add_run_options, at_least, run_spec
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.stages import Stages
from cksc_dist.dist.cluster import working_client
from cksc_dist.dist.dashboard import DashboardProgress, watched
from cksc_dist.dist.dask_executor import DaskExecutor
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.encryption import is_here
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Running
from cksc_dist.dist.video_work import Described, describe_videos, make_textures
from cksc_dist.dist.workers import dashboard_of
from cksc_dist.errors import InputError, StoreError
from cksc_dist.evaluate.extras import example_model
from cksc_dist.evaluate.grids import KernelChoices
from cksc_dist.evaluate.paper import TABLE1
from cksc_dist.evaluate.protocol import Protocol, evaluate, needed_distances
from cksc_dist.evaluate.report import write_joint_report
from cksc_dist.io.textures import TextureSpec, texture_id
from cksc_dist.io.videos import LAYOUTS, VideoFile, find_videos
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.models.training import PLACES, Place
from cksc_dist.series import SeriesSet
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import is_store
from cksc_dist.store.series_files import open_series

__all__ = ["add_dyntex_options", "run_dyntex"]

TITLE = "DynTex++"
MADE = "Made textures"
FACTORS = (1.0, 0.1)
"""Light tuning: the bandwidth as it is, and a tenth of it; beside it two settings of each method's own."""
LEAST_VIDEOS = 4
"""Of a class: two to train on, each of which is held out once by tuning."""


@dataclass(frozen=True)
class Way:
    """A way to compare videos.

    Parameters
    ----------
    name
        Of its store.
    text
        What it is.
    choices
        Distances and kernels.
    """

    name: str
    text: str
    choices: KernelChoices


WAYS = (
    Way("frames", "frame histograms under DTW", KernelChoices((DistanceSpec(),), FACTORS)),
    Way(
        "lbptop",
        "LBP-TOP under chi-square",
        KernelChoices((DistanceSpec(metric="chi"),), FACTORS, bandwidths=("squares",)),
    ),
)


def add_dyntex_options(parser: argparse.ArgumentParser) -> None:
    """Add what the job is told."""
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="videos, as FOLDER/<class>/<video> (docs/data.md)")
    parser.add_argument("--name", metavar="NAME", help="what --data is called in tables (as its folder)")
    parser.add_argument("--layout", choices=LAYOUTS, default="auto", help="axes of arrays, as hwt for MATLAB's (auto)")
    parser.add_argument(
        "--videos-per-class",
        type=at_least(LEAST_VIDEOS),
        default=20,
        metavar="N",
        help="of made textures; 100 is the size of DynTex++ (%(default)s)",
    )
    parser.add_argument("--store", default="dyntex", metavar="FOLDER", help="where all of it goes (%(default)s)")
    parser.add_argument("--replace", action="store_true", help="put the videos in the place of others in the store")
    parser.add_argument("--report", type=Path, metavar="FILE", help="(report.html in the store)")
    parser.add_argument(
        "--method", default="cksc,svm,1nn", metavar="NAMES", help="names with commas, or all (%(default)s)"
    )
    parser.add_argument("--splits", type=at_least(1), default=10, metavar="N", help="one half trains (%(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="of textures and splits (0)")
    parser.add_argument(
        "--train-on",
        choices=PLACES,
        help="where the kernel of the final models is kept: with --scheduler on its cluster, otherwise in memory",
    )
    add_run_options(parser, always_dask=True)


def run_dyntex(options: argparse.Namespace) -> None:
    """Run the job, say what came out, and where to look."""
    begin, screen = time.perf_counter(), Screen()
    methods, run = method_names(options.method), run_spec(options)
    home = _home(options.store)
    if options.report is not None and options.report.is_dir():
        raise InputError(f"--report {options.report} is a folder; name a file in it")
    videos = None if options.data is None else _videos(options.data)
    _check_stores(home, _texture_names(options) if videos is None else [video.id for video in videos], options.replace)
    stages = Stages(
        screen,
        [*(["textures"] if videos is None else []), "descriptors", "series", "distances"]
        + [f"comparison on {way.name}" for way in WAYS]
        + ["final models", "report"],
    )
    work = watched(stages)
    with working_client(run, run.workers or resolve_n_jobs(-1), None, work) as client:
        work.note(f"dashboard: {dashboard_of(client) or 'none (the scheduler has none)'}")
        if run.scheduler is not None and not is_here(run.scheduler):
            work.note("(where it is bound to loopback there, as it should be: ssh -L 8787:127.0.0.1:8787 HOST first)")
        job = _Job(options, methods, run, home, stages, work, client)
        if videos is None:
            videos = job.make_videos()
            screen.line(f"no --data: these {len(videos):,} videos are made; all figures below are of {MADE.lower()}")
        described = job.describe(videos)
        job.ingest(described)
        job.compute_distances()
        tables = job.compare(*_sizes(described.frames, options))
        job.train(tables)
    with stages.next(), screen.busy("report"):
        report = options.report or home / "report.html"
        title = f"{job.data}: two kernels"
        write_joint_report([job.store(way) for way in WAYS], report, title=title, note=_note(options.data))
    for way, table in zip(WAYS, tables, strict=True):
        say_comparison(screen, table, job.store(way))
    screen.line(f"report: {report}")
    screen.line(f"all of it in {in_time(time.perf_counter() - begin)}; run it again: nothing is done twice")


@dataclass(frozen=True)
class _Job:
    """The stages that need a cluster, and what they have in common."""

    options: argparse.Namespace
    methods: list[str]
    run: RunSpec
    home: Path
    stages: Stages
    work: DashboardProgress
    client: Any

    @property
    def data(self) -> str:
        """What the videos are called."""
        return MADE if self.options.data is None else self.options.name or self.options.data.resolve().name

    @property
    def how(self) -> dict[str, Any]:
        """How work is run and who hears of it."""
        return {"run": self.run, "progress": self.work, "client": self.client}

    def store(self, way: Way) -> str:
        """Return where the series of a way are, and all that is computed from them."""
        return str(self.home / f"{way.name}.zarr")

    @contextmanager
    def stage(self, *, quiet: bool = False) -> Iterator[list[str]]:
        """Go through the next stage; the page tells of it as well."""
        with self.stages.next(quiet=quiet) as said:
            self.work.prefix = f"{self.stages.mark}: "
            yield said

    def make_videos(self) -> list[VideoFile]:
        """Make the textures that are missing."""
        spec = TextureSpec(videos_per_class=self.options.videos_per_class, seed=self.options.seed)
        folder = self.home / "videos"
        with self.stage() as said:
            said.append(f"{make_textures(folder, spec, DaskExecutor(self.client, self.work), self.work):,} made")
        return _made(folder, spec)

    def describe(self, videos: Sequence[VideoFile]) -> Described:
        """Return both descriptors of all videos."""
        with self.stage() as said:
            said.append(f"{len(videos):,} videos")
            return describe_videos(
                videos,
                str(self.home / "descriptors"),
                DaskExecutor(self.client, self.work),
                self.work,
                layout=self.options.layout,
                name=self.data,
            )

    def ingest(self, described: Described) -> None:
        """Put the descriptors into stores."""
        with self.stage() as said:
            for way, data in zip(WAYS, described, strict=True):
                ingest(data, self.store(way), replace=self.options.replace)
                said.append(f"{way.name}.zarr {len(data):,} x {data.dims}")

    def compute_distances(self) -> None:
        """Compute all distances that the comparisons need."""
        with self.stage() as said:
            pairs = 0
            for way in WAYS:
                for distance in needed_distances(self.store(way), self.methods, way.choices, quick=True):
                    report = compute_distances(self.store(way), distance, self.run, self.work, client=self.client)
                    pairs += report.pairs
            said.append(f"{pairs:,} pairs computed")

    def compare(self, sparsity: int, protocol: Protocol) -> list[xr.Dataset]:
        """Tune and measure the methods on each kernel."""
        tables = []
        for way in WAYS:
            with self.stage() as said:
                self.work.suffix = f" {way.name}"
                table = evaluate(
                    self.store(way),
                    self.methods,
                    protocol,
                    name=way.name,
                    title=f"{self.data}, {way.text}",
                    choices=way.choices,
                    sparsity=sparsity,
                    alpha=TABLE1[TITLE].alpha,
                    **self.how,
                )
                means = 100 * table.accuracy.mean("split")
                said += [f"{name} {float(means.sel({'method': name})):.1f} %" for name in self.methods]
                tables.append(table)
        return tables

    def train(self, tables: Sequence[xr.Dataset]) -> None:
        """Train CKSC on each kernel as tuning chose it, on the workers where they are the user's, and save it."""
        with self.stage(quiet=True) as said:
            if "cksc" not in self.methods:
                said.append("none, because CKSC is not among the methods")
                return
            place: Place = self.options.train_on or ("cluster" if self.run.scheduler else "memory")
            for way, table in zip(WAYS, tables, strict=True):
                if place != "cluster":  # of which the kernel copy tells
                    self.work.begin(Running(way.name, 1, 1, unit="models"))
                said.append(example_model(self.store(way), table, place=place, send_all=True, **self.how))
                if place != "cluster":
                    self.work.advance(1, 0)
                    self.work.end()


def _home(store: str) -> Path:
    """Return the folder that all of it goes to."""
    if "://" in store:
        raise InputError(f"--store {store}: videos are files; give a folder that all workers see")
    if Path(store).is_file():
        raise InputError(f"--store {store} is a file; give a folder")
    return Path(store).absolute()


def _videos(folder: Path) -> list[VideoFile]:
    """Return the videos of a folder, or say which class is too small, before anything is computed."""
    videos = find_videos(folder)
    counts = Counter(video.label for video in videos)
    if len(counts) < 2:
        raise InputError(f"{folder} has one class, {next(iter(counts))!r}; there must be at least two to tell apart")
    name, least = min(counts.items(), key=lambda pair: pair[1])
    if least < LEAST_VIDEOS:
        raise InputError(
            f"{folder}: class {name!r} has {least} videos; each needs at least {LEAST_VIDEOS}: add some, or move the "
            "class away"
        )
    return [VideoFile(video.path.absolute(), video.label, video.id) for video in videos]


def _texture_names(options: argparse.Namespace) -> list[str]:
    numbers = range(options.videos_per_class)
    return [texture_id(label, number) for label in range(TextureSpec.classes) for number in numbers]


def _check_stores(home: Path, names: list[str], replace: bool) -> None:
    """Say before anything is computed that the stores of an earlier run hold other videos."""
    for way in WAYS:
        folder = Folder(home / f"{way.name}.zarr")
        if not replace and is_store(folder):
            try:
                kept = open_series(folder).ids.tolist()
            except StoreError:  # cut off while it was written
                continue
            if kept != names:
                raise InputError(
                    f"{home} holds {len(kept):,} videos, other ones than these {len(names):,}; name another --store, "
                    "or put these in their place with --replace"
                )


def _made(folder: Path, spec: TextureSpec) -> list[VideoFile]:
    """Return the first videos of each class, as many as were asked for."""
    seen: Counter[str] = Counter()
    chosen = []
    for video in find_videos(folder) if folder.exists() else []:
        seen[video.label] += 1
        if seen[video.label] <= spec.videos_per_class:
            chosen.append(video)
    if len(chosen) < spec.classes * spec.videos_per_class:
        raise InputError(
            f"the workers have made {spec.classes * spec.videos_per_class:,} videos, but {len(chosen):,} are in "
            f"{folder} as seen from here; give a --store that all machines share"
        )
    return chosen


def _sizes(data: SeriesSet, options: argparse.Namespace) -> tuple[int, Protocol]:
    """Return T0 and the protocol that the smallest class allows."""
    least = min(Counter(data.labels.tolist()).values())
    protocol = Protocol(n_splits=options.splits, n_folds=min(5, least), random_state=options.seed, quick=True)
    return min(TABLE1[TITLE].sparsity, least // 2), protocol


def _note(data: Path | None) -> str:
    """Return what a reader of the report must know of the data and of the kernels."""
    kernels = (
        "The first part compares series of frame histograms under DTW, the second LBP-TOP histograms by "
        "K = exp(-chi2 / (factor mean chi2)), its factor 1 or 0.1 as tuning chooses. The kernel of the paper is not "
        "published in a form that could be computed again: the second one stands in for it."
    )
    made = (
        "These videos are made, by linear dynamical systems: no figure here is one of DynTex++. "
        if data is None
        else ""
    )
    return made + kernels
