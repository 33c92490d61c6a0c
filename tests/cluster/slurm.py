"""SLURM with two virtual nodes on this machine, on loopback alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.dist.processes import Starter, free_port, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "scancel")
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin"


def missing() -> str:
    """Say what keeps SLURM from being started; empty where nothing does."""
    if os.geteuid() != 0:
        return "needs root, to start SLURM"
    absent = [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]
    return f"needs {', '.join(absent)}: Debian's packages slurm-wlm and munge" if absent else ""


def start_slurm(start: Starter, folder: Path) -> dict[str, str]:
    """Start munge, a controller and two nodes; return the environment in which sbatch finds them."""
    host, socket_file, ports = socket.gethostname().split(".")[0], folder / "munge.socket", [free_port() for _ in "123"]
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    nodes = "\n".join(
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i]} CPUs=1 RealMemory=2000 State=UNKNOWN"
        for i in (1, 2)
    )
    (folder / "slurm.conf").write_text(f"""\
ClusterName=cksc
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket_file}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SchedulerParameters=batch_sched_delay=0,sched_interval=1
{nodes}
PartitionName=short Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
""")
    for name in ("state", "spool.n1", "spool.n2"):
        (folder / name).mkdir()
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    start(
        *(_program("munged"), "-F", "--key-file", f"{folder}/munge.key", "--socket", str(socket_file)),
        *("--pid-file", f"{folder}/munge.pid", "--seed-file", f"{folder}/munge.seed", "--log-file", f"{folder}/m.log"),
    )
    wait_until(socket_file.exists, "munge", 20.0)
    start(_program("slurmctld"), "-D", environment=environment)
    for node in ("n1", "n2"):
        start(_program("slurmd"), "-D", "-N", node, environment=environment)

    def idle() -> bool:
        asked = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, env={**os.environ, **environment}
        )
        return asked.stdout.split() == ["idle", "idle"]

    wait_until(idle, "two idle nodes", 30.0)
    return environment


def end_jobs(environment: dict[str, str]) -> None:
    """Kill all jobs and wait for their end: they are in sessions of their own, and would outlive the daemons."""
    asked = {**os.environ, **environment}
    subprocess.run(["scancel", "--full", "--signal=KILL", "--user=root"], env=asked, capture_output=True, timeout=30)
    subprocess.run(["scancel", "--user=root"], env=asked, capture_output=True, timeout=30)  # those that wait

    def over() -> bool:
        queue = subprocess.run(["squeue", "-h"], env=asked, capture_output=True, text=True, timeout=30)
        return queue.returncode == 0 and not queue.stdout.strip()

    wait_until(over, "the end of all jobs", 30.0)


def _program(name: str) -> str:
    found = shutil.which(name, path=SBIN)
    assert found is not None
    return found
