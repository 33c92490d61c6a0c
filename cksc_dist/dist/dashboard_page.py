"""The plugin of the scheduler that shows runs: ``/cksc.json``, the page ``/cksc`` of its dashboard, and gauges.

How a page is put on a running scheduler is no part of what Dask promises. So each of the three is tried by itself, and
what cannot be had is left out; the scheduler and the work do not notice.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

from distributed import SchedulerPlugin
from tornado.web import RequestHandler

from cksc_dist.dist.dashboard_state import ABOUT, TOPIC, Runs

__all__ = ["NAME", "CkscPage", "offered"]

NAME = "cksc-page"


def offered(dask_scheduler: Any) -> str:
    """Return the path of the best that a scheduler shows of runs; empty where it is nothing. Runs there."""
    offers = dask_scheduler.plugins[NAME].offers
    return str(offers.get("page") or offers.get("json", ""))


class CkscPage(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """Keeps what runs tell, and shows it.

    Attributes
    ----------
    offers
        What could be put on the scheduler: paths by name (page, json, gauges).
    """

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self.runs = Runs()
        self.offers: dict[str, str] = {}
        self._gauges: Any = None

    async def start(self, scheduler: Any) -> None:
        """Put on the scheduler what it takes."""
        for name, offer in (("page", self._add_page), ("json", self._add_json), ("gauges", self._add_gauges)):
            try:
                self.offers[name] = offer(scheduler)
            except Exception:  # Dask's insides, or Bokeh's, are not those that are known, or something is not installed
                continue

    def log_event(self, topic: str, msg: Any) -> None:
        """Hear an event."""
        if topic == TOPIC:
            self.runs.hear(msg)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Hear that a client has gone."""
        self.runs.gone(client)

    async def close(self) -> None:
        """Take away what is of the whole process."""
        if self._gauges is not None:
            importlib.import_module("prometheus_client").REGISTRY.unregister(self._gauges)
            self._gauges = None

    def _add_json(self, scheduler: Any) -> str:
        application = scheduler.http_application
        prefix = getattr(_dashboard(application), "prefix", "")
        application.add_handlers(".*$", [(rf"{prefix}/cksc\.json", _JsonHandler, {"runs": self.runs})])
        return "/cksc.json"

    def _add_page(self, scheduler: Any) -> str:
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables
        from tornado.ioloop import IOLoop

        from cksc_dist.dist.dashboard_figures import make_document

        dashboard = _dashboard(scheduler.http_application)
        if dashboard is None:
            raise LookupError("a scheduler without a dashboard")
        extra = template_variables(scheduler)  # one for all pages: an entry in it is seen in all
        pages = {"/cksc": partial(_document, make_document, self.runs)}
        added = BokehApplication(pages, scheduler, prefix=dashboard.prefix, template_variables=extra)
        added.initialize(IOLoop.current())
        added.start()
        scheduler.http_application.add_application(added)
        if "cksc" not in extra["pages"]:
            extra["pages"].append("cksc")
        return "/cksc"

    def _add_gauges(self, scheduler: Any) -> str:
        registry = importlib.import_module("prometheus_client").REGISTRY
        gauges = _Gauges(self.runs)
        registry.register(gauges)
        self._gauges = gauges
        return "/metrics"


def _dashboard(application: Any) -> Any:
    """Return the Bokeh application that serves Dask's own pages; None where there is none."""
    return next((found for found in application.applications if "/status" in getattr(found, "app_paths", ())), None)


def _document(make: Any, runs: Runs, scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Fill a document of the page; in the order of arguments that Dask has."""
    make(runs, extra, doc)


class _JsonHandler(RequestHandler):
    """Answers with all runs."""

    def initialize(self, runs: Runs) -> None:
        """Take what there is to answer with."""
        self._runs = runs

    def get(self) -> None:
        """Answer."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        answer = {"runs": self._runs.as_json(), "version": version("cksc_dist"), "about": ABOUT}
        self.write(json.dumps(answer, allow_nan=False))


class _Gauges:
    """What Prometheus reads of runs."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Any]:
        """Give all gauges; those of runs that are gone go as well."""
        family = importlib.import_module("prometheus_client.core").GaugeMetricFamily
        share = family("cksc_share", "Share of the work of the stage that is done", labels=["run", "stage"])
        rate = family("cksc_rate", "Pairs or units a second since the stage began", labels=["run", "unit"])
        eta = family("cksc_eta_seconds", "Seconds until the end of the stage", labels=["run"])
        done = family("cksc_tiles_done", "Tiles of the upper triangle that are done", labels=["run", "matrix"])
        tiles = family("cksc_tiles", "Tiles of the upper triangle", labels=["run", "matrix"])
        objective = family("cksc_objective", "J after the latest alternation", labels=["run", "fit"])
        accuracy = family("cksc_accuracy", "Mean accuracy of the splits that are done", labels=["run", "method"])
        for key, run in self._runs.as_json().items():
            share.add_metric([key, run["stage"]], run["share"])
            for gauge, labels, value in (
                (rate, [key, run["rate_unit"]], run["rate"]),
                (eta, [key], run["eta_seconds"]),
            ):
                if value is not None:
                    gauge.add_metric(labels, value)
            for matrix, found in run["tiles"].items():
                done.add_metric([key, matrix], found["done"])
                tiles.add_metric([key, matrix], found["total"])
            for fit, curve in run["objectives"].items():
                if curve["values"]:
                    objective.add_metric([key, fit], curve["values"][-1])
            for method, found in run["results"].items():
                accuracy.add_metric([key, method], found["mean"])
        yield from (share, rate, eta, done, tiles, objective, accuracy)
