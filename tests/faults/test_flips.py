"""One bit of one file of a store is flipped: every way of reading gives the truth or a named error; verify finds it."""

from __future__ import annotations

import os
import random
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from zarr.errors import ZarrUserWarning

from cksc_dist.cli import main
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import CkscError, StoreError
from tests.faults.full_store import READERS, SLOW, make_descriptors, read_fits
from tests.small_stores import files_below, made_series

LONG = int(os.environ.get("CKSC_FLIPS", "1000"))
SEED = int(os.environ.get("CKSC_FLIPS_SEED", "0"))


CONCERNED = {
    "series": ("matrix", "xarray", "series", "tables"),
    "distances": ("matrix", "xarray"),
    "ledger": ("matrix",),
    "kernels": ("kernel",),
    "models": ("models", "tables"),
    "checkpoints": (),
    "fits": (),
    "results": ("tables",),
}
"""Ways of reading that a part of a store matters to, where not all are tried."""


class Truth(dict[str, Any]):
    """What each way of reading gives of a store that is whole; found when it is asked for."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, way: str) -> Any:
        copy = Path(shutil.copytree(self._store, self._store.parent / "copy" / "store"))  # some of them write
        self[way] = SLOW[way][0](copy) if way in SLOW else (READERS | {"fits": read_fits})[way](copy)
        shutil.rmtree(copy.parent)
        return self[way]


@pytest.fixture(scope="module")
def truth(full_store: Path) -> Truth:
    return Truth(full_store)


@pytest.fixture
def work(full_store: Path, tmp_path: Path) -> Iterator[Path]:
    yield Path(shutil.copytree(full_store, tmp_path / "store"))
    shutil.rmtree(tmp_path / "store")


def kind_of(name: str) -> str:
    """Return which part of a store a file belongs to."""
    top, *rest = name.split("/")
    if top == "models" and ".training/" in name:
        return "checkpoints"
    return top if rest else name


def wrong_numbers(store: Path, name: str, truth: Truth, *, slow: bool) -> list[str]:
    """Read a store in which a file is damaged in all ways, and return those that gave something else than the truth."""
    bad = []
    ways = dict(READERS)
    if not slow:
        ways = {way: read for way, read in READERS.items() if way in CONCERNED.get(kind_of(name), READERS)}
    if slow:
        ways |= {way: read for way, (read, parts) in SLOW.items() if name.startswith(parts)}
    for way, read in ways.items():
        place = store
        if way in SLOW:  # these write
            place = Path(shutil.copytree(store, store.parent / "copy" / "store"))
        try:
            if read(place) != truth[way]:
                bad.append(f"{way} gave something else")
        except CkscError:
            pass
        except Exception as error:
            bad.append(f"{way} ended in {type(error).__name__}: {error}")
        finally:
            if way in SLOW:
                shutil.rmtree(place.parent)
    # fits that are damaged count as none
    for found, expected in zip(read_fits(store), truth["fits"], strict=True):
        if any(repr(expected.get(key)) != repr(value) for key, value in found.items()):
            bad.append("fits gave something else")
    return bad


def told(store: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code of verify, and what it says."""
    capsys.readouterr()
    code = main(["verify", str(store), "--sample", "0"])
    said = capsys.readouterr()
    return code, said.out + said.err


def is_named(name: str, said: str, store: Path) -> bool:
    """Tell whether a file is named: itself, the chunk of a matrix that it is, or the axis or array of series.

    Of an axis and of an array of series, all of it is written anew.
    """
    said = said.replace(f"{store}/", "")
    if chunk := re.fullmatch(r"distances/\w+/distance/c/(\d+)/(\d+)", name):
        return f"chunk ({chunk[1]}, {chunk[2]})" in said
    if axis := re.fullmatch(r"distances/\w+/(row|col|label)/c/.*", name):
        return re.search(rf"axes: .*\b{axis[1]}\b", said) is not None
    if array := re.fullmatch(r"(series/\w+)/c/.*", name):
        name = array[1]
        if name == "series/values" and re.search(r"damaged: series \d+ \(", said):
            return True  # just which of them
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/-]|\.\w)", said) is not None


def flips(names: list[str], sizes: dict[str, int], count: int, seed: int) -> list[tuple[str, int]]:
    """Return files and bits to flip: every kind, then every file has its turn, small ones as often as large ones."""
    rng = random.Random(seed)
    shuffled = rng.sample(names, len(names))
    order = list({(kind_of(name), name.endswith("zarr.json")): name for name in shuffled}.values())
    while len(order) < count:
        order += rng.sample(names, len(names))
    return [(name, rng.randrange(8 * sizes[name])) for name in order[:count]]


def try_flips(store: Path, count: int, truth: Truth, capsys: Any, *, slow_every: int) -> Counter[str]:
    """Flip bits one at a time, each put back before the next; fail with all that went wrong."""
    before = files_below(store)
    names = [name for name, content in before.items() if content]
    failed, tried = [], Counter[str]()
    for number, (name, bit) in enumerate(flips(names, {key: len(value) for key, value in before.items()}, count, SEED)):
        content = bytearray(before[name])
        content[bit // 8] ^= 1 << bit % 8
        (store / name).write_bytes(content)
        tried[kind_of(name)] += 1
        bad = wrong_numbers(store, name, truth, slow=number % slow_every == 0)
        code, said = told(store, capsys)
        if code == 0:
            bad.append("verify says that all is well")
        elif not is_named(name, said, store):
            bad.append(f"verify does not name it: {said[:300]}")
        for each in bad:
            failed.append(f"bit {bit} of {name}: {each}")
            with capsys.disabled():  # a long run tells at once
                print(f"\n{failed[-1]}")
        (store / name).write_bytes(before[name])
    assert files_below(store) == before, "a way of reading has written"
    assert not failed, "\n".join(failed)
    return tried


def test_a_flipped_bit_gives_no_wrong_number_and_verify_finds_it(
    work: Path, truth: Truth, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(work, capsys)
    assert (code, "unknown" in said) == (0, False), said
    tried = try_flips(work, 30, truth, capsys, slow_every=15)
    assert set(tried) >= {kind_of(name) for name in files_below(work)}


@pytest.mark.campaign
def test_a_thousand_flipped_bits(work: Path, truth: Truth, capsys: pytest.CaptureFixture[str]) -> None:
    tried = try_flips(work, LONG, truth, capsys, slow_every=4)
    with capsys.disabled():
        print(f"\n{sum(tried.values())} flips in {len(files_below(work))} files: {dict(tried)}")


def test_other_series_never_take_the_place_of_damaged_ones(work: Path) -> None:
    """What cannot be read may be mended; only who asks for it writes over it."""
    other, rng = made_series(12, seed=9), random.Random(SEED)
    before = files_below(work)
    for name in ("zarr.json", "metadata.json", *(name for name in before if name.startswith("series/"))):
        for bit in rng.sample(range(8 * len(before[name])), 4):
            content = bytearray(before[name])
            content[bit // 8] ^= 1 << bit % 8
            (work / name).write_bytes(content)
            with pytest.raises(CkscError):
                ingest(other, work)
            assert files_below(work) == before | {name: bytes(content)}, f"bit {bit} of {name}"
        (work / name).write_bytes(before[name])
    for name in ("series/zarr.json", "series/row/zarr.json"):
        (work / name).unlink()
        with pytest.raises(CkscError):
            ingest(other, work)
        (work / name).write_bytes(before[name])
    with pytest.raises(StoreError, match="holds other series; add these with cksc append"):
        ingest(other, work)
    assert ingest(other, work, replace=True)


def some_of_each(store: Path, every: bool) -> list[str]:
    """Return all files, or one of each part."""
    names = list(files_below(store))
    if every:
        return names
    rng, found = random.Random(SEED), []
    for kind in sorted({kind_of(name) for name in names}):
        own = [name for name in names if kind_of(name) == kind]
        found += rng.sample(own, min(1, len(own)))
    return found


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)], ids=["some", "all"])
@pytest.mark.parametrize("fault", ["cut", "emptied", "gone"])
def test_a_file_that_is_cut_or_lost(
    work: Path, truth: Truth, capsys: pytest.CaptureFixture[str], fault: str, every: bool
) -> None:
    before = files_below(work)
    failed = []
    for number, name in enumerate(some_of_each(work, every)):
        content, path = before[name], work / name
        if fault == "gone":
            path.unlink()
        else:
            path.write_bytes(content[: len(content) // 2] if fault == "cut" else b"")
        bad = wrong_numbers(work, name, truth, slow=every and number % 3 == 0)
        code, said = told(work, capsys)
        may_be_lost = fault == "gone" and ("/done/" in name or "ridge-" in name or name.endswith("/fits.json"))
        if may_be_lost:  # these are as if they had never been there
            bad = [each for each in bad if not each.startswith("kernel gave")]
        elif code == 0:
            bad.append(f"verify says that all is well: {said}")
        elif name.endswith("/tiles.json") and fault == "gone":
            if "tiles are not computed yet" not in said:  # of a ledger that is not there, nobody knows more
                bad.append(f"verify does not tell of the tiles: {said[:300]}")
        elif not is_named(name, said, work):
            bad.append(f"verify does not name it: {said[:300]}")
        failed += [f"{name}: {each}" for each in bad]
        path.write_bytes(content)
    assert not failed, "\n".join(failed)


def test_an_additional_file_is_named_and_does_no_harm(
    work: Path, truth: Truth, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {path.parent for path in work.rglob("*") if path.is_file()}
    added = [folder / f"strange-{number}" for number, folder in enumerate(sorted(folders))]
    for path in added:
        path.write_bytes(b"nobody knows")
    code, said = told(work, capsys)
    lines = [line.split()[1] for line in said.splitlines() if line.startswith("unknown: ")]
    assert (code, sorted(lines)) == (0, sorted(str(path.relative_to(work)) for path in added))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZarrUserWarning)  # xarray lists what is there
        for name, read in READERS.items():
            assert read(work) == truth[name]


def test_a_flipped_bit_of_descriptors_is_made_good(tmp_path: Path) -> None:
    read = make_descriptors(tmp_path)
    truth = read()
    (block,) = (tmp_path / "blocks").iterdir()
    content = block.read_bytes()
    rng = random.Random(SEED)
    for _ in range(40):
        bit = rng.randrange(8 * len(content))
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        block.write_bytes(changed)
        assert read() == truth, f"bit {bit}"
