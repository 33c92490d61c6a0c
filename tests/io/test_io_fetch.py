"""Data sets from the network: a server on this machine sends what a test made."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import os
import shutil
import socket
import ssl
import stat
import struct
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cksc_dist.errors import CkscError, InputError
from cksc_dist.io import fetch as fetch_module
from cksc_dist.io.fetch import ARCHIVE, NAMES, FetchError, fetch
from cksc_dist.series import SeriesSet

TRAIN = "@problemName Taps\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n2,3:5,6:b\n"
TEST = "@problemName Taps\n@classLabel true a b\n@data\n7,8:9,9:b\n"
ARFF = "@relation taps\n@attribute t numeric\n@attribute c {a,b}\n@data\n1,a\n2,b\n"
GOOD = {"Taps_TRAIN.ts": TRAIN, "Taps_TEST.ts": TEST}

Answer = Callable[[BaseHTTPRequestHandler], None]


def packed(members: dict[str | zipfile.ZipInfo, str] | dict[str, str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


class Server(ThreadingHTTPServer):
    """Answers each path as a test says; 404 elsewhere."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str]] = []
        self.closing = threading.Event()
        self.scheme = "http"

    @property
    def base(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/sets"

    def gives(self, body: bytes, name: str = "Taps", **headers: str) -> None:
        self.answers[f"/sets/{name}.zip"] = lambda handler: answer(handler, 200, body, **headers)

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is meant."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["User-Agent"]))
        self.server.answers.get(self.path, lambda handler: handler.send_error(404))(self)

    def log_message(self, *_: Any) -> None:
        """Keep silent."""


def answer(handler: BaseHTTPRequestHandler, code: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(code)
    for key, value in {"Content_Length": str(len(body)), **headers}.items():
        if value:
            handler.send_header(key.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(fetch_module.VARIABLE, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield made
        made.closing.set()
        made.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that is not there, to fetch into."""
    return tmp_path / "not" / "yet"


def fails(
    home: Path, base: str, words: str, name: str = "Taps", kind: type[CkscError] = FetchError, **options: Any
) -> str:
    """Fetch, see the error, and see that nothing is left; return what the error says."""
    before = sorted(home.parent.parent.rglob("*"))
    with pytest.raises(kind, match=words) as caught:
        fetch(name, home, base=base, **options)
    assert sorted(home.parent.parent.rglob("*")) == before
    return str(caught.value)


def fails_on(home: Path, body: bytes, words: str, tmp: Path) -> str:
    """The same for an archive in a file."""
    (tmp / "Taps.zip").write_bytes(body)
    return fails(home, tmp.as_uri(), words)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds archives."""
    return tmp_path_factory.mktemp("archives")


# what comes, and where it goes


def test_two_files_are_kept_of_an_archive(server: Server, home: Path) -> None:
    body = packed({"README.md": "about", **GOOD, "Taps_TRAIN.arff": ARFF, "TapsDimension1_TRAIN.ts": "", "x/y.jpg": ""})
    server.gives(body)
    heard: list[tuple[int, int | None]] = []
    came = fetch("Taps", home, base=server.base + "/", progress=lambda size, total: heard.append((size, total)))
    assert came is not None
    assert {path.name: path.read_text() for path in home.rglob("*") if path.is_file()} == GOOD
    assert [path.name for path in home.iterdir()] == ["Taps"]
    assert (came.folder, came.url, came.note) == (home / "Taps", f"{server.base}/Taps.zip", "")
    assert (came.size, came.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert repr(came.data) == repr(SeriesSet.read(home / "Taps"))
    assert repr(came.data) == "SeriesSet('Taps': 3 series, 2 dims, length 2..3, 2 classes)"
    assert heard[-1] == (len(body), len(body))
    assert server.asked[0][0] == "/sets/Taps.zip"
    assert server.asked[0][1].startswith("cksc_dist/")


def test_a_large_body_comes_in_blocks_with_and_without_its_length(server: Server, home: Path) -> None:
    noise = os.urandom(3 * fetch_module.BLOCK).hex()
    body = packed({**GOOD, "noise": noise}, zipfile.ZIP_STORED)
    server.gives(body)
    server.gives(body, "Taps2", Content_Length="")  # HTTP 1.0: ends where the connection ends
    heard: list[tuple[int, int | None]] = []
    fetch("Taps", home, base=server.base, progress=lambda size, total: heard.append((size, total)))
    assert len(heard) > 5
    assert [size for size, _ in heard] == sorted(size for size, _ in heard)
    with pytest.raises(FetchError, match="holds no Taps2_TRAIN"):
        fetch("Taps2", home, base=server.base, progress=lambda size, total: heard.append((size, total)))
    assert heard[-1] == (len(body), None)


def test_arff_where_there_is_no_whole_ts(home: Path, place: Path) -> None:
    arff = {"Taps_TRAIN.arff": ARFF, "Taps_TEST.arff": ARFF}
    (place / "Taps.zip").write_bytes(packed({"Taps_TRAIN.ts": TRAIN, **arff}))
    came = fetch("Taps", home, base=place.as_uri())
    assert came is not None
    assert sorted(path.name for path in came.folder.iterdir()) == ["Taps_TEST.arff", "Taps_TRAIN.arff"]
    assert came.data is not None
    assert len(came.data) == 4


@pytest.mark.parametrize("folder", ["Taps/", "UEA/all/Taps/", "Taps\\"])
def test_files_may_lie_in_folders_of_the_archive(folder: str, home: Path, place: Path) -> None:
    (place / "Taps.zip").write_bytes(packed({folder + name: text for name, text in GOOD.items()}))
    fetch("Taps", home, base=place.as_uri())
    assert {path.name: path.read_text() for path in (home / "Taps").iterdir()} == GOOD


def test_missing_values_are_told(home: Path, place: Path) -> None:
    (place / "Taps.zip").write_bytes(packed({**GOOD, "Taps_TEST.ts": TEST.replace("8", "?")}))
    came = fetch("Taps", home, base=place.as_uri())
    assert came is not None
    assert came.note == "values are missing: read it with the option missing=interpolate"
    assert repr(SeriesSet.read(home / "Taps", missing="interpolate")) == repr(came.data)


def test_a_set_that_memory_does_not_hold_is_kept(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> SeriesSet:
        raise MemoryError

    monkeypatch.setattr(fetch_module, "read", read)
    (place / "Taps.zip").write_bytes(packed(GOOD))
    came = fetch("Taps", home, base=place.as_uri())
    assert came is not None
    assert (came.data, came.note) == (None, "memory does not hold its series")
    assert len(list((home / "Taps").iterdir())) == 2


def test_what_cannot_be_read_is_not_kept(home: Path, place: Path) -> None:
    body = packed({**GOOD, "Taps_TEST.ts": TEST.replace("@data", "@timeStamps true\n@data")})
    text = fails_on(
        home, body, "what it holds cannot be read: Taps_TEST.ts, line 3: the series carry time stamps", place
    )
    assert ".part" not in text


# what is there already


def test_what_is_there_is_not_fetched_again(server: Server, home: Path) -> None:
    server.gives(packed(GOOD))
    assert fetch("Taps", home, base=server.base) is not None
    (home / "Taps" / "notes.txt").write_text("mine")
    assert fetch("Taps", home, base=server.base) is None
    assert len(server.asked) == 1


def test_replace_puts_a_new_copy_in_its_place(home: Path, place: Path) -> None:
    arff = {"Taps_TRAIN.arff": ARFF, "Taps_TEST.arff": ARFF}
    for members in (arff, GOOD):
        (place / "Taps.zip").write_bytes(packed(members))
        fetch("Taps", home, base=place.as_uri(), replace=True)
        assert sorted(path.name for path in (home / "Taps").iterdir()) == sorted(members)
    assert [path.name for path in home.iterdir()] == ["Taps"]


def test_a_replacement_that_fails_leaves_the_old_one(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "Taps.zip").write_bytes(packed(GOOD))
    fetch("Taps", home, base=place.as_uri())
    (place / "Taps.zip").write_bytes(b"damaged")
    fails(home, place.as_uri(), "no zip archive", replace=True)
    (place / "Taps.zip").write_bytes(packed({**GOOD, "Taps_TEST.ts": TRAIN}))
    rename = Path.rename

    def broken(self: Path, target: Path) -> Path:
        if self.name == "fresh":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    fails(home, place.as_uri(), r"cannot be written \(Input/output error\)", replace=True)
    assert {path.name: path.read_text() for path in (home / "Taps").iterdir()} == GOOD
    assert [path.name for path in home.iterdir()] == ["Taps"]


def test_an_empty_folder_is_filled(home: Path, place: Path) -> None:
    (home / "Taps").mkdir(parents=True)
    (place / "Taps.zip").write_bytes(packed(GOOD))
    assert fetch("Taps", home, base=place.as_uri()) is not None


def test_what_stands_in_the_way_is_named_before_anything_is_asked(server: Server, home: Path, place: Path) -> None:
    target = home / "Taps"
    target.mkdir(parents=True)
    (target / "Taps_TRAIN.ts").write_text("half")
    fails(home, server.base, "holds 'Taps_TRAIN.ts' alone, a part of the set; fetch it with --replace", kind=InputError)
    (target / "notes.txt").write_text("mine")
    for replace in (False, True):
        words = "holds 'notes.txt', which is no part of the set and would be lost"
        fails(home, server.base, words, kind=InputError, replace=replace)
    shutil.rmtree(target)
    target.write_text("a file")
    fails(home, server.base, "is there, and is no folder; move it away", kind=InputError, replace=True)
    target.unlink()
    target.symlink_to(place)
    fails(home, server.base, "is a link; remove it", kind=InputError, replace=True)
    assert not server.asked
    assert not list(place.iterdir())


def test_what_comes_there_meanwhile_stays(server: Server, home: Path) -> None:
    server.gives(packed(GOOD))

    def meanwhile(*_: object) -> None:
        (home / "Taps").mkdir()
        (home / "Taps" / "notes.txt").write_text("mine")

    with pytest.raises(FetchError, match=r"cannot be written \(Directory not empty\)"):
        fetch("Taps", home, base=server.base, progress=meanwhile)
    assert [str(path.relative_to(home)) for path in home.rglob("*")] == ["Taps", "Taps/notes.txt"]


# names and addresses


def test_the_names_are_those_of_the_archive() -> None:
    assert len(set(NAMES)) == len(NAMES) == 30
    assert sorted(NAMES, key=str.lower) == list(NAMES)
    assert all(fetch_module._NAME.fullmatch(name) for name in NAMES)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../Taps", "a/b", "a\\b", "/etc", ".a", "-a", "a b", "a\n", "ä", "a" * 101]
)
def test_odd_names_are_refused_before_anything_is_asked(name: str, server: Server, home: Path) -> None:
    fails(home, server.base, "is no name of a data set: letters, digits, _ and - only", name=name, kind=InputError)
    assert not server.asked


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("ftp://host/sets", "must begin with https://HOST/, http://HOST/ or file:///FOLDER"),
        ("data:text/plain,", "must begin with"),
        ("host/sets", "must begin with"),
        ("http:///sets", "must begin with"),
        ("file://host/sets", "must begin with"),
        ("file:sets", "must begin with"),
        ("http://host:port/", "is none .*; mend --from or CKSC_FETCH_URL"),
        ("http://[host/", "is none"),
        ("http://host/?name=", "may have no"),
        ("http://host/#", "may have no"),
        ("http://host/a b", "may have no"),
        ("http://host/\r\nX: y", "may have no"),
        ("http://höst/", "may have no"),
    ],
)
def test_addresses_that_are_refused(base: str, words: str, home: Path) -> None:
    fails(home, base, words, kind=InputError)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("https://me:secret@host/sets", "holds a key or password"),
        ("https://me:secret@host:99999/sets", "holds a key or password"),
        ("https://me:se/secret@host/sets", "holds a key or password"),
        ("https://host/sets?sig=secret", "holds a key or password"),
        ("https://host/sets#secret", "holds a key or password"),
        ("https://host:secret/sets", "is none"),
        ("me:secret@host/sets", "must begin with"),
        ("file://me:secret@host/sets", "must begin with"),
        ("file:///sets?secret", "may have no"),
    ],
)
def test_a_password_is_refused_and_not_repeated(base: str, words: str, home: Path) -> None:
    assert "secret" not in fails(home, base, words, kind=InputError)


def test_a_signed_address_that_a_server_sends_on_to_is_not_repeated() -> None:
    ask = fetch_module.Request("https://me:secret@host/Taps.zip?sig=secret")
    with pytest.raises(FetchError, match=r"^https://host/Taps\.zip: sends on to 'http://other/x', which") as caught:
        fetch_module._Redirects().redirect_request(ask, io.BytesIO(), 302, "", {}, "http://other/x?sig=secret")
    assert "secret" not in str(caught.value)


def test_a_folder_in_the_place_of_an_address_is_told_its_own(home: Path, place: Path) -> None:
    assert f"for this folder: {place.as_uri()};" in fails(home, str(place), "must begin with", kind=InputError)


def test_the_environment_names_an_address_and_an_argument_goes_before(
    server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.gives(packed(GOOD))
    monkeypatch.setenv("CKSC_FETCH_URL", server.base)
    assert fetch("Taps", home) is not None
    monkeypatch.setenv("CKSC_FETCH_URL", "ftp://host")
    assert fetch("Taps", home / "again", base=server.base) is not None
    monkeypatch.setenv("CKSC_FETCH_URL", "")
    assert fetch_module._address(None, "Taps") == f"{ARCHIVE}/Taps.zip"


# servers


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crickets", r"crickets.zip: there is no such data set \(404\); did you mean Cricket\?"),
        ("cricket", r"did you mean Cricket\?"),
        ("SelfRegulationSCP3", r"did you mean SelfRegulationSCP2 or SelfRegulationSCP1\?"),
        ("Xyz", "cksc fetch --list shows the names"),
        ("PEMS-SF", "the name is right, so the archive may have moved: give another address with --from"),
    ],
)
def test_a_set_that_is_not_there(name: str, words: str, server: Server, home: Path) -> None:
    fails(home, server.base, words, name=name)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (403, r"the server answers 403 \('Forbidden'\); give another address with --from"),
        (429, "answers 429 .*; try again later"),
        (503, "answers 503 .*; try again later"),
    ],
)
def test_a_server_that_refuses(code: int, words: str, server: Server, home: Path) -> None:
    server.answers["/sets/Taps.zip"] = lambda handler: answer(handler, code)
    fails(home, server.base, words)


def test_no_network(home: Path) -> None:
    with socket.socket() as free:  # bound, and nobody listens
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{free.getsockname()[1]}"
        words = r"cannot be reached \(Connection refused\); check the network .* --from file:///FOLDER"
        fails(home, base, words)


def test_no_such_host(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    fails(home, "https://nowhere.invalid", r"cannot be reached \(Name or service not known\)")


def test_a_server_of_another_kind(server: Server, home: Path) -> None:
    server.answers["/sets/Taps.zip"] = lambda handler: handler.wfile.write(b"220 mail ready\r\n")
    fails(home, server.base, r"cannot be reached \('220 mail ready\\r\\n'\)")


def test_a_server_that_keeps_silent(server: Server, home: Path) -> None:
    body = packed(GOOD)

    def silent(handler: BaseHTTPRequestHandler) -> None:
        server.closing.wait(5)

    def silent_later(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, 200, body[:50], Content_Length=str(len(body)))
        server.closing.wait(5)

    server.answers["/sets/Taps.zip"] = silent
    fails(home, server.base, r"cannot be reached \(it keeps silent for too long\)", timeout=0.2)
    server.answers["/sets/Taps.zip"] = silent_later
    words = rf"broke off after 50 of {len(body)} bytes \(it keeps silent for too long\); nothing is kept, run it again"
    fails(home, server.base, words, timeout=0.2)


def test_a_server_that_sends_drops(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "PATIENCE", 0.2)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, 200, b"PK", Content_Length="100000")
        while not server.closing.wait(0.02):
            handler.wfile.write(b"x")

    server.answers["/sets/Taps.zip"] = drip
    fails(home, server.base, r"sent \d+ bytes in 0 s, which would never end; try again later")


def test_a_body_that_is_cut_short(server: Server, home: Path) -> None:
    body = packed(GOOD)

    def chunks(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"40\r\n" + body[:0x40] + b"\r\n40\r\n" + body[:5])
        handler.close_connection = True

    server.gives(body[:-30], Content_Length=str(len(body)))
    fails(home, server.base, rf"broke off after {len(body) - 30} of {len(body)} bytes; nothing is kept, run it again")
    server.answers["/sets/Taps.zip"] = chunks
    fails(home, server.base, r"broke off after \d+ bytes \(.+\); nothing is kept")
    server.gives(body[:-30], Content_Length="")
    fails(home, server.base, "the archive is cut short or damaged .*; nothing is kept, run it again")


def test_an_endless_body(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "MOST_PACKED", 10**6)

    def endless(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, 200, b"PK", Content_Length="")
        while not server.closing.is_set():
            handler.wfile.write(bytes(10**5))

    server.answers["/sets/Taps.zip"] = endless
    fails(home, server.base, "is larger than 1,000,000 bytes, more than is taken")


def test_a_body_that_says_to_be_too_large_is_not_begun(server: Server, home: Path) -> None:
    server.gives(b"PK", Content_Length=str(2**40))
    fails(home, server.base, "is larger than 4,294,967,296 bytes")


@pytest.mark.parametrize("body", [b"<!DOCTYPE html><p>no such page", b"", b"P"])
def test_what_is_no_zip_archive(body: bytes, server: Server, home: Path) -> None:
    server.gives(body, "Criket")
    what = "it is empty" if not body else f"begins with {body[:10]!r}"[:-1]
    text = fails(home, server.base, r"is no zip archive .*; did you mean Cricket\?; nothing is kept", name="Criket")
    assert what in text


def test_redirects_are_followed_on_the_web_alone(server: Server, home: Path, place: Path) -> None:
    def to(url: str) -> Answer:
        return lambda handler: answer(handler, 302, Location=url)

    (place / "Taps.zip").write_bytes(packed(GOOD))
    for url, words in [
        ((place / "Taps.zip").as_uri(), "the server answers 302 .*not allowed"),
        ("ftp://127.0.0.1/Taps.zip", "sends on to 'ftp://127.0.0.1/Taps.zip', which is not https or http"),
        ("/sets/Taps.zip", "the server answers 302 .*infinite loop"),
    ]:
        server.answers["/sets/Taps.zip"] = to(url)
        fails(home, server.base, words)
    server.answers["/moved.zip"] = lambda handler: answer(handler, 200, packed(GOOD))
    server.answers["/sets/Taps.zip"] = to("/moved.zip")
    assert fetch("Taps", home, base=server.base) is not None


@pytest.fixture
def safe_server(server: Server, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, with TLS and a certificate that is trusted."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.scheme = "https"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return server


def test_a_safe_connection_stays_safe(safe_server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: Answer = lambda handler: answer(handler, 301, Location="http://127.0.0.1:1/Taps.zip")  # noqa: E731
    safe_server.answers["/sets/Taps.zip"] = elsewhere
    fails(home, safe_server.base, "sends on to 'http://127.0.0.1:1/Taps.zip', which is not https, and this is refused")
    safe_server.answers["/sets/Taps.zip"] = lambda handler: answer(handler, 301, Location="/moved.zip")
    safe_server.answers["/moved.zip"] = lambda handler: answer(handler, 200, packed(GOOD))
    assert fetch("Taps", home, base=safe_server.base) is not None
    monkeypatch.delenv("SSL_CERT_FILE")
    fails(home, safe_server.base, "cannot be reached .*CERTIFICATE_VERIFY_FAILED", name="Taps2")


# files


def test_an_address_of_a_file(home: Path, place: Path) -> None:
    folder = place / "with blanks and ä"
    folder.mkdir()
    (folder / "Taps.zip").write_bytes(packed(GOOD))
    for base in (folder.as_uri(), folder.as_uri().replace("file://", "file://localhost")):
        came = fetch("Taps", home, base=base, replace=True)
        assert came is not None
        assert came.url.endswith("/Taps.zip")


def test_a_file_that_is_absent_or_none(home: Path, place: Path) -> None:
    fails(home, place.as_uri(), r"there is no .*criket.zip; did you mean Cricket\?", name="criket")
    (place / "Taps.zip").mkdir()
    fails(home, place.as_uri(), "is no file; give the folder that holds Taps.zip with --from")
    os.mkfifo(place / "Pipe.zip")
    fails(home, place.as_uri(), "is no file", name="Pipe")


# archives that are not to be trusted


@pytest.mark.parametrize(
    "trick",
    ["../x", "/etc/x", "a/../../Taps_TRAIN.ts", "..\\x", "\\x", "C:/x", "c:\\Taps_TRAIN.ts", "//host/x", "x\0y"],
)
def test_members_that_lead_elsewhere(trick: str, home: Path, place: Path) -> None:
    member = zipfile.ZipInfo("x")
    member.filename = member.orig_filename = trick
    fails_on(
        home, packed({**GOOD, member: TRAIN}), "in the archive leads out of its folder, and this is refused", place
    )


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
@pytest.mark.parametrize("name", ["Taps_TEST.ts", "link"])
def test_members_that_are_links_or_devices(kind: int, name: str, home: Path, place: Path) -> None:
    member = zipfile.ZipInfo(name)
    member.external_attr = (kind | 0o777) << 16
    body = packed({"Taps_TRAIN.ts": TRAIN, member: "/etc/passwd"})
    fails_on(home, body, rf"'{name}' in the archive is a link or a device, and this is refused", place)


def test_a_member_that_is_there_twice(home: Path, place: Path) -> None:
    fails_on(
        home, packed({**GOOD, "other/Taps_TEST.ts": TEST}), "'other/Taps_TEST.ts' in the archive is there twice", place
    )


def patched(body: bytes, member: str, offset: int, value: bytes) -> bytes:
    """Return an archive with bytes of a member's entry in the table of contents changed."""
    at = body.index(member.encode(), body.index(b"PK\1\2")) - 46
    assert body[at : at + 4] == b"PK\1\2"
    return body[: at + offset] + value + body[at + offset + len(value) :]


def test_a_member_that_is_encrypted(home: Path, place: Path) -> None:
    body = patched(packed(GOOD), "Taps_TRAIN.ts", 8, struct.pack("<H", 1))
    fails_on(home, body, "'Taps_TRAIN.ts' in the archive is encrypted", place)


@pytest.mark.parametrize(("method", "number"), [(zipfile.ZIP_BZIP2, 12), (zipfile.ZIP_LZMA, 14)])
def test_other_ways_to_pack_are_refused(method: int, number: int, home: Path, place: Path) -> None:
    fails_on(home, packed(GOOD, method), f"is packed by method {number}, not by deflate", place)


@pytest.mark.parametrize(
    ("members", "held"),
    [
        ({}, "but nothing"),
        ({"README.md": "about"}, "but 'README.md'"),
        ({"Taps_TRAIN.ts": TRAIN, "Taps_TEST.arff": ARFF}, "but 'Taps_TRAIN.ts', 'Taps_TEST.arff'"),
        ({"taps_train.ts": TRAIN, "taps_test.ts": TEST}, "but 'taps_train.ts'"),
    ],
)
def test_an_archive_without_the_two_files(members: dict[str, str], held: str, home: Path, place: Path) -> None:
    fails_on(home, packed(members), f"holds no Taps_TRAIN and Taps_TEST, neither .ts nor .arff, {held}", place)


def test_a_bomb(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed({**GOOD, "Taps_TEST.ts": TEST + "0" * 10**6})
    (place / "Taps.zip").write_bytes(bomb)
    fails_on(home, bomb, "what it holds cannot be read", place)  # so small it is none
    monkeypatch.setattr(fetch_module, "SMALL", 10**5)
    fails_on(home, bomb, r"would unpack to 1,000,\d+ bytes, and this is refused", place)
    monkeypatch.setattr(fetch_module, "SWELLING", 10**4)
    fails_on(home, bomb, "what it holds cannot be read", place)
    monkeypatch.setattr(fetch_module, "MOST_UNPACKED", 10**5)
    fails_on(home, bomb, r"would unpack to 1,000,\d+ bytes, and this is refused", place)


def test_text_that_would_take_gigabytes_is_not_even_unpacked(home: Path, place: Path) -> None:
    bomb = packed({**GOOD, "Taps_TEST.ts": TEST + "10," * (6 * 2**20)})
    assert len(bomb) < 10**5
    (place / "Taps.zip").write_bytes(bomb)
    fails_on(home, bomb, r"would unpack to 18,\d{3},\d{3} bytes, and this is refused", place)


def test_a_bomb_that_is_not_looked_at(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "SMALL", 10**5)
    (place / "Taps.zip").write_bytes(packed({**GOOD, "bomb": "0" * 10**6}))
    assert fetch("Taps", home, base=place.as_uri()) is not None


@pytest.mark.parametrize("size", [10, len(TEST) - 1, len(TEST) + 1, 10**6, 2**32 - 2])
def test_sizes_that_lie(size: int, home: Path, place: Path) -> None:
    body = patched(packed(GOOD), "Taps_TEST.ts", 24, struct.pack("<I", size))
    fails_on(home, body, "cut short or damaged|would unpack to", place)


def test_a_table_of_contents_that_would_fill_memory(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "MOST_LISTED", 10**5)
    body = packed({**GOOD, **{f"{i:0100}": "" for i in range(1000)}})
    fails_on(home, body, r"damaged \(its table of contents is too long\)", place)


def test_damaged_archives(home: Path, place: Path) -> None:
    good = packed({"about.txt": "some text", **GOOD})
    for start in range(0, len(good), max(1, len(good) // 100)):
        for body in (good[:start] + bytes(b ^ 0x5A for b in good[start : start + 4]) + good[start + 4 :], good[:start]):
            (place / "Taps.zip").write_bytes(body)
            try:
                fetch("Taps", home, base=place.as_uri())
            except FetchError as error:
                assert "nothing is kept" in str(error)  # noqa: PT017 - some damage falls on bytes that do not matter
                assert not home.parent.exists()
            else:
                assert {path.name: path.read_text() for path in (home / "Taps").iterdir()} == GOOD
                shutil.rmtree(home.parent)


# the disk


def test_a_disk_with_too_little_room(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = packed({**GOOD, "Taps_TEST.ts": TEST + "\n" * 10**5})
    server.gives(body)
    for free, needed in [(10, len(body)), (len(body), len(TRAIN + TEST) + 10**5)]:
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: shutil._ntuple_diskusage(10**9, 0, free))
        words = (
            rf"Taps: there is not enough room on the disk \({needed:,} bytes are needed\); make room, or name another"
        )
        fails(home, server.base, words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("file", ["packed", "fresh/Taps_TEST.ts"])
def test_a_disk_that_fills_up(file: str, server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.gives(packed(GOOD))
    make, mkdir = tempfile.mkdtemp, Path.mkdir

    def full(**options: Any) -> str:
        stage = make(**options)
        if "/" not in file:
            Path(stage, file).symlink_to("/dev/full")
        return stage

    def full_folder(self: Path, *arguments: Any, **options: Any) -> None:
        mkdir(self, *arguments, **options)
        if self.name == "fresh" and "/" in file:
            (self.parent / file).symlink_to("/dev/full")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    monkeypatch.setattr(Path, "mkdir", full_folder)
    fails(home, server.base, r"there is not enough room on the disk \(No space left on device\)")


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    server.gives(packed(GOOD))
    (tmp_path / "file").write_text("")
    fails(tmp_path / "file" / "sets", server.base, r"Taps: cannot be written \(Not a directory\); check the folder")
    fails(tmp_path / "new" / ("x" * 300), server.base, r"cannot be written \(File name too long\)")


def test_an_interruption_leaves_nothing(server: Server, home: Path) -> None:
    server.gives(packed(GOOD))

    def interrupt(*_: object) -> None:
        assert list(home.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("Taps", home, base=server.base, progress=interrupt)
    assert not home.parent.exists()
