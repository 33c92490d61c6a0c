from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from cksc_dist import SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.cli import main
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.verify import independent_engine, verify
from cksc_dist.errors import CkscError, StoreError
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store import series_files
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Blocks, Ledger, checksum
from cksc_dist.store.matrix_files import MatrixFiles, find_matrices
from cksc_dist.store.series_files import open_series
from tests.small_stores import chunk_path, files_below, flip_bit, joined, made_series, matrix_of, small_tiles

N = 45
DATA = made_series(N)
SERIAL = RunSpec(executor="serial")
FEW = 10
"""Entries to compute again where these are not what is looked at."""


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store"
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch)
        ingest(DATA, path)
        compute_distances(path, run=SERIAL)
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


def files_of(store: Path) -> MatrixFiles:
    (files,) = find_matrices(Folder(store)).values()
    return files


def all_is_well(store: Path) -> None:
    faults, verdicts = verify(store, FEW)
    assert faults == []
    assert [verdict.ok for verdict in verdicts] == [True]
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(DATA))
    with xr.open_zarr(store, group=open_matrix(store).group, consolidated=False) as opened:
        assert opened["row"].values.tolist() == DATA.ids.tolist()
        assert opened["label"].values.tolist() == DATA.labels.tolist()


# nothing wrong


def test_a_store_in_which_all_is_well(store: Path) -> None:
    before = files_below(store)
    faults, (verdict,) = verify(store, sample=150, seed=1)
    assert faults == []
    assert verdict.ok
    assert (verdict.tiles, verdict.missing, verdict.bad, verdict.checked) == (6, 0, {}, 150)
    assert verdict.engine == "dtaidistance"
    assert verdict.worst < 1e-12
    assert files_below(store) == before


@pytest.mark.parametrize(
    "setting",
    [
        {"engine": "dtaidistance"},
        {"dtype": "float32"},
        {"mode": "independent"},
        {"window": 0.2},
        {"window": 2, "dims": (1,)},
        {"normalise": "z"},
        {"cost": "abs"},
        {"cost": "abs", "dims": (0,)},
        {"per_length": True},
    ],
    ids=str,
)
def test_every_setting_has_a_referee(store: Path, setting: dict[str, Any]) -> None:
    compute_distances(store, DistanceSpec(**setting), SERIAL)
    name = next(name for name, files in find_matrices(Folder(store)).items() if files.spec != DistanceSpec().resolved())
    _, (verdict,) = verify(store, sample=60, distances=name)
    assert verdict.ok
    assert verdict.checked == 60
    spec = DistanceSpec(**setting).resolved()
    assert verdict.engine == independent_engine(spec, len(spec.dims) if spec.dims else 2) != spec.engine


@pytest.mark.parametrize("metric", ["chi2", "chi", "euclidean"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_metrics_beside_dtw_have_a_referee(tmp_path: Path, metric: str, dtype: str) -> None:
    path = tmp_path / "store"
    ingest(made_series(20, length=(5, 5), positive=True), path)
    compute_distances(path, DistanceSpec(metric=metric, dtype=dtype), SERIAL)  # type: ignore[arg-type]
    _, (verdict,) = verify(path, sample=150)
    assert (verdict.ok, verdict.engine, verdict.checked) == (True, "NumPy", 150)


def test_float32_far_from_zero_is_no_damage(tmp_path: Path) -> None:
    """What rounding the series to float32 costs is part of the setting; no repair could mend it."""
    path = tmp_path / "store"
    ingest(SeriesSet.from_list([values + 1e5 for values in DATA]), path)
    compute_distances(path, DistanceSpec(dtype="float32"), SERIAL)
    _, (verdict,) = verify(path, sample=200)
    assert verdict.ok


def test_series_that_are_alike_or_nearly_so(tmp_path: Path) -> None:
    series = [*DATA.series[:10], *DATA.series[:10], *(values + 1e-9 for values in DATA.series[:10])]
    ingest(SeriesSet.from_list(series), tmp_path / "store")
    compute_distances(tmp_path / "store", run=SERIAL)
    _, (verdict,) = verify(tmp_path / "store", sample=300)
    assert verdict.ok


def test_the_seed_chooses_the_sample_and_zero_takes_none(store: Path) -> None:
    worst = [verify(store, sample=5, seed=seed)[1][0].worst for seed in (1, 1, 2, 3)]
    assert worst[0] == worst[1]
    assert len(set(worst)) > 1
    _, (none,) = verify(store, sample=0)
    assert (none.ok, none.checked, none.engine) == (True, 0, "none")


def test_no_more_entries_are_looked_at_than_there_are(tmp_path: Path) -> None:
    ingest(made_series(9), tmp_path / "store")
    compute_distances(tmp_path / "store", run=SERIAL)
    _, (all_of_them,) = verify(tmp_path / "store", sample=2**31)
    assert all_of_them.ok
    assert 0 < all_of_them.checked <= 9**2


def test_a_ready_matrix_is_read_but_not_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ingest_distances(pairwise_dtw(DATA), path, labels=DATA.labels, ids=DATA.ids)
    _, (verdict,) = verify(path, FEW)
    assert (verdict.ok, verdict.checked) == (True, 0)
    flip_bit(chunk_path(path, 0, 0))
    _, (verdict,) = verify(path, FEW)
    assert list(verdict.bad) == [(0, 0)]


# each kind of damage is found, by its tile and words, and mended


def value_changed(store: Path) -> None:
    files_of(store).array[3, 40] += 1e-6


def mirror_changed(store: Path) -> None:
    files_of(store).array[40, 3] += 1e-6


def diagonal_changed(store: Path) -> None:
    files_of(store).array[20, 20] = 1e-6


def half_of_a_diagonal_tile_changed(store: Path) -> None:
    files_of(store).array[20, 25] += 1e-6


def bit_flipped(store: Path) -> None:
    flip_bit(chunk_path(store, 1, 2))


def mirror_bit_flipped(store: Path) -> None:
    flip_bit(chunk_path(store, 2, 1))


def truncated(store: Path) -> None:
    path = chunk_path(store, 2, 2)
    path.write_bytes(path.read_bytes()[:30])


def emptied(store: Path) -> None:
    chunk_path(store, 2, 2).write_bytes(b"")


def of_another_size(store: Path) -> None:
    """A chunk that decodes, but not to a tile."""
    other = zarr.create_array(
        store.parent / "other.zarr", shape=(4, 4), chunks=(4, 4), dtype="f8", compressors=_codecs(), fill_value=1
    )
    other[...] = 2.0
    shutil.copy(store.parent / "other.zarr" / "c" / "0" / "0", chunk_path(store, 0, 1))


def _codecs() -> list[Any]:
    from cksc_dist.store.layout import compressors

    return compressors(8)


DAMAGE: dict[str, tuple[Callable[[Path], None], tuple[int, int], str]] = {
    "value": (value_changed, (0, 2), "chunk (0, 2) holds other values than were written"),
    "mirror": (mirror_changed, (0, 2), "chunk (2, 0) holds other values than were written"),
    "diagonal": (diagonal_changed, (1, 1), "chunk (1, 1)"),
    "half of a diagonal tile": (half_of_a_diagonal_tile_changed, (1, 1), "chunk (1, 1)"),
    "bit": (bit_flipped, (1, 2), "chunk (1, 2) is damaged"),
    "bit of the mirror": (mirror_bit_flipped, (1, 2), "chunk (2, 1) is damaged"),
    "truncated": (truncated, (2, 2), "chunk (2, 2)"),
    "emptied": (emptied, (2, 2), "chunk (2, 2)"),
    "of another size": (of_another_size, (0, 1), "chunk (0, 1)"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_tile_is_found_and_mended(store: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage, tile, words = DAMAGE[kind]
    before = files_below(store / "distances")
    damage(store)
    faults, (verdict,) = verify(store, FEW)
    assert faults == []
    assert list(verdict.bad) == [tile]
    assert verdict.bad[tile].startswith(words)
    assert not verdict.ok
    # as typed: the bad tile is listed, the exit code is not 0, and --repair mends it
    assert main(["verify", str(store), "--sample", "10"]) == 1
    out = capsys.readouterr().out
    assert f"  tile {tile}: {words}" in out
    assert f"mend it with: cksc verify {store} --repair" in out
    assert main(["verify", str(store), "--repair", "--sample", "10"]) == 0
    assert "1 of 6 tiles" in capsys.readouterr().out
    assert files_below(store / "distances") == before
    all_is_well(store)


@pytest.mark.parametrize("chunk", [(0, 0), (1, 2), (2, 1)])
def test_a_deleted_chunk_is_found_and_mended(
    store: Path, chunk: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(store / "distances")
    chunk_path(store, *chunk).unlink()
    _, (verdict,) = verify(store, FEW)
    assert not verdict.ok
    assert verdict.missing + len(verdict.bad) == 1
    assert main(["verify", str(store), "--sample", "10"]) == 1
    assert "cksc verify" in capsys.readouterr().out
    assert main(["verify", str(store), "--repair", "--sample", "10"]) == 0
    assert files_below(store / "distances") == before
    all_is_well(store)


def computed_wrongly(store: Path, tile: tuple[int, int], change: Callable[[Any], None]) -> None:
    """Write other values as a broken engine would have: with good checksums, mirror and ledger."""
    files = files_of(store)
    values = files.read_tile(tile)
    change(values)
    files.write_tile(tile, values)
    ledger = Ledger(Folder(store), files.fingerprint).load()
    ledger.entries[tile] = replace(ledger.entries[tile], checksum=checksum(values))
    ledger._write()


def zeros(values: Any) -> None:
    values[...] = 0.0  # as builds of dtaidistance have been seen to give


def a_little_off(values: Any) -> None:
    values *= 1 + 1e-7


def not_a_number(values: Any) -> None:
    values[...] = np.nan


@pytest.mark.parametrize("change", [zeros, a_little_off, not_a_number])
def test_values_that_were_computed_wrongly_are_found_by_the_other_engine(
    store: Path, change: Callable[[Any], None]
) -> None:
    computed_wrongly(store, (0, 1), change)
    _, (verdict,) = verify(store, sample=60, seed=0)
    assert list(verdict.bad) == [(0, 1)]
    if change is not not_a_number:
        assert "but dtaidistance finds" in verdict.bad[0, 1]
    assert main(["verify", str(store), "--repair", "--seed", "0", "--sample", "60"]) == 0
    all_is_well(store)


def test_a_diagonal_that_was_computed_wrongly(store: Path) -> None:
    computed_wrongly(store, (1, 1), lambda values: np.fill_diagonal(values, 0.5))
    _, (verdict,) = verify(store, sample=0)
    assert "on the diagonal" in verdict.bad[1, 1]


def test_a_tile_that_was_computed_without_symmetry(store: Path) -> None:
    def lean(values: Any) -> None:
        values[2, 5] += 1e-9

    computed_wrongly(store, (1, 1), lean)
    _, (verdict,) = verify(store, sample=0)
    assert verdict.bad[1, 1] == "chunk (1, 1) is not symmetric"


def test_more_bad_tiles_than_a_screen_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store"
    ingest(made_series(112), path)
    compute_distances(path, run=SERIAL)
    for i in range(7):
        for j in range(i, 7):
            flip_bit(chunk_path(path, i, j))
    assert main(["verify", str(path), "--sample", "10"]) == 1
    out = capsys.readouterr().out
    assert out.count("  tile (") == 20
    assert "and 8 more" in out


# metadata


def metadata_files(store: Path) -> list[str]:
    return [str(path.relative_to(store)) for path in sorted(store.rglob("zarr.json"))]


def test_there_are_metadata_files_of_every_level(template: Path) -> None:
    name = next((template / "distances").glob("*/")).name
    assert {
        "zarr.json",
        "series/zarr.json",
        "series/values/zarr.json",
        "distances/zarr.json",
        f"distances/{name}/zarr.json",
        f"distances/{name}/distance/zarr.json",
        f"distances/{name}/label/zarr.json",
    } <= set(metadata_files(template))


@pytest.mark.parametrize("fault", ["changed", "cut", "gone"])
@pytest.mark.parametrize(
    "name",
    [
        "zarr.json",
        "series/zarr.json",
        "series/values/zarr.json",
        "series/row/zarr.json",
        "distances/zarr.json",
        "distances/*/zarr.json",
        "distances/*/distance/zarr.json",
        "distances/*/label/zarr.json",
    ],
)
def test_damaged_metadata_is_found_and_mended(
    store: Path, name: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(store)
    (path,) = (found for found in store.glob(name) if found.is_file())
    text = path.read_text()
    if fault == "gone":
        path.unlink()
    else:
        path.write_text(text.replace("1", "2") if fault == "changed" and "1" in text else text[: len(text) // 2])
    assert main(["verify", str(store), "--sample", "10"]) == 1
    out = capsys.readouterr().out
    assert f"damaged: {path.relative_to(store)}" in out
    assert "--repair" in out
    assert main(["verify", str(store), "--repair", "--sample", "10"]) == 0
    assert f"restored {path.relative_to(store)}" in capsys.readouterr().out
    assert files_below(store) == before
    all_is_well(store)


@pytest.mark.parametrize("command", ["distances", "status", "plan"])
@pytest.mark.parametrize(
    "name", ["series/zarr.json", "series/offsets/zarr.json", "distances/*/zarr.json", "distances/*/distance/zarr.json"]
)
def test_other_commands_name_damaged_metadata_and_the_cure(
    store: Path, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = store.glob(name)
    path.write_text(path.read_text()[:-40])
    assert main([command, str(store)]) == 2
    error = capsys.readouterr().err
    assert "damaged" in error
    assert "--repair" in error or "--replace" in error


def test_the_copy_of_the_metadata_is_itself_looked_after(store: Path) -> None:
    flip_bit(store / "metadata.json")
    with pytest.raises(StoreError, match=r"metadata.json is damaged"):
        verify(store)
    (store / "metadata.json").unlink()
    # without copies nobody can vouch for the metadata: that must not pass for well
    faults, verdicts = verify(store, FEW)
    assert faults or not all(verdict.ok for verdict in verdicts)


def test_a_damaged_ledger_is_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ledger,) = (store / "ledger").rglob("tiles.json")
    flip_bit(ledger)
    assert main(["verify", str(store), "--sample", "10"]) != 0
    captured = capsys.readouterr()
    assert "tiles.json is damaged" in captured.out + captured.err


@pytest.mark.parametrize("name", ["row", "col", "label"])
def test_a_damaged_axis_of_the_matrix_is_found_and_mended(store: Path, name: str) -> None:
    """xarray cannot open a matrix with a damaged axis, nor tell rows by a changed one."""
    group = files_of(store).group
    flip_bit(store / group / name / "c" / "0")
    assert main(["verify", str(store), "--sample", "10"]) == 1
    assert main(["verify", str(store), "--repair", "--sample", "10"]) == 0
    all_is_well(store)


def test_an_axis_that_names_other_rows_is_found_and_mended(store: Path) -> None:
    axis = zarr.open_group(store, path=files_of(store).group, mode="r+")["row"]
    axis[3] = "somebody else"  # type: ignore[index]
    assert main(["verify", str(store), "--sample", "10"]) == 1
    assert main(["verify", str(store), "--repair", "--sample", "10"]) == 0
    all_is_well(store)


def test_repair_does_not_take_an_append_back(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the commit of the series, before copies of their metadata were taken."""

    class Stop(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    new = made_series(5, seed=4, prefix="new")
    with monkeypatch.context() as patch:
        patch.setattr(series_files, "record_metadata", stop)
        with pytest.raises(Stop):
            append(store, new, SERIAL)
    main(["verify", str(store), "--repair", "--sample", "10"])
    assert open_series(Folder(store)).n == N + 5
    compute_distances(store)
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, new)))


# series


@pytest.mark.parametrize("chunk", ["values/c/0/0", "offsets/c/0", "digest/c/0/0", "label/c/0", "row/c/0"])
@pytest.mark.parametrize("fault", ["flipped", "gone"])
def test_damaged_series_are_named_and_the_cure_works(
    store: Path, chunk: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A chunk that is gone reads as zeros, which no checksum of chunks tells."""
    path = store / "series" / chunk
    if fault == "gone":
        path.unlink()
    else:
        flip_bit(path)
    assert main(["verify", str(store), "--sample", "10"]) != 0
    captured = capsys.readouterr()
    assert f"series/{chunk.split('/')[0]} is damaged" in captured.out + captured.err
    assert "ingest the series again with --replace" in captured.out + captured.err
    assert ingest(DATA, store, replace=True)
    assert compute_distances(store).computed == 0  # tiles of unchanged series are kept
    all_is_well(store)


def changed_series(store: Path, row: int) -> None:
    values: Any = zarr.open_group(store, path="series", mode="r+")["values"]
    frame = int(DATA.offsets[row])
    values[frame, 0] = values[frame, 0] + 3.0


def test_changed_series_are_named_and_the_cure_works(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With good checksums of Zarr: only the digests tell."""
    changed_series(store, 7)
    assert main(["verify", str(store), "--sample", "10"]) != 0
    captured = capsys.readouterr()
    assert re.search(r"series 7\b.*s7", captured.out + captured.err)
    assert "--replace" in captured.out + captured.err  # --repair cannot mend what it does not have
    assert ingest(DATA, store, replace=True)
    all_is_well(store)


def test_repair_computes_nothing_from_damaged_series(store: Path) -> None:
    """Tiles that were right must not be replaced by what comes of wrong series."""
    changed_series(store, 7)
    before = files_below(store / "distances")
    code = main(["verify", str(store), "--repair", "--sample", "400", "--seed", "0"])
    assert code != 0
    assert files_below(store / "distances") == before


def test_distances_of_damaged_series_are_not_computed(store: Path) -> None:
    flip_bit(store / "series" / "values" / "c" / "0" / "0")
    chunk_path(store, 0, 1).unlink()
    with pytest.raises(CkscError, match=r"series/values is damaged .*ingest the series again with --replace"):
        compute_distances(store)
    assert not chunk_path(store, 0, 1).exists()


# unfinished and shrunk stores


def test_what_is_not_computed_yet_is_missing_not_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store"
    ingest(DATA, path)
    compute_distances(path, run=SERIAL)
    append_only_series(path)
    _, (verdict,) = verify(path, FEW)
    assert not verdict.ok
    assert verdict.bad == {}
    assert verdict.missing > 0
    assert main(["verify", str(path), "--sample", "10"]) == 1
    assert "tiles are not computed yet" in capsys.readouterr().out


def append_only_series(path: Path) -> None:
    from cksc_dist.store.series_files import append_series

    append_series(Folder(path), made_series(3, seed=8, prefix="late"))


@pytest.mark.parametrize("n", [40, 20])
def test_fewer_series_than_before_are_no_damage(store: Path, n: int) -> None:
    ingest(DATA[:n], store, replace=True)
    compute_distances(store, run=SERIAL)
    faults, (verdict,) = verify(store, FEW)
    assert faults == []
    assert verdict.bad == {}
    assert verdict.ok
    blocks = Blocks(files_of(store).grid, open_series(Folder(store)).digests)
    assert blocks.grid.n == n


def test_a_store_without_a_matrix_has_no_verdict(tmp_path: Path) -> None:
    ingest(DATA, tmp_path / "store")
    assert verify(tmp_path / "store") == ([], [])


def test_matrices_are_chosen_by_their_first_letters(store: Path) -> None:
    report = compute_distances(store, DistanceSpec(dtype="float32"), SERIAL)
    assert len(verify(store, sample=5)[1]) == 2
    _, (verdict,) = verify(store, sample=5, distances=report.fingerprint[:5])
    assert verdict.fingerprint == report.fingerprint
