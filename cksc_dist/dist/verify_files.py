"""Check what a store holds beside series and matrices: ledgers, kernel copies, models, trainings, fits, tables.

Every file of a store is read by somebody: those of series and matrices by `cksc_dist.dist.verify`, all others here.
What is left over is named, because it is no part of the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cksc_dist.errors import ModelFileError, StoreError
from cksc_dist.processes import SIGNATURE
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import ARRAY, SUMS, TOP, KernelCopy
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix_files import MatrixFiles, find_matrices
from cksc_dist.store.model_files import POINTER, files_of_a_model
from cksc_dist.store.series_files import GROUP
from cksc_dist.store.table_files import RESULTS, ROOT, check_table, table_files

__all__ = ["Files", "verify_files"]

MODELS, FITS = "models", "fits"
TRAINING = ".training"
LOCK = "lock.json"

_LIST = re.compile(r"(.+)\.files\.json")


class Files(NamedTuple):
    """What was found.

    Parameters
    ----------
    damaged
        What is wrong with which file, and what to do.
    unknown
        Files that are no part of the store.
    """

    damaged: list[str]
    unknown: list[str]


def verify_files(store: Folder) -> Files:
    """Read all files of a store that are not those of series and matrices; these must be well."""
    there = set(store.files(""))
    found = _Found(store, there)
    matrices = find_matrices(store)
    found.known |= {"zarr.json", "metadata.json", "distances/zarr.json"}
    for lock in [key for key in there if key.rsplit("/", 1)[-1] == LOCK]:
        found.json(lock, "the next who writes removes it")
    for group in (GROUP, *(files.group for files in matrices.values())):
        _group(found, group)
    for name, files in matrices.items():
        _ledger(found, name, files)
    for key in sorted({key.split("/")[1] for key in there if key.startswith(f"{TOP}/") and key.count("/") > 1}):
        _kernel_copy(found, key)
    for name in sorted({key.split("/")[1] for key in there if key.startswith(f"{MODELS}/") and key.count("/") > 1}):
        _training(found, name) if name.endswith(TRAINING) else _model(found, name)
    _tables(found)
    for key in sorted(key for key in there if key.startswith(f"{FITS}/")):
        if re.fullmatch(rf"{FITS}/[^/]+/(fits|done/[^/]+)\.json", key):
            found.json(key, "run the evaluation again: what it held is computed again")
    return Files(found.damaged, sorted(there - found.known))


class _Found:
    """Damage so far, and files that belong to something."""

    def __init__(self, store: Folder, there: set[str]) -> None:
        self.store, self.there = store, there
        self.damaged: list[str] = []
        self.known: set[str] = set()

    def say(self, what: str, cure: str) -> None:
        """Tell of damage."""
        self.damaged.append(f"{what}; {cure}")

    def json(self, key: str, cure: str) -> Any:
        """Return the content of a JSON file with a digest; None where it is damaged, which is told."""
        self.known.add(key)
        try:
            return self.store.read_json(key)
        except StoreError:
            self.say(f"{key} is not what was written", cure)
            return None

    def all(self, top: str, names: Iterable[str], cure: str) -> None:
        """Tell of damaged files below a folder."""
        for name in names:
            self.say(f"{top}/{name} is not there, or not what was written", cure)


def _group(found: _Found, group: str) -> None:
    """Take up the metadata of a group, and the chunks that its arrays may have by the copies of it."""
    chunks: dict[str, list[str]] = {}
    for key in found.there:
        array, slash, place = key.partition("/c/")
        if slash and array.startswith(f"{group}/"):
            chunks.setdefault(f"{array}/zarr.json", []).append(place)
    for key, text in (found.store.read_json("metadata.json") or {}).items():
        if not key.startswith(f"{group}/"):
            continue
        found.known.add(key)
        try:
            counts = _chunk_counts(json.loads(text))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
            found.say(f"the copy of {key} in metadata.json describes no array", "restore it from a copy of the store")
            continue
        found.known |= {
            f"{key.removesuffix('zarr.json')}c/{place}" for place in chunks.get(key, ()) if _is_place(place, counts)
        }


def _chunk_counts(metadata: dict[str, Any]) -> list[int]:
    """Return how many chunks an array has along each of its axes; a group has no axes."""
    if metadata["node_type"] != "array":
        return []
    edges = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    return [-(-size // edge) for size, edge in zip(metadata["shape"], edges, strict=True)]


def _is_place(place: str, counts: list[int]) -> bool:
    """Tell whether a chunk of that name is one of so many."""
    parts = place.split("/")
    return len(parts) == len(counts) and all(
        re.fullmatch("0|[1-9][0-9]{0,17}", part) is not None and int(part) < count
        for part, count in zip(parts, counts, strict=True)
    )


def _ledger(found: _Found, name: str, files: MatrixFiles) -> None:
    top, again = f"ledger/{name}", f"remove it, and run cksc distances {found.store.typed} again"
    if f"{top}/tiles.json" in found.there:
        found.json(f"{top}/tiles.json", again)
    for key in sorted(key for key in found.there if re.fullmatch(rf"{top}/done/\d+\.\d+\.json", key)):
        # a tile of the collected ledger may have a mark as well, which nobody would miss
        if found.json(key, again) is not None and Ledger(files.folder, name).read_mark(_tile_of(key)) is None:
            found.say(f"{key} is no mark of a tile", again)


def _tile_of(key: str) -> tuple[int, int]:
    i, j, _ = key.rsplit("/", 1)[-1].split(".")
    return int(i), int(j)


def _kernel_copy(found: _Found, key: str) -> None:
    top = f"{TOP}/{key}"
    cure = f"remove {found.store.url}/{top}: training writes it again"
    if f"{top}/about.json" not in found.there:
        found.say(f"{top}/about.json is lost, or its writer was cut off", cure)
        return
    if found.json(f"{top}/about.json", cure) is None:
        return
    try:
        copy = KernelCopy(found.store, key)
    except StoreError as error:
        found.say(str(error), cure)
        return
    if not copy.listed:
        found.say(f"{top} is of an older release, which kept no digests", cure)
    found.known |= {f"{top}/{name}" for name in copy.listed}
    for number in range(len(copy.edges)):
        found.known |= {f"{top}/{ARRAY}/c/{number}/0", f"{top}/{SUMS}/{number}"}
    found.known |= {each for each in found.there if re.fullmatch(rf"{top}/ridge-[^/]+\.json", each)}
    found.all(top, copy.faults(), cure)


def _model(found: _Found, name: str) -> None:
    top = f"{MODELS}/{name}"
    if re.search(rf"\.{SIGNATURE}\.[0-9a-f]{{32}}\.(partial|replaced)$", name):
        return  # what a writer was cut off at
    url, cure = f"{found.store.url}/{top}", "restore it from a copy, or remove the model and train it again"
    try:
        place, names, bad = files_of_a_model(url)
        inside = top + place.url.removeprefix(url)
        found.all(inside, bad, cure)
    except (StoreError, ModelFileError) as error:
        names = []
        found.say(f"{top} is damaged ({error})", cure)
    if names:
        found.known |= {f"{top}/{POINTER}", *(f"{inside}/{name}" for name in names)}
    else:
        found.known |= {key for key in found.there if key.startswith(f"{top}/")}


def _training(found: _Found, name: str) -> None:
    top, cure = f"{MODELS}/{name}", "begin that training again with --from-scratch"
    for own in sorted({key.split("/")[2] for key in found.there if key.startswith(f"{top}/") and key.count("/") > 2}):
        place = f"{top}/{own}"
        if f"{place}/latest.json" not in found.there:
            found.say(f"{place}/latest.json is lost, or was cut off before the first checkpoint counted", cure)
        elif found.json(f"{place}/latest.json", cure) is not None:
            try:
                names = Checkpoints(Folder(f"{found.store.url}/{place}"), own).names()
            except StoreError as error:
                found.damaged.append(str(error))
                continue
            found.known |= {f"{place}/{each}" for each in names}
            found.all(place, [each for each, sound in names.items() if not sound], cure)


def _tables(found: _Found) -> None:
    cure = "run the evaluation again: fits that are done are not repeated"
    inside = {key.removeprefix(f"{RESULTS}/") for key in found.there if key.startswith(f"{RESULTS}/")}
    if inside:
        found.known.add(f"{RESULTS}/zarr.json")
        if found.store.read(f"{RESULTS}/zarr.json") != ROOT:
            found.say(f"{RESULTS}/zarr.json is lost, or not what was written", cure)
    names = {key.split("/")[0] for key in inside if "/" in key}
    for name in sorted(names | {match[1] for key in inside if (match := _LIST.fullmatch(key))}):
        found.known.add(f"{RESULTS}/{name}.files.json")
        try:
            found.known |= set(table_files(found.store, name))
            check_table(found.store, name)
        except StoreError as error:
            found.known |= {f"{RESULTS}/{key}" for key in inside if key.startswith(f"{name}/")}
            found.damaged.append(str(error))
