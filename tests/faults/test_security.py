"""Nobody gets in by a file, a name or an address: nothing is unpickled, no secret kept, no terminal steered."""

from __future__ import annotations

import ast
import gc
import importlib.util
import io
import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import google_crc32c
import numpy as np
import psutil
import pytest
import zarr

from cksc_dist import CKSC, SeriesSet, load_model, open_matrix
from cksc_dist.cli import main
from cksc_dist.commands.matrix_file import read_matrix
from cksc_dist.commands.screen import Screen
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.dashboard_figures import make_document
from cksc_dist.dist.dashboard_state import Runs
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import SerialExecutor
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.kernel_work import shared_arrays
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.video_work import describe_videos
from cksc_dist.errors import CkscError, ReadError
from cksc_dist.evaluate.fit_work import FitFiles
from cksc_dist.evaluate.report import write_report
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.io import make_gestures, read, write_npz
from cksc_dist.io.videos import find_videos, read_video
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import KernelCopy
from cksc_dist.store.lease import holder
from cksc_dist.store.manifest import digests_of
from cksc_dist.store.series_files import open_series
from tests.dist.processes import answers, free_port, starter, wait_until
from tests.faults.hostile_files import OLD_ARRAY, WAYS, mat, npy, npz, plain_pickle, plant

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cksc_dist"

SERIAL = RunSpec(executor="serial")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a few alternations will do


# ---- what the source may say

FORBIDDEN = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "yaml",
    "torch",
    "pandas",
    "numcodecs",
}
ALLOWED_IMPORTS = {
    # registers its own module to be sent by value to the user's cluster; reads nothing
    ("dist/ship.py", "cloudpickle"),
}
ALLOWED_NAMES = {
    # imports itself, to name itself
    ("dist/ship.py", "__import__"),
    # sent to the scheduler with a constant text, where this package may be missing
    ("dist/same_code.py", "eval"),
    ("dist/dashboard.py", "eval"),
}


def suspicious(source: str, name: str) -> list[str]:
    """Return what a source file says that could run code from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            tops = {module.split(".")[0] for module in modules}
            found += [
                f"imports {top}" for top in tops & (FORBIDDEN | {"cloudpickle"}) if (name, top) not in ALLOWED_IMPORTS
            ]
        if isinstance(node, ast.Name) and node.id in ("eval", "exec", "compile", "__import__"):
            found += [node.id] if (name, node.id) not in ALLOWED_NAMES else []
        if isinstance(node, ast.Attribute) and node.attr in ("system", "popen", "LocalStore", "FsspecStore", "loads"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            found += [f"{owner}.{node.attr}"] if (owner, node.attr) != ("json", "loads") else []
        if isinstance(node, ast.Call):
            options = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            called = getattr(node.func, "attr", "")
            owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            reads = (owner, called) == ("np", "load") or (owner == "np.lib.format" and called.startswith("read"))
            if reads and name != "arrays.py":
                found.append(f"{owner}.{called}: what a file says of its own size is checked in arrays.py alone")
            if called in ("load", "read_array") and reads and options.get("allow_pickle") is not False:
                found.append(f"{owner}.{called} without allow_pickle=False")
            found += ["shell=True"] if options.get("shell") else []
            found += ["allow_pickle=True"] if options.get("allow_pickle") else []
    return found


def test_no_source_file_could_unpickle_or_evaluate() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    found = {
        str(path.relative_to(PACKAGE)): suspicious(path.read_text(), str(path.relative_to(PACKAGE))) for path in files
    }
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import yaml.loader",
        "eval(x)",
        "client.run(eval, text)",
        "np.load(x)",
        "np.load(x, allow_pickle=True)",
        "np.load(x, allow_pickle=flag)",
        "np.load(x, allow_pickle=False)",
        "np.lib.format.read_array_header_2_0(x)",
        "np.lib.format.read_array(x)",
        "subprocess.run(x, shell=True)",
        "os.system(x)",
        "zarr.storage.LocalStore(x)",
        "cloudpickle.loads(x)",
    ],
)
def test_the_scan_notices(line: str) -> None:
    assert suspicious(line, "dist/other.py")
    assert suspicious("np.load(x)", "arrays.py")
    assert not suspicious("np.load(x, allow_pickle=False)", "arrays.py")
    assert not suspicious("np.save(x, y); json.loads(y); client.run(f)", "dist/other.py")


# ---- files that would run code


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Is made by what is unpickled."""
    import numcodecs.pickles  # type: ignore[import-untyped]  # it has no types

    # as older releases of numcodecs do unasked, and as a variable of the environment may say still
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    return tmp_path / "marker"


def refused(marker: Path, action: Callable[[], object]) -> None:
    """Check that something is refused by an error of this package, and has run nothing."""
    with pytest.raises(CkscError):
        action()
    assert not marker.exists()


def test_the_bombs_go_off_where_somebody_unpickles(marker: Path, tmp_path: Path) -> None:
    np.load(io.BytesIO(npy(marker)), allow_pickle=True)
    assert marker.exists()
    marker.rmdir()
    array = tmp_path / "old"
    array.mkdir()
    (array / ".zarray").write_text(json.dumps(OLD_ARRAY | {"shape": [3], "chunks": [3]}))
    (array / "0").write_bytes(plain_pickle(marker))
    with suppress(TypeError):  # what comes out is no text
        zarr.open_array(array, mode="r")[:]
    assert marker.exists()


def test_data_files_of_objects_are_refused(marker: Path, tmp_path: Path) -> None:
    contents = {
        "npy": [npy(marker), plain_pickle(marker)],
        "npz": [npz(marker, ("values", "offsets", "labels", "X", "y", "D", "ids", "film")), plain_pickle(marker)],
    }
    for kind, files in contents.items():
        for content in files:
            path = tmp_path / f"file.{kind}"
            path.write_bytes(content)
            refused(marker, lambda path=path: read_matrix(path))
            refused(marker, lambda path=path: read_video(path))
            refused(marker, lambda path=path: read(path))
            films = tmp_path / "films" / "flame"
            films.mkdir(parents=True, exist_ok=True)
            (films / f"{kind}.{kind}").write_bytes(content)
    for video in find_videos(tmp_path / "films"):
        refused(marker, lambda video=video: describe_videos([video], str(tmp_path / "d"), SerialExecutor(), Progress()))


@pytest.mark.parametrize("kind", [3, 16, 17])
def test_matlab_objects_and_functions_are_refused(kind: int, marker: Path, tmp_path: Path) -> None:
    mat(tmp_path / "signs.mat", kind)
    with pytest.raises(ReadError):
        read(tmp_path / "signs.mat")
    (tmp_path / "films" / "flame").mkdir(parents=True)
    (tmp_path / "films" / "flame" / "a.mat").write_bytes((tmp_path / "signs.mat").read_bytes())
    with pytest.raises(ReadError):
        read_video(tmp_path / "films" / "flame" / "a.mat")


def test_files_of_training_and_fits_are_never_unpickled(marker: Path, tmp_path: Path) -> None:
    for content in (npz(marker, ("U", "rows", "frames", "lengths", "planes")), plain_pickle(marker), npy(marker)):
        folder = Folder(tmp_path / "training")
        checksum = google_crc32c.value(content)
        folder.write(f"checkpoint-000001-{checksum:08x}.npz", content)
        record = {"training": "these", "number": 1, "crc32c": checksum, "settings": {}}
        folder.write_json("latest.json", {"records": [record]})
        refused(marker, Checkpoints(folder, "these").latest)

        shared = Folder(tmp_path / "shared")
        shared.write("pass.npz", content)
        shared_arrays.cache_clear()
        refused(marker, lambda shared=shared: shared_arrays(shared.url, "pass.npz"))

        copy = Folder(tmp_path / "store" / "kernels" / "key")
        copy.write_json("about.json", {"matrix": "m", "n": 3, "dtype": "float64", "delta": 1.0, "factor": 1.0})
        copy.write("rows.npy", content)
        about = copy.read_json("about.json") | {"files": digests_of(copy, ["rows.npy"])}
        copy.write_json("about.json", about)
        refused(marker, lambda: KernelCopy(Folder(tmp_path / "store"), "key").rows)

        fits = Folder(tmp_path / "store" / "fits" / "e")
        for name in ("fits.json", "done/k.json"):
            fits.write(name, content)
        files = FitFiles(str(tmp_path / "store"), "e").load()
        assert files.found == {}
        assert len(files.damaged) == 2
        lease = Folder(tmp_path / "leased")
        lease.write("lock.json", content)
        assert not holder(lease)
        refused(marker, lambda lease=lease: lease.read_json("lock.json"))
    assert not marker.exists()


def test_descriptors_of_objects_are_made_anew(marker: Path, tmp_path: Path) -> None:
    films = tmp_path / "films" / "flame"
    films.mkdir(parents=True)
    np.save(films / "a.npy", np.random.default_rng(0).integers(0, 255, (6, 8, 8)).astype(np.uint8))
    described = tmp_path / "described"
    first = describe_videos(find_videos(tmp_path / "films"), str(described), SerialExecutor(), Progress())
    (block,) = described.glob("*.npz")
    block.write_bytes(npz(marker, ("frames", "lengths", "planes")))
    again = describe_videos(find_videos(tmp_path / "films"), str(described), SerialExecutor(), Progress())
    np.testing.assert_array_equal(first.frames.values, again.frames.values)
    assert not marker.exists()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a model and a table, to copy."""
    import xarray as xr

    from cksc_dist.evaluate.fits import write_table

    home = tmp_path_factory.mktemp("sound")
    data = make_gestures(n_per_class=4, n_classes=3, length=(8, 12), random_state=0)
    ingest(data, home / "store")
    compute_distances(home / "store", run=SERIAL)
    CKSC(sparsity=2, max_iter=3, kernel="dtw", random_state=0).fit(data, data.labels).save(home / "store/models/m")
    table = xr.Dataset({"accuracy": ("method", [0.5, 0.75])}, {"method": ["a", "b"]}, {"kind": "evaluation"})
    write_table(Folder(home / "store"), "e", table)
    return home


def copy_of(sound: Path, target: Path) -> Path:
    import shutil

    shutil.copytree(sound / "store", target)
    return target


@pytest.mark.parametrize("how", WAYS)
def test_zarr_arrays_that_hold_pickles_are_refused(how: str, sound: Path, marker: Path, tmp_path: Path) -> None:
    store = copy_of(sound, tmp_path / "store")
    plant(store, "series", "label", how, marker)
    refused(marker, lambda: open_series(Folder(store)).labels)

    store = copy_of(sound, tmp_path / "of the matrix")
    (matrix,) = (path for path in (store / "distances").iterdir() if path.is_dir())
    plant(store, f"distances/{matrix.name}", "distance", how, marker)
    refused(marker, lambda: open_matrix(store)[:, :])
    if how not in WAYS[:3]:  # otherwise there is no such array, as xarray says it
        with pytest.raises((ValueError, KeyError)):
            open_matrix(store).to_xarray().values  # noqa: B018
    main(["status", str(store)])
    main(["verify", str(store), "--repair"])
    assert not marker.exists()

    plant(store, "models/m", "train_labels", how, marker)
    refused(marker, lambda: load_model(store / "models" / "m"))

    plant(store, "results/e", "accuracy", how, marker)
    refused(marker, lambda: find_evaluations(Folder(store)))


# ---- who listens


def listening(process: psutil.Process) -> list[str]:
    """Return the addresses at which a process listens."""
    connections = getattr(process, "net_connections", process.connections)  # its name before psutil 6
    return [found.laddr.ip for found in connections(kind="inet") if found.status == psutil.CONN_LISTEN]


# Dask leaves a socket open where the usual port of the dashboard is taken
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_embedded_cluster_listens_on_loopback_alone() -> None:
    with connected(RunSpec(executor="dask", workers=2), 2) as client:
        client.wait_for_workers(2, timeout=120)
        workers = [child for child in psutil.Process().children(recursive=True) if "spawn" in " ".join(child.cmdline())]
        found = {process.pid: listening(process) for process in (psutil.Process(), *workers)}
        addresses = [address for each in found.values() for address in each]
        assert set(addresses) <= {"127.0.0.1", "::1"}
        # scheduler, dashboard and a nanny each are in this process; each worker in its own
        assert len(found[os.getpid()]) >= 4
        assert sum(bool(found[worker.pid]) for worker in workers) == 2
        assert client.dashboard_link.startswith("http://127.0.0.1:")
    gc.collect()


# ---- secrets

SECRET, KEY_ID, TOKEN = "MarkedSecret/7f3aZ", "MARKEDKEYID42", "MarkedSessionToken9"


def secrets_in(content: str | bytes) -> list[str]:
    """Return what must not be there and is."""
    whole = content.encode() if isinstance(content, str) else content
    return [word for word in (SECRET, SECRET.replace("/", "%2F"), TOKEN) if word.encode() in whole]


@pytest.mark.parametrize(
    "command",
    [
        ["status", "URL"],
        ["ingest", "SOURCE", "URL"],
        ["plan", "URL"],
        ["distances", "URL"],
        ["verify", "URL"],
        ["append", "URL", "SOURCE"],
        ["train", "URL", "m"],
        ["train", "STORE", "URL"],
        ["evaluate", "URL", "--quick"],
        ["report", "URL"],
        ["predict", "URL", "SOURCE"],
        ["predict", "MODEL", "URL"],
        ["doctor", "--store", "URL", "--workers", "1"],
        ["fetch", "BasicMotions", "--from", "URL"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "scheme",
    [
        "s3://KEY:PASS@bucket/x",
        "s3://KEY:PLAIN@bucket/x",
        "https://me:PASS@host/x",
        "https://me:PASS@host:99999/x",
        "simplecache::s3://KEY:PASS@b/x",
        "https://host/x?sig=PASS",
        "https://host/x#PASS",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(
    scheme: str, command: list[str], sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_npz(tmp_path / "new.npz", make_gestures(n_per_class=2))
    assert "/" in SECRET
    url = scheme.replace("PASS", SECRET.replace("/", "%2F")).replace("PLAIN", SECRET).replace("KEY", KEY_ID)
    words = {"URL": url, "SOURCE": str(tmp_path / "new.npz"), "STORE": str(sound / "store")}
    words["MODEL"] = str(sound / "store/models/m")
    code = main([*(words.get(word, word) for word in command), "--debug"])
    out, errors = capsys.readouterr()
    assert code != 0
    assert not secrets_in(out + errors)
    assert "holds a key or password" in out + errors


def test_no_secret_is_printed_sent_or_kept(tmp_path: Path) -> None:
    for needed in ("s3fs", "moto", "flask"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"needs {needed}: pip install cksc_dist[test]")
    port = free_port()
    environment = {
        **{"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN},
        **{"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"},
        **{"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull},
        **{"AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": str(ROOT)},
    }
    home = tmp_path / "home"
    home.mkdir()
    with starter(tmp_path) as start:
        start(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
        wait_until(lambda: answers(port), "a server that answers")
        worker = start(sys.executable, "-m", "tests.faults.secret_store", str(home), environment=environment)
        assert worker.wait(400.0) == 0, worker.output
        printed = worker.output
    assert "Traceback" in printed
    assert not secrets_in(printed)
    kept = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert b'"runs"' in kept["page-cksc.json"]
    for part in ("ledger", "kernels", "model/", "report.html", "decisions.jsonl", "told"):
        assert any(part in name for name in kept), part
    assert [name for name, content in kept.items() if secrets_in(content)] == []


# ---- who may read what is written


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_what_is_written_is_for_whom_the_user_says(mask: int, tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = os.umask(mask)
    try:
        home.mkdir()
        data = make_gestures(n_per_class=4, n_classes=2, length=(8, 12), random_state=0)
        write_npz(home / "data.npz", data)
        ingest(data, home / "store")
        compute_distances(home / "store", run=SERIAL)
        spec = ModelSpec(sparsity=2, max_iter=2)
        train(home / "store", home / "model", spec=spec, place="disk", run=SERIAL)
        write_report(home / "model", home / "report.html")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    assert len(modes) > 30
    wanted = {True: 0o777 & ~mask, False: 0o666 & ~mask}
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & ~wanted[path.is_dir()]} == {}


def test_keys_of_certificates_are_secret_whatever_the_umask(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    before = os.umask(0)
    try:
        subprocess.run(
            [sys.executable, ROOT / "cluster" / "make_certs", tmp_path / "c"], check=True, capture_output=True
        )
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").iterdir()}
    assert {name: mode for name, mode in modes.items() if "key" in name} == {"ca-key.pem": 0o600, "node-key.pem": 0o600}
    assert not any(mode & 0o022 for mode in modes.values() if mode != 0o600)


# ---- names that steer

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202ewalk"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def steering_data() -> SeriesSet:
    data = make_gestures(n_per_class=6, n_classes=2, length=(8, 12), random_state=0)
    labels = [f"{STEERING}{label}" for label in data.labels]
    ids = [f"{STEERING}{i}" for i in range(len(data))]
    return SeriesSet.from_list(data.series, labels, ids, dim_names=[f"{STEERING}{dim}" for dim in range(data.dims)])


def test_names_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, store, model = (str(tmp_path / name) for name in (f"{STEERING}.npz", "store", "model"))
    write_npz(source, steering_data())
    commands = [
        ["info", source],
        ["ingest", source, store],
        ["ingest", source, store, "--distances", source],
        ["distances", store, "--executor", "serial"],
        ["status", store],
        ["append", store, source],
        ["train", store, model, "--sparsity", "2", "--max-iter", "2", "--hold-out", "0.5"],
        ["train", store, model, "--rows", source],
        ["predict", model, source, "--explain"],
        ["predict", model, source, "--json", "-"],
        ["verify", store, "--sample", "5"],
        ["report", store, "--name", STEERING],
        ["info", str(tmp_path / f"no {STEERING}.ts"), "--debug"],
    ]
    said = []
    for command in commands:
        main(command)
        out, errors = capsys.readouterr()
        assert CONTROLS.findall(out + errors) == [], command
        said.append(out)
    assert "\\x1b]0;owned\\x07" in said[0]
    # what a program reads is as it was
    records = [json.loads(line) for line in said[9].splitlines()]
    assert {record["id"] for record in records} == set(steering_data().ids.tolist())


def test_names_do_not_steer_a_real_terminal(tmp_path: Path) -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    screen.table(["name"], [[STEERING], ["a\nb"]])
    screen.heading(STEERING)
    screen.line(STEERING)
    for word in ("\x1b]", "\x07", "\x9b", "\x1b[2J", "\r\x08", "\u202e"):
        assert word not in terminal.getvalue()
    assert "\\x1b]0;owned" in terminal.getvalue()
    assert "a\\x0ab" in terminal.getvalue()


def test_words_on_the_dashboard_are_no_markup() -> None:
    from bokeh.document import Document

    hostile = "<script>alert('1')</script><img src=x onerror=\"alert(2)\">"
    runs = Runs()
    texts = dict.fromkeys(("who", "client", "stage", "unit", "note", "executor"), hostile)
    for key in (f"{hostile}1", f"{hostile}2"):
        numbers = {"workers": 1, "done": 1, "total": 2, "work": 1, "work_total": 2, "pairs": 0, "seconds": 1.0}
        message = {
            "run": key,
            "ended": False,
            "tiles": {},
            "objectives": {hostile: [1.0]},
            "results": [[hostile, 0, 0.5]],
        }
        runs.hear(texts | numbers | message)
    document = Document()
    make_document(runs, {}, document)
    texts_shown = [model.text for model in document.models if type(model).__name__ == "Div"]
    assert any("&lt;script&gt;" in text for text in texts_shown)
    assert not [text for text in texts_shown if "<script" in text or "<img" in text]


def test_every_dependency_has_a_lower_bound() -> None:
    """``.ci/run --lowest`` runs all tests with just these versions; one without a bound would be any version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = [each for group in groups for each in group if not each.startswith("cksc_dist[")]
    assert len(wanted) > 30
    assert [each for each in wanted if not re.search(r"[>=]=\d", each)] == []
