"""What is fuzzed: every reader of this package with a corpus of small good files, and the command line.

A target is made once in a folder of its own; each execution then spoils something and reads it. It returns whether the
input was taken, raises a named error where it was refused, and raises an AssertionError where what was taken is no
good. Deterministic: all choices come from the generator that an execution is given.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import zipfile
import zlib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

from cksc_dist import CKSC, SeriesSet, load_model, open_matrix
from cksc_dist.commands.matrix_file import read_matrix
from cksc_dist.commands.train import _read_rows
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.status import store_status
from cksc_dist.dist.verify import verify
from cksc_dist.dist.verify_files import verify_files
from cksc_dist.evaluate.protocol import Protocol, evaluate
from cksc_dist.evaluate.results import find_evaluations, told_by_table
from cksc_dist.evaluate.tables import comparison
from cksc_dist.io import read, write_npz
from cksc_dist.io.fetch import fetch
from cksc_dist.io.videos import find_videos, read_video
from cksc_dist.maths.matrix_checks import check_distances
from cksc_dist.spec import RunSpec
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder, json_record
from cksc_dist.store.kernel_copy import KernelCopy, find_copies
from cksc_dist.store.metadata import restore_metadata
from cksc_dist.store.series_files import open_series
from cksc_dist.store.table_files import record_table
from tests.faults.mutators import (
    NAMES,
    NUMBERS,
    VAST,
    bomb_npz,
    hollow_array,
    long_header,
    spoil,
    spoil_json,
    swell_array,
    swell_text,
    vast_variable,
    zipped,
)
from tests.small_stores import files_below, made_series

__all__ = ["ALL", "TARGETS", "Target"]

SERIAL = RunSpec(executor="serial")

TS = (
    b"# taps\n@problemName taps\n@timeStamps false\n@missing true\n@univariate false\n@dimensions 2\n"
    b"@equalLength true\n@seriesLength 3\n@classLabel true a b\n@data\n1,2,3:4,?,6:a\n7,8,9:1e3,-1,.5:b\n",
    b"@problemName x\n@classLabel false\n@data\n1,2\n3\n",
    b"@univariate true\n@equalLength false\n@classLabel true 1 2\n@data\n1,2,3:1\n-4e-3:2\n",
)
TS_TOKENS = (
    *(b"@data\n", b"@classLabel true a\n", b"@classLabel", b"@dimensions 99999999\n", b"@seriesLength 1\n", b":", b","),
    *(b"?", b"@univariate true\n", b"@timeStamps true\n", b"(", b"@targetLabel true\n", b"@", b"#", b"true", b"false"),
)
ARFF = (
    b"% taps\n@relation taps\n@attribute taps relational\n@attribute t0 numeric\n@attribute t1 numeric\n"
    b"@end taps\n@attribute class {a,'b c'}\n@data\n'1,2\\n3,?',a\n'5,?\\n7,?','b c'\n",
    b"@relation 'x y'\n@attribute a real\n@attribute \"b\" integer\n@attribute c {1,2}\n@data\n1,2,1\n-4e-3,?,2\n",
)
ARFF_TOKENS = (
    *(b"@data\n", b"@attribute", b"@attribute x {", b"}", b"relational", b"@end\n", b"numeric", b"'", b'"', b"\\n"),
    *(b"?", b",", b"{a}", b"@relation", b"%", b"' " * 500, b"," * 500, b"'\"" * 300),
)
KINECT = b"s01_e01\nwalk: 1 3\nsitDown: 2 3\nstandUp: NaN NaN\ns02_e01\nwalk: 1 2\n"
JOINTS = b"\n".join(f"{frame} ".encode() + b" ".join(b"%d.5" % k for k in range(60)) for frame in (1, 2, 2, 3))


def check_set(data: SeriesSet) -> None:
    """Fail where a set that was taken is not what the rest of the package counts on."""
    assert data.values.dtype == np.float64
    assert np.isfinite(data.values).all()
    assert data.offsets[0] == 0
    assert data.offsets[-1] == len(data.values)
    assert (data.offsets[1:] > data.offsets[:-1]).all()
    assert len(data.labels) == len(data.ids) == len(data) == len(set(data.ids.tolist()))
    for text in (*data.ids.tolist(), *data.labels.tolist(), *data.dim_names, data.name):
        str(text).encode()  # what is no text can be neither kept nor shown


class Target:
    """One reader.

    Parameters
    ----------
    box
        Folder that the target may write to.
    """

    share = 1
    """Of a thousand executions: quick readers get more, slow ones enough to tell: 20 (texts, the slowest, 5)."""

    def __init__(self, box: Path) -> None:
        self.box = box
        self.prepare()

    def prepare(self) -> None:
        """Make the corpus."""

    def execute(self, rng: Random) -> bool:
        """Spoil and read; return whether it was taken."""
        raise NotImplementedError

    def end(self) -> None:
        """Undo what was done outside of the box."""

    def put(self, name: str, content: bytes) -> Path:
        """Write a file of the box."""
        path = self.box / name
        path.write_bytes(content)
        return path


class Ts(Target):
    share = 215
    name, corpus, tokens = "taps.ts", TS, TS_TOKENS

    def execute(self, rng: Random) -> bool:
        path = self.put(self.name, spoil(rng, rng.choice(self.corpus), self.tokens, self.corpus))
        check_set(read(path, missing=rng.choice(("error", "interpolate"))))
        return True


class Arff(Ts):
    share = 200
    name, corpus, tokens = "taps.arff", ARFF, ARFF_TOKENS


class UtKinect(Target):
    share = 60

    def prepare(self) -> None:
        (self.box / "joints").mkdir()
        self.reset()

    def reset(self) -> None:
        self.put("actionLabel_modified.txt", KINECT)
        for name in ("s01_e01", "s02_e01"):
            self.put(f"joints/joints_{name}.txt", JOINTS)

    def execute(self, rng: Random) -> bool:
        self.reset()
        if rng.random() < 0.6:
            tokens = (b"s01_e01\n", b"walk: 1 3\n", b"../../x: 1 2\n", b"s99_e99\n", b"NaN", b": ", b"s1_e1")
            self.put("actionLabel_modified.txt", spoil(rng, KINECT, tokens))
        else:
            self.put("joints/joints_s01_e01.txt", spoil(rng, JOINTS, (b"nan", b" ", b"1 2 3\n")))
        check_set(read(self.box, centre=rng.choice(("hip", None))))
        return True


def npy(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


ODD: tuple[NDArray[Any], ...] = (
    *(np.array(5.0), np.zeros(0), np.zeros((0, 3)), np.zeros((2, 0)), np.zeros((2, 3, 0)), np.array([0, 2**63 - 1, 2])),
    *(np.array([0, 2**63 - 1, -(2**63) + 5, -5, 5]), np.array([2**64 - 1, 0, 5], np.uint64), np.array([1j, 2])),
    *(np.array(["a", "b"], object), np.array(["2020-01-01"], "M8[D]"), np.array([b"a", b"b"]), np.array([True, False])),
    *(np.array([1.0, np.nan]), np.array([np.inf, 1.0]), np.arange(5, dtype=">f8"), np.array([1e4000], np.longdouble)),
    *(np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), np.array(["a\0b", "\0"]), np.array(["../../x", "😀"])),
    *(
        np.array([0, 2, 5], np.float64),
        np.array([0, 2, 5], np.int8),
        np.array([[0, 2, 5]]),
        np.zeros((5, 2), np.float16),
    ),
    *(
        np.array(["x" * 5000, "y"]),
        np.array(["", ""]),
        np.zeros((1, 1, 1, 1)),
        np.array([5, 0]),
        np.array([0, 0, 5]),
    ),
    *(
        np.zeros((5, 2), "V8"),
        np.asfortranarray(np.ones((5, 2))),
        np.array([2**63], np.uint64),
        np.array(["a", "b", "c"]),
        np.empty(0, "U200"),
    ),
)
HEADER_TOKENS = (
    *(
        b"(99999999999,)",
        b"(1, 2, 3)",
        b"'descr'",
        b"'|O'",
        b"'<f8'",
        b"'<U9999999'",
        b"True",
        b"(",
        b")",
        b"{",
        b"\\N",
    ),
    *(b"\\d", b"'\\777'", b"__import__('os')", b"9" * 5000, b"(" * 150, b"lambda", b"-1", b"()", b"'V'", b"'<M8[s]'"),
)


def huge(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """Return a file that says of itself that it is large."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


def spoil_npy(rng: Random, content: bytes) -> bytes:
    if rng.random() < 0.1:
        if rng.random() < 0.2:
            return long_header(rng.choice((2**16, 2**16 + 1, 2**24)))
        if rng.random() < 0.5:  # which may be as many bytes as it says: none
            return huge(rng.choice(VAST), rng.choice(("<f8", "<i8", "|i1", "<U0", "<U0", "<U1", "|S0", "|V0")))
        return huge(rng.choice([(2**27,), (2**40,), (2**62,), (2**31, 2**31), (2**20, 2), (1, 2**28)])) + content[-16:]
    return spoil(rng, content, HEADER_TOKENS)


class Archive(Target):
    """Members of a .npz, spoilt inside the archive or as a whole."""

    arrays: tuple[dict[str, NDArray[Any]], ...] = ()

    def prepare(self) -> None:
        # made before memory is watched
        self.bombs = [bomb_npz(*sorted(self.arrays[0]), dtype=dtype) for dtype in ("uint8", "float64")]
        # very many series of one value each
        self.bombs += [bomb_npz(*sorted(self.arrays[-1]), dtype="int8", sides=(2**n, 1, 1)) for n in (20, 22, 24)]

    def archive(self, rng: Random) -> bytes:
        if rng.random() < 0.02:
            return rng.choice(self.bombs)
        arrays = dict(rng.choice(self.arrays))
        key = rng.choice(sorted(arrays))
        kind = rng.random()
        if kind < 0.35:
            arrays[key] = rng.choice(ODD)
            if rng.random() < 0.3:
                arrays[rng.choice(sorted(arrays))] = rng.choice(ODD)
        members = [(f"{name}.npy", npy(array)) for name, array in arrays.items()]
        if 0.35 <= kind < 0.75:
            at = rng.randrange(len(members))
            members[at] = (members[at][0], spoil_npy(rng, members[at][1]))
        if rng.random() < 0.1:
            members.append((rng.choice((rng.choice(NAMES).encode("utf-8", "ignore").decode(), members[0][0])), b"x"))
        methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
        whole = zipped(members, rng.choices(methods, (10, 10, 1, 1))[0])
        return spoil(rng, whole, (b"PK\1\2", b"PK\5\6", b"PK\3\4", b"\x06\x06")) if kind >= 0.7 else whole


class Npz(Archive):
    share = 100
    arrays = (
        {
            "values": np.arange(10.0).reshape(5, 2),
            "offsets": np.array([0, 2, 5]),
            "labels": np.array(["a", "b"]),
            "ids": np.array(["p", "q"]),
            "dim_names": np.array(["x", "y"]),
        },
        {"values": np.arange(5.0), "offsets": np.array([0, 2, 5], np.uint8), "labels": np.array([1, 2])},
        {"X": np.arange(24.0).reshape(2, 4, 3), "y": np.array(["a", "b"])},
        {"X": np.arange(8, dtype=np.int16).reshape(2, 4), "y": np.array([True, False])},
    )

    def execute(self, rng: Random) -> bool:
        check_set(read(self.put("taps.npz", self.archive(rng))))
        return True


def saved_mat(variables: dict[str, Any], compressed: bool = False, format: str = "5") -> bytes:
    content = io.BytesIO()
    savemat(content, variables, do_compression=compressed, format=format)
    return content.getvalue()


def spoil_mat(rng: Random, content: bytes) -> bytes:
    """Spoil a file that is not compressed; then now and then compress it, with the right checksum."""
    tokens = tuple(struct.pack("<II", code, size) for code in (1, 5, 6, 9, 14, 15, 99) for size in (0, 8, 56, 2**31))
    body = spoil(rng, content[128:], tokens)
    if rng.random() < 0.1:
        vast = vast_variable(rng, ("list_labels", "data_all", "TS", "v", "n"))
        body = vast + content[128:] if rng.random() < 0.5 else content[128:] + vast
    if rng.random() < 0.3:
        packed = zlib.compress(body)
        body = struct.pack("<II", 15, len(packed)) + packed
    whole = content[:128] + body
    return spoil(rng, whole) if rng.random() < 0.1 else whole


def cells(*items: Any) -> NDArray[Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


class Mat(Target):
    share = 120

    def prepare(self) -> None:
        structs = cells({"data": np.eye(3, 2), "class": 1}, {"data": np.ones((2, 2), np.int16), "class": 2})
        labels = cells("left", "right")
        self.corpus = [
            saved_mat({"data_all": structs}),
            saved_mat({"data_all": structs, "list_labels": labels}),
            saved_mat({"list_labels": np.array([[1, 2]]), "data_all": structs}),
        ]
        self.old = [
            saved_mat({"data_all": np.eye(3), "v": np.ones(2)}, format="4"),
            struct.pack("<5i", 50, -22, 1, 0, 2),
        ]

    def execute(self, rng: Random) -> bool:
        old = rng.random() < 0.1
        content = spoil(rng, rng.choice(self.old)) if old else spoil_mat(rng, rng.choice(self.corpus))
        check_set(read(self.put("signs.mat", content)))
        return True


class Schunk(Target):
    share = 25

    def prepare(self) -> None:
        sensors = cells(np.full((2, 2, 4), 7, np.uint8), np.full((1, 2, 4), 9, np.uint8))
        self.good = saved_mat({"TS": sensors})
        self.last = self.box / "DUCK"

    def execute(self, rng: Random) -> bool:
        shutil.rmtree(os.fsencode(self.last), ignore_errors=True)
        name = rng.choice(NAMES).encode("utf-8", "surrogatepass") if rng.random() < 0.3 else b"DUCK"
        if b"/" in name or b"\0" in name or name in (b"", b".", b"..") or len(name) > 200:
            name = b"\xff\xfe" if rng.random() < 0.5 else b" "
        self.last = self.box / os.fsdecode(name)
        self.last.mkdir()
        (self.last / "a.mat").write_bytes(self.good)
        (self.last / "b.mat").write_bytes(spoil_mat(rng, self.good))
        check_set(read(self.box, baseline=rng.choice(("first", None))))
        return True


class VideoArrays(Archive):
    share = 60
    arrays = ({"video": np.arange(60, dtype=np.uint8).reshape(3, 4, 5)}, {"v": np.ones((3, 4, 5, 3)), "n": np.zeros(3)})

    def prepare(self) -> None:
        super().prepare()
        self.mats = [saved_mat({"v": array}) for array in (np.ones((4, 5, 3)), np.ones((4, 5, 3, 3), np.uint8))]
        self.plain = [npy(array) for arrays in self.arrays for array in arrays.values()]

    def execute(self, rng: Random) -> bool:
        kind = rng.randrange(3)
        if kind == 0:
            path = self.put("v.npy", spoil_npy(rng, rng.choice(self.plain)))
        elif kind == 1:
            path = self.put("v.npz", self.archive(rng))
        else:
            path = self.put("v.mat", spoil_mat(rng, rng.choice(self.mats)))
        check_video(read_video(path, layout=rng.choice(("auto", "auto", "thw", "hwt", "thwc", "hwct"))))
        return True


def check_video(video: NDArray[Any]) -> None:
    assert video.ndim == 3
    assert min(video.shape) >= 3
    assert video.dtype in (np.uint8, np.float64)
    assert np.isfinite(video).all()


class Frames(Target):
    share = 30
    forms = ("png", "pgm", "bmp", "jpg", "tif")

    def prepare(self) -> None:
        from PIL import Image

        rng = np.random.default_rng(0)
        self.corpus: dict[str, list[bytes]] = {}
        for form in self.forms:
            for shape in ((6, 5), (6, 5, 3)):
                if form == "pgm" and len(shape) == 3:
                    continue
                content = io.BytesIO()
                names = {"jpg": "JPEG", "tif": "TIFF", "pgm": "PPM"}
                image = Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8))
                image.save(content, names.get(form, form.upper()))
                self.corpus.setdefault(form, []).append(content.getvalue())
        (self.box / "v").mkdir()

    def execute(self, rng: Random) -> bool:
        for old in (self.box / "v").iterdir():
            old.unlink()
        form = rng.choice(self.forms)
        good = rng.choice(self.corpus[form])
        content = spoil(rng, good, (struct.pack(">II", 2**16, 2**16), struct.pack("<II", 2**31, 1), b"99999 99999\n"))
        if form == "png" and rng.random() < 0.5:
            content = with_checksums(content)
        for number in range(2):
            self.put(f"v/{number}.{form}", good)
        self.put(f"v/{rng.choice((0, 2))}.{form}", content)
        check_video(read_video(self.box / "v"))
        return True


def with_checksums(content: bytes) -> bytes:
    """Return a PNG whose chunks have the checksums of what is in them."""
    parts, at = [content[:8]], 8
    while at + 12 <= len(content):
        size = min(int.from_bytes(content[at : at + 4], "big"), len(content) - at - 12)
        body = content[at + 4 : at + 8 + size]
        parts.append(size.to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big"))
        at += 12 + size
    return b"".join(parts)


class Film(Target):
    share = 20

    def prepare(self) -> None:
        import av

        self.corpus: dict[str, bytes] = {}
        for form, codec in (("avi", "mpeg4"), ("mp4", "mpeg4"), ("mkv", "ffv1"), ("mpg", "mpeg1video")):
            content = io.BytesIO()
            formats = {"mkv": "matroska", "mpg": "mpeg"}
            with av.open(content, "w", format=formats.get(form, form)) as container:
                stream: Any = container.add_stream(codec, rate=25)
                stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
                for level in range(5):
                    frame = av.VideoFrame.from_ndarray(np.full((16, 16), 40 * level, np.uint8), format="gray")
                    container.mux(stream.encode(frame.reformat(format="yuv420p")))
                container.mux(stream.encode())
            self.corpus[form] = content.getvalue()

    def execute(self, rng: Random) -> bool:
        form = rng.choice(sorted(self.corpus))
        path = self.put(f"v.{form}", spoil(rng, self.corpus[form], (struct.pack(">I", 2**31 - 1), b"moov", b"RIFF")))
        check_video(read_video(path))
        return True


class VideoNames(Target):
    """Folders of classes with strange names."""

    share = 10

    def execute(self, rng: Random) -> bool:
        shutil.rmtree(os.fsencode(self.box / "videos"), ignore_errors=True)
        for _ in range(2):
            parts = [rng.choice(NAMES).encode("utf-8", "surrogatepass").replace(b"\0", b"0") for _ in range(2)]
            # a name that the system takes; \xff is no text
            parts = [part.replace(b"/", b"\xff")[:200].strip(b".") or b"x" for part in parts]
            home = os.path.join(os.fsencode(self.box / "videos"), parts[0])
            os.makedirs(home, exist_ok=True)
            with open(os.path.join(home, parts[1] + rng.choice((b".npy", b".txt", b".AVI"))), "wb") as file:
                file.write(b"x")
        for video in find_videos(self.box / "videos"):
            video.id.encode()
            assert self.box in video.path.parents
        return True


class Fetch(Target):
    share = 20

    def prepare(self) -> None:
        self.text = b"@problemName taps\n@classLabel true a b\n@data\n1,2,3:a\n4,5,6:b\n"
        self.base = (self.box / "archive").as_uri()
        (self.box / "archive").mkdir()

    def execute(self, rng: Random) -> bool:
        shutil.rmtree(self.box / "sets", ignore_errors=True)
        members = [("taps_TRAIN.ts", self.text), ("taps_TEST.ts", self.text)]
        kind = rng.random()
        if kind < 0.4:
            trick = rng.choice(NAMES).encode("utf-8", "ignore").decode() or "x"
            name = rng.choice(
                (trick, f"{trick}/taps_TRAIN.ts", f"../{members[0][0]}", members[0][0], f"/{members[1][0]}")
            )
            members.insert(rng.randrange(3), (name, self.text))
        elif kind < 0.6:
            at = rng.randrange(2)
            members[at] = (members[at][0], spoil(rng, self.text, TS_TOKENS))
        methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
        whole = zipped(members, rng.choices(methods, (10, 10, 1, 1))[0])
        if kind > 0.5:
            whole = spoil(rng, whole, (b"PK\1\2", b"PK\5\6", b"PK\3\4", b"\xff\xff\xff\xff", b"../", b"taps_TEST.ts"))
        self.put("archive/taps.zip", whole)
        try:
            came = fetch("taps", self.box / "sets", base=self.base)
        finally:
            there = sorted(str(path.relative_to(self.box)) for path in self.box.rglob("*"))
            kept = ["archive", "archive/taps.zip"]
            files = [f"sets/taps/taps_{part}.ts" for part in ("TEST", "TRAIN")]
            assert there in (kept, [*kept, "sets", "sets/taps", *files]), there
        assert came is not None
        assert came.data is not None
        check_set(came.data)
        return True


class Rows(Target):
    """Row files of cksc train."""

    share = 40

    def prepare(self) -> None:
        self.matrix: Any = _Matrix(["s0", "s1", "../../x", "7", "😀", "a b"])
        self.text = "s0\n1\n\n../../x\n5\n😀\n".encode()
        arrays: tuple[NDArray[Any], ...] = (
            np.array([0, 2, 5]),
            np.array([True, False] * 3),
            np.array([1], np.uint8),
            *ODD,
        )
        self.arrays = [npy(array) for array in arrays]

    def execute(self, rng: Random) -> bool:
        if rng.random() < 0.6:
            numbers = tuple(f"{number}\n".encode() for number in NUMBERS)
            path = self.put("rows.txt", spoil(rng, self.text, (*numbers, b"\n", b"s1\n", "\u2028".encode())))
        else:
            content = rng.choice(self.arrays)
            content = zipped([("a.npy", content)]) if rng.random() < 0.1 else content
            path = self.put("rows.npy", spoil_npy(rng, content) if rng.random() < 0.7 else content)
        rows = _read_rows(path, self.matrix)
        assert rows.dtype == np.int64
        assert rows.ndim == 1
        assert len(rows) == len(set(rows.tolist())) > 0
        assert rows.min() >= 0
        assert rows.max() < len(self.matrix)
        return True


class _Matrix:
    def __init__(self, ids: list[str]) -> None:
        self.ids = np.array(ids)

    def __len__(self) -> int:
        return len(self.ids)


class Distances(Archive):
    """Ready matrices; what is taken goes into a store now and then."""

    share = 30
    good = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    arrays = (
        {"D": good},
        {"D": good.astype(np.float32), "y": np.array(["a", "b", "a"]), "ids": np.array(["p", "q", "r"])},
        {"D": good.astype(np.int32), "y": np.array([1, 2, 3])},
    )

    def prepare(self) -> None:
        super().prepare()
        self.texts = [b"0,1,2\n1,0,3\n2,3,0\n", b"# x\n0 1 2\n1 0 3\n2 3 0\n"]
        self.plain = [npy(self.good), npy(self.good.astype(">f4"))]

    def execute(self, rng: Random) -> bool:
        kind = rng.randrange(4)
        if kind == 0:
            path = self.put("D.npz", self.archive(rng))
        elif kind == 1:
            path = self.put("D.npy", spoil_npy(rng, rng.choice((*self.plain, *map(npy, ODD)))))
        else:
            path = self.put(f"D.{rng.choice(('csv', 'txt'))}", spoil(rng, rng.choice(self.texts), (b",", b" ", b"\n")))
        values, labels, ids = read_matrix(path)
        if rng.random() < 0.7:
            check_distances(values)
            return True
        shutil.rmtree(self.box / "D.zarr", ignore_errors=True)
        name = ingest_distances(values, self.box / "D.zarr", labels=labels, ids=ids)
        if rng.random() < 0.5:
            stored = open_matrix(self.box / "D.zarr", name)[:, :]
            assert np.isfinite(stored).all()
            assert np.allclose(stored, values, rtol=1e-4)
        return True


class Texts(Target):
    """Strange ids, labels and names: kept as they are through file and store, or refused."""

    share = 5

    def execute(self, rng: Random) -> bool:
        shutil.rmtree(self.box / "t.zarr", ignore_errors=True)
        some = lambda: rng.choice(NAMES) + rng.choice(("", "", rng.choice(NAMES)))  # noqa: E731
        ids, labels = [some(), some(), "c"], [some(), some(), "c"]
        dim_names, name = ((some(),) if rng.random() < 0.5 else ()), some()
        series = [np.arange(3.0 + k)[:, None] for k in range(3)]
        data = SeriesSet.from_list(series, labels, ids, name=name, dim_names=dim_names)
        given = (ids, labels, dim_names, name)
        assert (data.ids.tolist(), data.labels.tolist(), data.dim_names, data.name) == given
        write_npz(self.box / "t.npz", data)
        again = read(self.box / "t.npz")
        assert (again.ids.tolist(), again.labels.tolist(), again.dim_names) == given[:3]
        ingest(data, self.box / "t.zarr")
        stored = open_series(Folder(self.box / "t.zarr")).load()
        assert (stored.ids.tolist(), stored.labels.tolist(), stored.dim_names, stored.name) == given
        compute_distances(self.box / "t.zarr", run=SERIAL)
        xr = open_matrix(self.box / "t.zarr").to_xarray()
        assert xr["row"].values.tolist() == ids
        return True


class Stored(Target):
    """A folder of good files, one of which is spoilt at a time."""

    def keep(self, place: Path) -> None:
        self.place = place
        self.good = files_below(place)
        self.names = sorted(self.good)
        arrays = [name for name in self.names if b'"chunk_grid"' in self.good[name] and name.endswith("/zarr.json")]
        # made before memory is watched
        self.swollen = [
            swell(Random(k), json.loads(self.good[name]))
            for swell in (swell_array, swell_text, hollow_array)
            for k, name in enumerate(arrays * 8)
        ]
        self.arrays = arrays
        self.kept = self.state()

    def state(self) -> dict[str, tuple[int, int, int]]:
        """Return what tells a file that was written since; reading all of them would take longer than the work."""
        found = ((path, os.lstat(path)) for path in self.place.rglob("*") if path.is_symlink() or not path.is_dir())
        return {str(path.relative_to(self.place)): (at.st_ino, at.st_mtime_ns, at.st_size) for path, at in found}

    def restore(self) -> None:
        """Put back what was written, remove what was added."""
        there = self.state()
        if there.keys() - self.good.keys():  # files may be folders there
            shutil.rmtree(self.place)
            there = {}
        for name, content in self.good.items():
            if there.get(name) == self.kept[name]:
                continue
            path = self.place / name
            path.unlink(missing_ok=True)  # a pipe would never end
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            at = os.lstat(path)
            self.kept[name] = at.st_ino, at.st_mtime_ns, at.st_size

    def spoil_one(self, rng: Random) -> str:
        """Spoil a file, JSON more often than chunks; what carries a digest gets the right one in half of the cases."""
        documents = [name for name in self.names if name.endswith(".json")]
        name = rng.choice(documents if rng.random() < 0.8 else self.names)
        content = self.good[name]
        kind = rng.random()
        if kind < 0.05:
            (self.place / name).unlink(missing_ok=True)
            return name
        if kind < 0.06 and hasattr(os, "mkfifo"):
            (self.place / name).unlink(missing_ok=True)
            os.mkfifo(self.place / name)
            return name
        if kind < 0.15:
            return self.swell(rng)
        if kind < 0.75 and name.endswith(".json"):
            content = self.spoil_document(rng, content)
        else:
            content = spoil(rng, content, (b"[" * 5000, b'{"a":' * 3000, b"null", b"{}", b'"', b"1e999"))
        (self.place / name).unlink(missing_ok=True)  # by now it may be a pipe, which would be waited for
        (self.place / name).write_bytes(content)
        return name

    def swell(self, rng: Random) -> str:
        """Let an array ask for much memory."""
        number = rng.randrange(len(self.swollen))
        metadata, chunk = self.swollen[number]
        name = self.arrays[number % len(self.arrays)]
        about = self.place / name
        about.unlink(missing_ok=True)
        about.write_text(json.dumps(metadata))
        shutil.rmtree(about.parent / "c", ignore_errors=True)
        if chunk is not None:
            first = about.parent.joinpath("c", *("0" for _ in metadata["shape"]))
            first.parent.mkdir(parents=True)
            first.write_bytes(chunk)
        copies = self.good.get("metadata.json")
        if copies is not None and rng.random() < 0.7:  # as whoever makes such a store would
            value = json.loads(copies)["value"]
            value[name] = about.read_text()
            (self.place / "metadata.json").unlink(missing_ok=True)
            (self.place / "metadata.json").write_bytes(json_record(value))
        return name

    def spoil_document(self, rng: Random, content: bytes) -> bytes:
        value = json.loads(content)
        for _ in range(rng.choice((1, 1, 2))):
            signed = isinstance(value, dict) and set(value) == {"sha256", "value"}
            if signed and rng.random() < 0.9:
                value = json.loads(json_record(spoil_json(rng, value["value"])))
            else:
                value = spoil_json(rng, value)
        return json.dumps(value).encode()


class Model(Stored):
    share = 20

    def prepare(self) -> None:
        data = made_series(8)
        self.new = [np.ones((3, 2)), np.zeros((2, 2))]
        CKSC(sparsity=2, kernel="dtw", random_state=0, max_iter=3).fit(data, data.labels).save(self.box / "model")
        self.keep(self.box / "model")

    def execute(self, rng: Random) -> bool:
        self.restore()
        if rng.random() < 0.6:
            self.forge(rng)
        else:
            self.spoil_one(rng)
        model = load_model(self.place)
        # all that a user does with a model; what was taken must not end the process
        assert set(model.predict(self.new).tolist()) <= set(model.classes_.tolist())
        assert np.isfinite(model.predict_proba(self.new)).all()
        str(model.explain(self.new[0]))
        return True

    def forge(self, rng: Random) -> None:
        """Write a model whose digest is right, of arrays and settings that are not."""
        from cksc_dist.store.model_files import read_model, write_model

        name, arrays, settings = read_model(self.place)
        kind = rng.random()
        if kind < 0.5:
            settings = spoil_json(rng, settings)
        elif kind < 0.6:
            name = rng.choice(NAMES).encode("utf-8", "ignore").decode()
        else:
            key = rng.choice(sorted(arrays))
            array = arrays[key].copy()
            how = rng.randrange(8)
            if how == 0:
                del arrays[key]
            elif how == 1:
                arrays[key] = array[: len(array) // 2]
            elif how == 2:
                arrays[key] = array.astype(rng.choice(("f4", "i4", "u8", "i2", "?")))
            elif how == 3:
                arrays[key] = rng.choice([each for each in ODD if each.dtype.kind in "fiu" and each.itemsize <= 8])
            elif how == 4:
                arrays[key] = array[..., None]
            elif how == 5:
                arrays[key] = np.zeros(
                    rng.choice([sides for sides in VAST if 0 in sides and max(sides) <= 2**40]), array.dtype
                )
            elif array.size:
                odd = (
                    (-1, 2**31 - 1, -(2**31), 1000, 0) if array.dtype.kind in "iu" else (np.nan, np.inf, -1e308, 1e308)
                )
                array.flat[rng.randrange(array.size)] = rng.choice(odd)
                arrays[key] = array
        shutil.rmtree(self.place)
        if not isinstance(settings, dict) and rng.random() < 0.9:
            settings = {"parameters": settings}
        write_model(self.place, name, arrays, settings)


class Store(Stored):
    """A store with series, a matrix, marks of the ledger, a copy of a kernel, checkpoints and a model."""

    share = 20

    def prepare(self) -> None:
        from cksc_dist.models.training import train
        from cksc_dist.spec import ModelSpec

        place = self.box / "s.zarr"
        ingest(made_series(8), place)
        compute_distances(place, run=SERIAL)
        train(place, place / "models" / "m", spec=ModelSpec(sparsity=2, max_iter=2), place="disk")
        self.more = made_series(2, seed=1, prefix="t")
        folder = Folder(place)
        tiles = folder.read_json(next(f"ledger/{name}/tiles.json" for name in folder.names("ledger")))
        for name, entry in tiles.items():  # as they are before they are collected
            top = next(iter(folder.names("ledger")))
            folder.write_json(f"ledger/{top}/done/{name}.json", entry)
        Checkpoints(Folder(f"{place}/models/m.training/k"), "t").save(1, {"x": np.arange(3)}, {"beta": 0.5})
        record = {"host": "elsewhere", "process": 1, "born": 1.0, "token": "0" * 32, "purpose": "distances"}
        folder.write_json("lock.json", record | {"since": 1.0, "heartbeat": 1.0})
        self.keep(place)

    def execute(self, rng: Random) -> bool:
        self.restore()
        if rng.random() < 0.85:
            (self.place / "lock.json").unlink()
        kind = rng.randrange(9)
        name = self.spoil_one(rng)
        lock = self.place / "lock.json"
        if lock.exists() and (name != "lock.json" or kind >= 5):
            lock.unlink()  # a lease of another host would be watched for 20 s
        folder = Folder(self.place)
        if kind == 0:
            store_status(self.place)
        elif kind == 1:
            matrix = open_matrix(self.place)
            assert np.isfinite(matrix[:, :]).all()
            matrix.to_xarray()
        elif kind == 2:
            verify(self.place, sample=3, seed=0)
        elif kind == 3:
            open_series(folder).load()
        elif kind == 4:
            for key in find_copies(folder):
                copy = KernelCopy(folder, key)
                len(copy.missing())
            Checkpoints(Folder(f"{self.place}/models/m.training/k"), "t").latest()
        elif kind == 5:
            compute_distances(self.place, run=SERIAL)
        elif kind == 6:
            restore_metadata(folder)
        elif kind == 7:
            verify_files(folder)
        else:
            append(self.place, self.more, SERIAL)
        return True


class Evaluated(Stored):
    """A store with an evaluation: tables and single fits."""

    share = 5

    def prepare(self) -> None:
        place = self.box / "s.zarr"
        ingest(made_series(8), place)
        evaluate(place, ["1nn"], Protocol(n_splits=2), name="e", run=SERIAL)
        self.keep(place)

    def execute(self, rng: Random) -> bool:
        self.restore()
        folder, name = Folder(self.place), self.spoil_one(rng)
        while name.startswith(("distances/", "series/")):
            name = self.spoil_one(rng)
        if name.startswith("results/e/") and rng.random() < 0.8:  # as whoever makes such a table would
            record_table(folder, "e")
        if rng.random() < 0.3:
            verify_files(folder)
            return True
        for found in find_evaluations(folder):
            with told_by_table(folder, found.name):  # as a report does
                comparison(found.table)
        return True


class CommandLine(Target):
    """`main` with random and mutated arguments: codes 0, 1 (verify, doctor) and 2, no traceback, nothing beside."""

    share = 20

    def prepare(self) -> None:
        self.here = self.box / "a" / "b" / "here"
        self.here.mkdir(parents=True)
        data = made_series(6)
        write_npz(self.here / "d.npz", data)
        ingest(data, self.here / "s.zarr")
        compute_distances(self.here / "s.zarr", run=SERIAL)
        CKSC(sparsity=2, kernel="dtw", random_state=0, max_iter=2).fit(data, data.labels).save(self.here / "m")
        (self.here / "d.ts").write_bytes(TS[0])
        (self.here / "rows.txt").write_text("0\n1\n2\n3\n")
        (self.here / "D.csv").write_bytes(b"0,1\n1,0\n")
        self.good = files_below(self.here)
        os.environ["CKSC_FETCH_URL"] = (self.box / "nothing").as_uri()
        self.before = os.getcwd()
        os.chdir(self.here)

    def end(self) -> None:
        os.chdir(self.before)

    commands = (
        *(
            "info d.npz",
            "info d.ts --option missing=interpolate",
            "ingest d.npz new.zarr",
            "ingest new.zarr --distances D.csv",
        ),
        *(
            "plan s.zarr",
            "distances s.zarr --executor serial --window 0.1",
            "status s.zarr",
            "verify s.zarr --sample 2",
        ),
        *("append s.zarr d.npz --executor serial", "train s.zarr t --sparsity 2 --max-iter 2 --rows rows.txt"),
        *(
            "report m --output r.html",
            "predict m d.npz --json out.jsonl --executor serial",
            "predict m d.npz --explain",
        ),
        *(
            "fetch BasicMotions --to here",
            "fetch --list",
            "distances s.zarr --metric euclidean",
            "evaluate s.zarr --name",
        ),
        *(
            "train s.zarr t --hold-out 0.5 --train-on disk",
            "verify s.zarr --repair --seed 1",
            "demo --per-class",
            "--version",
        ),
        *("doctor --store", "plan s.zarr --memory 1GB --workers 2", "ingest d.npz d.ts s.zarr --replace", "--help"),
    )
    words = (
        *(
            "--debug",
            "--help",
            "-h",
            "--",
            "-",
            "--replace",
            "--option",
            "missing=error",
            "x=y",
            "=",
            "--dims",
            "each",
            "0,1",
        ),
        *(
            "--window",
            "--dtype",
            "float32",
            "--metric",
            "chi2",
            "--seed",
            "--sample",
            "--top",
            "--json",
            "--rows",
            "d.npz",
        ),
        *(
            "s.zarr",
            "m",
            "d.ts",
            "rows.txt",
            "D.csv",
            "s.zarr/series",
            "m/zarr.json",
            "--distances",
            "--output",
            "--name",
        ),
        *(
            "--sparsity",
            "--alpha",
            "--hold-out",
            "--max-iter",
            "--executor",
            "serial",
            "--bandwidth",
            "--factor",
            "--to",
        ),
        *(
            "--from",
            "file:///proc/nothing",
            "ftp://x",
            "http://[",
            "nosuch://x/y",
            "memory://x",
            "file://",
            "--mode",
            "--cost",
        ),
        *("/dev/null", "d.npz/x", "here", ".", "..", "new.zarr", "--memory", "--workers", "--all", "--list", "--title"),
    )

    def execute(self, rng: Random) -> bool:
        from cksc_dist.cli import main

        self.restore()
        arguments = self.arguments(rng)
        if unfit(arguments):
            arguments = ["info", *arguments[1:3]]
        err, out = io.StringIO(), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as end:
                code = end.code
        told = err.getvalue()
        may = (0, 1, 2) if {"verify", "doctor"} & set(arguments) else (0, 2)
        assert code in may, f"{arguments} ends with {code}"
        assert "--debug" in arguments or "Traceback" not in told, f"{arguments}: {told}"
        assert code != 2 or told.strip(), f"{arguments} fails without a word"
        self.check_written(arguments)
        return code == 0

    def arguments(self, rng: Random) -> list[str]:
        words = rng.choice(self.commands).split()
        for _ in range(rng.choice((0, 1, 1, 2, 2, 3))):
            at = rng.randrange(len(words) + 1)
            new = rng.choice((rng.choice(self.words), rng.choice(self.words), rng.choice(NUMBERS), rng.choice(NAMES)))
            kind = rng.randrange(4)
            if kind == 0:
                words[at : at + 1] = []
            elif kind == 1 and at:
                words[at : at + 1] = [new]
            else:
                words.insert(max(at, 1), new)
        return [word for word in words if not word.startswith(("/cksc", "~"))]

    def restore(self) -> None:
        for path in self.here.iterdir():
            if path.name not in ("s.zarr", "m") and path.name not in self.good:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        there = files_below(self.here)
        for name in there.keys() - self.good.keys():
            (self.here / name).unlink()
        for name, content in self.good.items():
            if there.get(name) != content:
                (self.here / name).parent.mkdir(parents=True, exist_ok=True)
                (self.here / name).write_bytes(content)
        for path in (*self.box.iterdir(), *(self.box / "a").iterdir(), *(self.box / "a" / "b").iterdir()):
            if path not in (self.box / "a", self.box / "a" / "b", self.here):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def check_written(self, arguments: list[str]) -> None:
        """Fail where a new file is neither named by an argument nor made from such a name."""
        named = [os.path.normpath(os.path.join(self.here, word)) for word in arguments if "\0" not in word]
        named += [
            os.path.normpath(os.path.join(self.here, word.partition("://")[2])) for word in arguments if "://" in word
        ]
        named += [os.path.normpath(os.path.join(one, two)) for one in named for two in arguments if "\0" not in two]
        for path in self.box.rglob("*"):
            own = str(path)
            if path.is_dir() or (path.is_relative_to(self.here) and str(path.relative_to(self.here)) in self.good):
                continue
            stem = own.removesuffix(".html")
            assert any(
                own == name or own.startswith((f"{name}/", f"{name}.")) or stem == name.removesuffix(".zarr")
                for name in named
            ), f"{arguments} wrote {own}"


def unfit(arguments: list[str]) -> bool:
    """Tell whether a command would start a cluster, talk to a network or run for seconds: others test these."""
    text = " ".join(arguments)
    whole = [word for word in ("demo", "doctor", "evaluate") if word in arguments]
    runs = whole and not any(word in arguments for word in ("--help", "-h"))
    return bool(runs) or any(word in text for word in ("--scheduler", "--executor dask", "s3:", "gs:", "http://1"))


class Broken(Target):
    """No reader: it fails in two ways, to see that this is told."""

    def execute(self, rng: Random) -> bool:
        self.box.joinpath("number").write_text(number := str(int(self.box.joinpath("number").read_text()) + 1))
        if number == "5":
            raise ZeroDivisionError
        if number == "9":
            os.abort()
        return True

    def prepare(self) -> None:
        self.put("number", b"0")


TARGETS: dict[str, type[Target]] = {
    "ts": Ts,
    "arff": Arff,
    "utkinect": UtKinect,
    "npz": Npz,
    "mat": Mat,
    "schunk": Schunk,
    "video-arrays": VideoArrays,
    "frames": Frames,
    "film": Film,
    "video-names": VideoNames,
    "fetch": Fetch,
    "rows": Rows,
    "distances": Distances,
    "texts": Texts,
    "model": Model,
    "store": Store,
    "evaluated": Evaluated,
    "cli": CommandLine,
}
ALL = TARGETS | {"broken": Broken}
