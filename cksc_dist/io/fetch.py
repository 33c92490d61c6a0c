"""Data sets of the UEA archive, fetched from the network: one zip archive each, of which two files are kept.

A server and what it sends are not trusted. Nothing in an archive chooses a path: the two files are written under names
of our own, into a folder beside the target that takes its place when all has come, is whole, and can be read.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from cksc_dist.errors import CkscError, InputError
from cksc_dist.io.read import read
from cksc_dist.processes import SIGNATURE, is_of_the_dead, signature
from cksc_dist.series import SeriesSet

__all__ = ["ARCHIVE", "NAMES", "VARIABLE", "FetchError", "Fetched", "fetch"]

ARCHIVE = "https://timeseriesclassification.com/aeon-toolkit"
"""Where the archive's maintainers keep NAME.zip."""
VARIABLE = "CKSC_FETCH_URL"
"""Names another address, in the environment."""
NAMES = (
    *("ArticularyWordRecognition", "AtrialFibrillation", "BasicMotions", "CharacterTrajectories", "Cricket"),
    *("DuckDuckGeese", "EigenWorms", "Epilepsy", "ERing", "EthanolConcentration", "FaceDetection"),
    *("FingerMovements", "HandMovementDirection", "Handwriting", "Heartbeat", "InsectWingbeat", "JapaneseVowels"),
    *("Libras", "LSST", "MotorImagery", "NATOPS", "PEMS-SF", "PenDigits", "PhonemeSpectra", "RacketSports"),
    *("SelfRegulationSCP1", "SelfRegulationSCP2", "SpokenArabicDigits", "StandWalkJump", "UWaveGestureLibrary"),
)
"""The 30 multivariate sets (Bagnall et al. 2018); the archive has others, which can be fetched as well."""

MOST_PACKED = 2**32
"""Bytes of an archive."""
MOST_UNPACKED = 2**34
"""Bytes of the two files together."""
SWELLING = 50
"""So many times its size an archive may unpack to: numbers as text unpack to a few times."""
SMALL = 2**24
"""Files below this are no bomb, however well they were packed: they are read, and text takes more memory than bytes."""
MOST_LISTED = 2**24
"""Bytes of an archive's table of contents."""
BLOCK = 2**18
"""Bytes to read at a time."""
TIMEOUT = 30.0
"""Seconds that a server may keep silent."""
PATIENCE = 60.0
"""Seconds after which it is seen whether a server sends at a reasonable rate."""
SLOWEST = 1000.0
"""Bytes a second that are reasonable."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_SUFFIXES = (".ts", ".arff")  # in the order in which a folder is read
_WEB = ("https", "http")
_NOTHING_KEPT = "nothing is kept"

Progress = Callable[[int, int | None], None]
"""Hears the bytes that have come, and of how many; None: the server does not say."""


class FetchError(CkscError, RuntimeError):
    """A data set that cannot be had: no network, no such set, or an archive that is damaged or not to be trusted."""


@dataclass(frozen=True)
class Fetched:
    """A data set that has come.

    Parameters
    ----------
    folder
        Where it is; `cksc_dist.SeriesSet.read` takes it.
    url
        Where it came from.
    size, sha256
        Bytes of the archive, and their digest.
    data
        Its series; None where memory does not hold them.
    note
        What to know when it is read; empty: nothing.
    """

    folder: Path
    url: str
    size: int
    sha256: str
    data: SeriesSet | None
    note: str = ""


def fetch(
    name: str,
    to: str | Path = ".",
    *,
    base: str | None = None,
    replace: bool = False,
    timeout: float = TIMEOUT,
    progress: Progress | None = None,
) -> Fetched | None:
    """Fetch a data set of the UEA archive into the folder ``to/name``, whole or not at all.

    Parameters
    ----------
    name
        Its name in the archive, as in ``NAMES``.
    to
        Folder in which that of the set is made.
    base
        Address below which ``name.zip`` lies: http, https or file. None: that in the environment variable
        ``CKSC_FETCH_URL``, otherwise that of the archive.
    replace
        Put it in the place of files that are there.
    timeout
        Seconds that a server may keep silent.
    progress
        Hears how many bytes have come.

    Returns
    -------
    Fetched or None
        None: the set is there already, and nothing was done.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> text = "@problemName taps\\n@classLabel true a b\\n@data\\n1,2,3:a\\n4,5,6:b\\n"
    >>> with TemporaryDirectory() as folder:
    ...     with ZipFile(Path(folder, "taps.zip"), "w") as archive:
    ...         archive.writestr("taps_TRAIN.ts", text)
    ...         archive.writestr("taps_TEST.ts", text)
    ...     came = fetch("taps", Path(folder, "sets"), base=Path(folder).as_uri())
    ...     came.data, sorted(file.name for file in came.folder.iterdir())
    (SeriesSet('taps': 4 series, 1 dims, length 3, 2 classes), ['taps_TEST.ts', 'taps_TRAIN.ts'])
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no name of a data set: letters, digits, _ and - only; cksc fetch --list shows names"
        )
    url = _address(base, name)
    target = Path(to) / name
    if _is_there(target, replace):
        _remove_left_over(target)
        return None
    with _opened(url, name, timeout) as (stream, total), _stage(target) as stage:
        packed, fresh = stage / "packed", stage / "fresh"
        size, sha256 = _download(stream, total, packed, url, progress)
        fresh.mkdir()
        _unpack(packed, fresh, name, url)
        data, note = _read(fresh, url)
        _put(fresh, target, stage / "old", replace)
    return Fetched(target, url, size, sha256, data, note)


def _files(name: str, suffix: str) -> list[str]:
    return [f"{name}_TRAIN{suffix}", f"{name}_TEST{suffix}"]


def _address(base: str | None, name: str) -> str:
    """Return the address of an archive, once it is one that may be opened."""
    given = base or os.environ.get(VARIABLE) or ARCHIVE
    scheme, behind, rest = given.partition("://")
    # looked at before anything else: an error that repeats an address would tell what is in it
    if behind and scheme != "file" and re.search("[@?#]", rest):
        raise InputError(
            f"the address holds a key or password, or looks so (it may have no @, ? or #; /{name}.zip is put behind "
            f"it); give --from or {VARIABLE} without it"
        )
    shown = "" if re.search("[@?#]", given) else f" {given!r}"
    try:
        parts = urlsplit(given)
        parts.port  # noqa: B018 - is checked when it is asked for
    except ValueError:
        # what stands in the place of a port may be a secret, which the error repeats
        raise InputError(f"the address is none (its host or port cannot be read); mend --from or {VARIABLE}") from None
    local = parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if not local and not (parts.scheme in _WEB and parts.hostname):
        folder = f"; for this folder: {Path(given).absolute().as_uri()}" if Path(given).is_dir() else ""
        raise InputError(
            f"the address{shown} must begin with https://HOST/, http://HOST/ or file:///FOLDER{folder}; "
            f"mend --from or {VARIABLE}"
        )
    if re.search("[?#]", given) or not (local or re.fullmatch(r"[!-~]+", given)):
        raise InputError(
            f"the address{shown} may have no ?, # or blanks, and other letters as %XX only: "
            f"/{name}.zip is put behind it; mend --from or {VARIABLE}"
        )
    return f"{given.rstrip('/')}/{name}.zip"


def _is_there(target: Path, replace: bool) -> bool:
    """Tell whether nothing is to be done; raise where what is there stands in the way."""
    if not os.path.lexists(target):
        return False
    if not target.is_dir():
        raise InputError(f"{target} is there, and is no folder; move it away, or name another folder with --to")
    found = {path.name for path in target.iterdir()}
    known = [set(_files(target.name, suffix)) for suffix in _SUFFIXES]
    if any(files <= found for files in known) and not replace:
        return True
    if target.is_symlink():
        raise InputError(f"{target} is a link; remove it, or name another folder with --to")
    strange = sorted(found.difference(*known))
    if strange:
        raise InputError(
            f"{target} holds {strange[0]!r}, which is no part of the set and would be lost; move it away, or name "
            "another folder with --to"
        )
    if found and not replace:
        raise InputError(f"{target} holds {sorted(found)[0]!r} alone, a part of the set; fetch it with --replace")
    return False


# what a server sends


def _without_query(url: str) -> str:
    """Return an address without what may let anybody in: servers send on to addresses that are signed."""
    return re.sub("//[^/]*@", "//", re.sub("[?#].*", "", url, flags=re.DOTALL))


class _Redirects(HTTPRedirectHandler):
    """Follows a server elsewhere, but never from a safe connection to an open one."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        """Return what to ask next."""
        may = _WEB[:1] if urlsplit(req.full_url).scheme == "https" else _WEB
        if urlsplit(newurl).scheme not in may:
            fp.close()
            raise FetchError(
                f"{_without_query(req.full_url)}: sends on to {_without_query(newurl)[:200]!r}, which is not "
                f"{' or '.join(may)}, and this is refused; give an address of your trust with --from"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _opened(url: str, name: str, timeout: float) -> Iterator[tuple[Any, int | None]]:
    """Give the bytes of an address, and their number where it is told."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with _opened_file(url, parts, name) as handle:
            yield handle, os.fstat(handle.fileno()).st_size
        return
    from cksc_dist import __version__

    request = Request(url, headers={"User-Agent": f"cksc_dist/{__version__}"})
    try:
        response = build_opener(_Redirects).open(request, timeout=timeout)
    except HTTPError as error:
        with error:
            raise _refused(url, name, error) from error
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(
            f"{url}: cannot be reached ({_reason(error)}); check the network and the address, or get {name}.zip by "
            "other means into a folder and give --from file:///FOLDER"
        ) from error
    with response:
        yield response, response.length


def _opened_file(url: str, parts: SplitResult, name: str) -> io.BufferedReader:
    path = Path(url2pathname(parts.path))
    if not path.exists():
        raise FetchError(f"{url}: there is no {path}; {_advice(name)}")
    if not path.is_file():  # a pipe would never end
        raise FetchError(f"{url}: {path} is no file; give the folder that holds {name}.zip with --from")
    try:
        return path.open("rb")
    except OSError as error:
        raise FetchError(f"{url}: cannot be opened ({_reason(error)}); check its permissions") from error


def _refused(url: str, name: str, error: HTTPError) -> FetchError:
    if error.code in (404, 410):
        return FetchError(f"{url}: there is no such data set ({error.code}); {_advice(name)}")
    later = error.code == 429 or error.code >= 500
    advice = "try again later, or give another address with --from" if later else "give another address with --from"
    return FetchError(f"{url}: the server answers {error.code} ({str(error.reason)[:200]!r}); {advice}")


def _advice(name: str) -> str:
    """Return what to do where a name leads nowhere."""
    if name in NAMES:
        return f"the name is right, so the archive may have moved: give another address with --from or {VARIABLE}"
    known = {each.lower(): each for each in NAMES}
    close = [known[each] for each in get_close_matches(name.lower(), known, cutoff=0.7)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "cksc fetch --list shows the names of the multivariate archive; upper and lower case matter"


def _reason(error: Exception) -> str:
    """Return what an exception says, without its wrapping."""
    inner = error.reason if isinstance(error, URLError) else error
    if isinstance(inner, TimeoutError):
        return "it keeps silent for too long"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    said = str(inner)[:200]
    # a server's own words may hold what moves a terminal's cursor
    return (said if said.isprintable() else repr(said)) or type(inner).__name__


def _download(stream: Any, total: int | None, path: Path, url: str, progress: Progress | None) -> tuple[int, str]:
    """Write what comes to a file; return its size and SHA-256."""
    if total is not None:
        _check_download(total, url)
        _check_room(total, path.parent)
    digest = hashlib.sha256()
    size = seen = 0
    since = time.monotonic()
    with path.open("wb") as handle:
        while block := _next_block(stream, url, size, total):
            size += len(block)
            _check_download(size, url)
            handle.write(block)
            digest.update(block)
            if progress is not None:
                progress(size, total)
            now = time.monotonic()
            if now - since >= PATIENCE:
                if size - seen < SLOWEST * (now - since):
                    raise FetchError(
                        f"{url}: sent {size - seen:,} bytes in {now - since:.0f} s, which would never end; try again "
                        f"later, or give another address with --from; {_NOTHING_KEPT}"
                    )
                since, seen = now, size
    if total is not None and size != total:
        raise _broken_off(url, size, total)
    return size, digest.hexdigest()


def _next_block(stream: Any, url: str, size: int, total: int | None) -> bytes:
    try:
        block: bytes = stream.read1(BLOCK)  # what has come, without waiting for a block to be full
    except (OSError, HTTPException, ValueError) as error:
        raise _broken_off(url, size, total, _reason(error)) from error
    return block


def _broken_off(url: str, size: int, total: int | None, reason: str = "") -> FetchError:
    of = "" if total is None else f" of {total:,}"
    why = f" ({reason})" if reason else ""
    return FetchError(f"{url}: broke off after {size:,}{of} bytes{why}; {_NOTHING_KEPT}, run it again")


def _check_download(size: int, url: str) -> None:
    if size > MOST_PACKED:
        raise FetchError(
            f"{url}: is larger than {MOST_PACKED:,} bytes, more than is taken; check the address; {_NOTHING_KEPT}"
        )


def _check_room(size: int, folder: Path) -> None:
    if size > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, f"{size:,} bytes are needed")


# what is in an archive


class _Guarded(io.FileIO):
    """A file that is read in pieces: zipfile would take as much memory as an archive says its table is long."""

    def read(self, size: int | None = -1) -> bytes:
        """Return bytes, never very many."""
        if size is not None and size > MOST_LISTED:
            raise ValueError("its table of contents is too long")
        return super().read(size) or b""


def _unpack(packed: Path, fresh: Path, name: str, url: str) -> None:
    """Write the two files of an archive, under names of our own."""
    _check_begin(packed, name, url)
    with _Guarded(packed) as raw:
        try:
            archive = ZipFile(raw)
            members = _members(archive, name, url)
        except FetchError:
            raise
        except Exception as error:  # damaged bytes end in any of a dozen kinds
            raise _damaged(url, error) from error
        size = sum(member.file_size for member in members.values())
        if size > min(MOST_UNPACKED, max(SMALL, SWELLING * packed.stat().st_size)):
            raise FetchError(
                f"{url}: would unpack to {size:,} bytes, and this is refused; check the address; {_NOTHING_KEPT}"
            )
        _check_room(size, fresh)
        for file, member in members.items():
            with (fresh / file).open("wb") as handle:
                for block in _blocks(archive, member, url):
                    handle.write(block)


def _check_begin(packed: Path, name: str, url: str) -> None:
    with packed.open("rb") as handle:
        begin = handle.read(40)
    if begin.startswith(b"PK"):
        return
    what = f"begins with {begin!r}" if begin else "it is empty"
    # some servers answer a wrong name with a page of their own
    raise FetchError(f"{url}: is no zip archive ({what}); {_advice(name)}; {_NOTHING_KEPT}")


def _damaged(url: str, error: Exception) -> FetchError:
    return FetchError(
        f"{url}: the archive is cut short or damaged ({error or type(error).__name__}); {_NOTHING_KEPT}, run it again, "
        "or give another address with --from"
    )


def _members(archive: ZipFile, name: str, url: str) -> dict[str, ZipInfo]:
    """Return the members of an archive that are wanted, by the names of the files to write."""
    wanted = {file for suffix in _SUFFIXES for file in _files(name, suffix)}
    found: dict[str, ZipInfo] = {}
    for member in archive.infolist():
        own = member.orig_filename
        parts = own.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or ":" in parts[0] or "\0" in own:
            raise _untrusted(url, own, "leads out of its folder")
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _untrusted(url, own, "is a link or a device")
        if parts[-1] in wanted:
            if parts[-1] in found:
                raise _untrusted(url, own, "is there twice")
            found[parts[-1]] = member
    for suffix in _SUFFIXES:
        files = _files(name, suffix)
        if found.keys() >= set(files):
            for file in files:
                _check_member(found[file], url)
            return {file: found[file] for file in files}
    held = ", ".join(repr(member.orig_filename[:100]) for member in archive.infolist()[:5]) or "nothing"
    raise FetchError(
        f"{url}: holds no {name}_TRAIN and {name}_TEST, neither .ts nor .arff, but {held}; give another address with "
        f"--from; {_NOTHING_KEPT}"
    )


def _check_member(member: ZipInfo, url: str) -> None:
    if member.flag_bits & 1:
        raise _untrusted(url, member.orig_filename, "is encrypted")
    # of the other methods a few bytes may unpack to more than memory holds, before anybody counts
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise _untrusted(url, member.orig_filename, f"is packed by method {member.compress_type}, not by deflate")


def _untrusted(url: str, member: str, what: str) -> FetchError:
    return FetchError(
        f"{url}: {member[:100]!r} in the archive {what}, and this is refused; give an address of your trust with "
        f"--from; {_NOTHING_KEPT}"
    )


def _blocks(archive: ZipFile, member: ZipInfo, url: str) -> Iterator[bytes]:
    """Yield what a member unpacks to: as many bytes as it says, and those that its checksum is of."""
    size = 0
    try:
        with archive.open(member) as stream:
            while block := stream.read(BLOCK):
                size += len(block)
                yield block
    except Exception as error:
        raise _damaged(url, error) from error
    if size != member.file_size:
        raise _damaged(url, ValueError(f"{size:,} bytes in the place of {member.file_size:,}"))


# where it goes


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """Give a folder beside the target to work in; all that was made goes away with it, unless all goes well."""
    made: list[Path] = []
    done = False
    try:
        for folder in reversed([target.parent, *target.parent.parents]):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        _remove_left_over(target)
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.{signature()}.", suffix=".part", dir=target.parent))
        try:
            yield stage
            done = True
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:  # of the disk: those of the network have another name by now
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(
                f"{target}: there is not enough room on the disk ({error.strerror}); make room, or name another folder "
                f"with --to; {_NOTHING_KEPT}"
            ) from error
        raise FetchError(
            f"{target}: cannot be written ({_reason(error)}); check the folder and its permissions, or name another "
            f"with --to; {_NOTHING_KEPT}"
        ) from error
    finally:
        if not done:
            for folder in reversed(made):
                with suppress(OSError):
                    folder.rmdir()


def _read(fresh: Path, url: str) -> tuple[SeriesSet | None, str]:
    """Return the series of a folder, and what to know about them."""
    try:
        return read(fresh), ""
    except MemoryError:
        return None, "memory does not hold its series"
    except InputError as error:
        try:
            return read(fresh, missing="interpolate"), "values are missing: read it with the option missing=interpolate"
        except InputError:
            told = str(error).replace(f"{fresh}{os.sep}", "")
            raise FetchError(f"{url}: what it holds cannot be read: {told}; {_NOTHING_KEPT}") from error


def _remove_left_over(target: Path) -> None:
    """Remove what processes left that were killed while they fetched the same; the set they would replace stays."""
    form = re.compile(rf"\.{re.escape(target.name)}\.({SIGNATURE})\.\w+\.part")
    for path in target.parent.glob(".*.part"):
        if (found := form.fullmatch(path.name)) and is_of_the_dead(found[1], path):
            if (path / "old").exists() and not target.exists():
                (path / "old").rename(target)
            shutil.rmtree(path, ignore_errors=True)


def _put(fresh: Path, target: Path, old: Path, replace: bool) -> None:
    """Put a folder in the place of the target; what has come there meanwhile stays."""
    with suppress(OSError):
        target.rmdir()  # goes if it is empty
    if not replace or not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        old.rename(target)
        raise
