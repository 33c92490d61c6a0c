"""Certificates of cluster/make_certs, a cluster that uses them, and who is refused."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client

from cksc_dist.dist import cluster as cluster_module
from cksc_dist.dist import embedded as embedded_module
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.encryption import encryption_warning
from cksc_dist.errors import ClusterError
from cksc_dist.spec import RunSpec
from tests.cluster.recipes import CLUSTER, check_that_two_worked, make_certs
from tests.dist.processes import DASK, Starter, answers, chunk_files, free_port, wait_until


@pytest.fixture(scope="module")
def certificates(folder: Path) -> dict[str, str]:
    return make_certs(folder / "certs")


@pytest.fixture(scope="module")
def port(start: Starter, certificates: dict[str, str]) -> int:
    """Where a scheduler with TLS listens, which has two workers."""
    number = free_port()
    start(
        *(*DASK, "scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", str(number), "--no-dashboard"),
        environment=certificates,
    )
    wait_until(lambda: answers(number), "a scheduler that answers")
    start.workers(f"tls://127.0.0.1:{number}", 2, certificates)
    return number


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 3)


def config_of(environment: dict[str, str]) -> dict[str, str]:
    """Return what Dask makes of variables, which it reads when it is imported."""
    return {
        name.removeprefix("DASK_").lower().replace("__", ".").replace("_", "-"): value
        for name, value in environment.items()
        if "TLS" in name
    }


def test_keys_are_for_their_owner_alone_and_nothing_is_overwritten(certificates: dict[str, str]) -> None:
    folder = Path(certificates["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"]).parent
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "node.pem": 0o644, "node-key.pem": 0o600}
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = subprocess.run([sys.executable, CLUSTER / "make_certs", folder], capture_output=True, text=True)
    assert again.returncode == 2
    assert "holds ca.pem, ca-key.pem, node.pem, node-key.pem already; choose another folder" in again.stderr
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_a_cluster_with_tls_writes_the_same_bytes(
    start: Starter, port: int, certificates: dict[str, str], store: Path, expected: dict[str, str]
) -> None:
    run = start.cksc(
        *("distances", str(store), "--scheduler", f"tls://127.0.0.1:{port}", "--require-tls"), environment=certificates
    )
    assert run.wait() == 0, run.output
    assert chunk_files(store) == expected
    check_that_two_worked(store)


def test_the_embedded_cluster_needs_no_certificates_where_encryption_is_but_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: Any = object()
    monkeypatch.setattr(embedded_module, "_new_cluster", lambda *_: started)
    with dask.config.set({"distributed.comm.default-scheme": "tls", "distributed.comm.tls.ca-file": None}):
        assert embedded_module.local_cluster(1, None) is started


@pytest.mark.slow
def test_the_embedded_cluster_is_encrypted_where_that_is_demanded(start: Starter, certificates: dict[str, str]) -> None:
    run = start.cksc("doctor", "--workers", "1", environment=certificates)
    assert run.wait() == 0, run.output
    assert "scheduler     tls://127.0.0.1:" in run.output


def test_encryption_that_is_demanded_without_certificates_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_module, "_new_cluster", None)  # it is not even tried
    for missing, files in (("ca-file", {}), ("client.cert", {"distributed.comm.tls.ca-file": __file__})):
        with (
            dask.config.set(
                {"distributed.comm.require-encryption": True, "distributed.comm.tls.ca-file": None} | files
            ),
            pytest.raises(
                ClusterError, match=rf"wants TLS, but there is no distributed\.comm\.tls\.{missing} in Dask's"
            ),
            connected(RunSpec(), 1),
        ):
            pass


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
class TestRefused:
    def words(self, address: str) -> str:
        with pytest.raises(ClusterError) as caught, connected(RunSpec(scheduler=address), 1):
            pass
        return str(caught.value)

    def test_without_a_certificate(self, port: int) -> None:
        words = self.words(f"tls://127.0.0.1:{port}")
        assert "wants TLS, but there is no distributed.comm.tls.ca-file in Dask's configuration" in words
        assert "make_certs" in words

    def test_with_a_file_that_is_not_there(self, port: int, certificates: dict[str, str]) -> None:
        config = config_of(certificates) | {"distributed.comm.tls.client.key": "/nowhere/node-key.pem"}
        with dask.config.set(config):
            words = self.words(f"tls://127.0.0.1:{port}")
        assert "no readable file /nowhere/node-key.pem, which distributed.comm.tls.client.key names" in words

    def test_with_a_foreign_certificate(self, port: int, tmp_path: Path) -> None:
        with dask.config.set(config_of(make_certs(tmp_path / "foreign"))):
            words = self.words(f"tls://127.0.0.1:{port}")
        assert "do not accept each other's certificates" in words
        assert "signed by the same CA" in words

    def test_by_the_scheduler_too_if_the_client_trusts_it(
        self, port: int, certificates: dict[str, str], tmp_path: Path
    ) -> None:
        foreign = config_of(make_certs(tmp_path / "foreign"))
        trusting = foreign | {"distributed.comm.tls.ca-file": config_of(certificates)["distributed.comm.tls.ca-file"]}
        with dask.config.set(trusting):
            self.words(f"tls://127.0.0.1:{port}")

    def test_without_encryption(self, port: int) -> None:
        words = self.words(f"tcp://127.0.0.1:{port}")
        assert f"no scheduler answers at tcp://127.0.0.1:{port}" in words
        assert "is it one with TLS (then its address begins with tls://)" in words

    def test_by_ones_own_configuration(self, port: int) -> None:
        with dask.config.set({"distributed.comm.require-encryption": True}):
            words = self.words(f"tcp://127.0.0.1:{port}")
        assert "is not encrypted, and Dask's setting distributed.comm.require-encryption forbids that" in words


class Answering:
    """In a client's place: a scheduler on the network that answers."""

    def __init__(self, address: str, **_: object) -> None:
        self.scheduler = self
        self.address, self.status, self.id = address, "running", "client"

    def close(self) -> None:
        pass

    def wait_for_workers(self, *_: object, **__: object) -> None:
        pass

    def nthreads(self) -> dict[str, int]:
        return {}

    def register_plugin(self, _: object) -> None:
        pass

    def unregister_worker_plugin(self, _: str) -> None:
        pass


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cluster_module, "Client", Answering)
    monkeypatch.setattr(cluster_module, "warned", set())
    yield
    assert cluster_module.Client is not Client


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("address", ["tcp://10.0.0.7:8786", "head:8786", "tcp://[2001:db8::1]:8786"])
def test_a_scheduler_on_the_network_without_tls_is_warned_of_once(
    address: str, recwarn: pytest.WarningsRecorder
) -> None:
    for _ in range(2):
        with connected(RunSpec(scheduler=address), 1):
            pass
    (warning,) = recwarn
    words = str(warning.message)
    assert f"{address} IS NOT ENCRYPTED" in words
    assert "cluster/make_certs" in words
    assert "--require-tls" in words


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize(
    "address", ["tls://10.0.0.7:8786", "tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:8786", "127.0.0.1:8786"]
)
def test_encryption_or_loopback_is_no_cause_for_words(address: str) -> None:
    with connected(RunSpec(scheduler=address, require_tls=True), 1):
        pass


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("way", ["setting", "environment"])
def test_it_is_refused_where_tls_is_required(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "environment":
        monkeypatch.setenv("CKSC_REQUIRE_TLS", "1")
    with (
        pytest.raises(ClusterError, match="tcp://head:8786 is not encrypted, and TLS is required; make certificates"),
        connected(RunSpec(scheduler="tcp://head:8786", require_tls=way == "setting"), 1),
    ):
        pass


def test_a_cluster_on_this_machine_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens on loopback alone; cksc doctor had warned of an address without a name."""
    assert encryption_warning(RunSpec()) == ""
    monkeypatch.setenv("CKSC_REQUIRE_TLS", "1")
    assert encryption_warning(RunSpec()) == ""
