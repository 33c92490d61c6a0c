"""A cluster that is started over ssh, through a private server on loopback."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.cluster.recipes import CLUSTER, address_of, check_that_two_worked, listening, make_certs
from tests.dist.processes import Starter, answers, chunk_files, free_port, wait_until

asyncssh = pytest.importorskip("asyncssh", reason="needs asyncssh: pip install 'cksc_dist[ssh]'")

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.ssh,
    pytest.mark.slow,
    pytest.mark.skipif(SSHD is None, reason="needs an ssh server: Debian's package openssh-server"),
]


def end_sessions(port: int) -> None:
    """Kill what was started through the server on a port; in sessions of its own, it would outlive a failed test."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("SSH_CONNECTION", "").endswith(f" 127.0.0.1 {port}"):
                process.kill()


@pytest.fixture(scope="module")
def ssh_options(start: Starter, folder: Path) -> Iterator[list[str]]:
    """What start_ssh.py is told of a server that listens on loopback, with keys of its own."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian's server wants it, and makes it at boot
    for name in ("host", "client"):
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(folder / name)
        asyncssh.read_private_key(folder / name).write_public_key(folder / f"{name}.pub")
        (folder / name).chmod(0o600)
    port = free_port()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\n"
        f"AllowUsers {getpass.getuser()}\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        "StrictModes no\nUsePAM no\nPidFile none\n"
    )
    start(str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config"))
    wait_until(lambda: answers(port), "an ssh server that answers")
    try:
        yield ["--ssh-port", str(port), "--ssh-key", f"{folder}/client", "--known-hosts", f"{folder}/known_hosts"]
    finally:
        end_sessions(port)


@pytest.mark.parametrize("tls", [pytest.param(False, marks=pytest.mark.campaign), True], ids=["plain", "tls"])
def test_two_workers_over_ssh_write_the_bytes_of_the_embedded_cluster(
    start: Starter, ssh_options: list[str], store: Path, tmp_path: Path, expected: dict[str, str], tls: bool
) -> None:
    environment = {"DASK_CONFIG": str(CLUSTER / "dask.yaml")} | (make_certs(tmp_path / "certs") if tls else {})
    cluster = start(
        *(sys.executable, str(CLUSTER / "start_ssh.py"), *["127.0.0.1"] * 3, *ssh_options, "--interface", "lo"),
        *(["--tls"] if tls else []),
        environment=environment,
    )
    address = address_of(cluster)
    assert address.startswith("tls://127.0.0.1:" if tls else "tcp://127.0.0.1:")
    run = start.cksc("distances", str(store), "--scheduler", address, environment=environment)
    assert run.wait() == 0, run.output
    assert chunk_files(store) == expected
    check_that_two_worked(store)
    if not tls:  # dashboards have no password: neither that of the scheduler nor those of workers may be open
        assert listening(address) == {"127.0.0.1"}
    port = int(address.rsplit(":", 1)[1])
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.wait(30.0) == 0, cluster.output
    assert "ending the cluster" in cluster.output
    wait_until(lambda: not answers(port), "the end of the scheduler", 30.0)
