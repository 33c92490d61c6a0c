"""Checkpoints of a training: whole arrays first, then one small file that points to them.

    FOLDER/checkpoint-<n>-<crc32c>.npz   state after alternation n; never pickled
    FOLDER/latest.json                   which one is the latest, its checksum, and the training it belongs to

A checkpoint counts once ``latest.json`` names it, which is one rename or one put. The last few are kept. A name is that
of the content: another training that is killed before its first one counts has overwritten nothing.
"""

from __future__ import annotations

import io
import re
from contextlib import suppress
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from cksc_dist.arrays import unpack_npz
from cksc_dist.errors import StoreError
from cksc_dist.store.folder import Folder

__all__ = ["Checkpoints", "read_records"]

KEPT = 2

NAME = re.compile(r"checkpoint-(\d{6,})-[0-9a-f]{8}\.npz")

Arrays = dict[str, NDArray[Any]]


_RECORD = {"training": str, "number": int, "crc32c": int, "settings": dict}


def read_records(folder: Folder) -> list[dict[str, Any]]:
    """Return what is known of the checkpoints in a folder, the newest first."""
    found = folder.read_json("latest.json") or {"records": []}
    records = found.get("records") if isinstance(found, dict) else None
    if not isinstance(records, list) or not all(_is_record(record) for record in records):
        raise StoreError(f"{folder.url}/latest.json names no checkpoints; begin again with --from-scratch")
    return records


def _is_record(record: Any) -> bool:
    whole = isinstance(record, dict) and all(isinstance(record.get(name), kind) for name, kind in _RECORD.items())
    # both become part of a name
    return whole and 0 <= record["number"] < 10**9 and 0 <= record["crc32c"] < 2**32


class Checkpoints:
    """Checkpoints of one training.

    Parameters
    ----------
    folder
        Where they are.
    training
        What the training is of: checkpoints of another one are not looked at.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> with TemporaryDirectory() as path:
    ...     checkpoints = Checkpoints(Folder(path), "these settings")
    ...     checkpoints.save(1, {"x": np.arange(3)}, {"beta": 0.5})
    ...     checkpoints.latest()
    (1, {'x': array([0, 1, 2])}, {'beta': 0.5})
    """

    def __init__(self, folder: Folder, training: str) -> None:
        self.folder, self.training = folder, training

    @staticmethod
    def _name(number: int, checksum: int) -> str:
        return f"checkpoint-{number:06d}-{checksum:08x}.npz"

    def save(self, number: int, arrays: Arrays, settings: dict[str, Any]) -> None:
        """Publish the state after an alternation."""
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        whole = content.getbuffer()
        checksum = google_crc32c.value(np.frombuffer(whole, np.uint8))
        name = self._name(number, checksum)
        self.folder.write(name, whole, durable=True)
        record = {"training": self.training, "number": number, "crc32c": checksum, "settings": settings}
        before = [old for old in self._records() if old["number"] < number][: KEPT - 1]
        self.folder.write_json("latest.json", {"records": [record, *before]}, durable=True)
        wanted = {self._name(kept["number"], kept["crc32c"]) for kept in (record, *before)}
        for other in self._saved():
            if other not in wanted:
                self.folder.remove(other)

    def _records(self) -> list[dict[str, Any]]:
        """Return what is known of the checkpoints of this training, the newest first."""
        return [record for record in read_records(self.folder) if record["training"] == self.training]

    def _saved(self) -> dict[str, int]:
        """Return the files of checkpoints, with the number of each."""
        found = {name: NAME.fullmatch(name) for name in self.folder.names("")}
        return {name: int(match[1]) for name, match in found.items() if match}

    def latest(self) -> tuple[int, Arrays, dict[str, Any]] | None:
        """Return the number, arrays and settings of the last one; None where there is none of this training."""
        records = self._records()
        for record in records:
            number = int(record["number"])
            content = self.folder.read(self._name(number, record["crc32c"]))
            if content is not None and google_crc32c.value(content) == record["crc32c"]:
                # whoever makes a file makes its checksum: what holds no arrays counts as damaged
                with suppress(ValueError):
                    return number, unpack_npz(content), record["settings"]
        if not records:
            return None
        raise StoreError(
            f"checkpoint {records[0]['number']} in {self.folder.url} is damaged or lost, and so are those before it; "
            "begin again with --from-scratch"
        )

    def names(self) -> dict[str, bool]:
        """Return the files of the checkpoints that count, and whether each is what was written."""
        found = {self._name(record["number"], record["crc32c"]): record["crc32c"] for record in self._records()}
        return {
            name: (content := self.folder.read(name)) is not None and google_crc32c.value(content) == checksum
            for name, checksum in found.items()
        }

    def clear(self) -> None:
        """Remove all of them."""
        self.folder.remove("latest.json")
        for name in self._saved():
            self.folder.remove(name)
