"""Start a Dask cluster on hosts that ssh reaches; stays until Ctrl-C, which ends it.

    DASK_CONFIG=cluster/dask.yaml python cluster/start_ssh.py HEAD HOST HOST... [--tls]

The first host runs the scheduler, every other one a worker (name a host several times for several workers). Needs
pip install 'cksc_dist[ssh]', ssh without a password, and the same path to Python on every host.
"""

from __future__ import annotations

import argparse
import time

from distributed import Security, SSHCluster


def main() -> None:
    """Start the cluster, print its address, and wait."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="+", metavar="HOST", help="first that of the scheduler, then those of workers")
    parser.add_argument("--memory", default="auto", metavar="SIZE", help="of one worker, as 4GiB (the host's share)")
    parser.add_argument("--interface", metavar="NAME", help="that workers listen on, as eth0 (all of the host)")
    parser.add_argument("--tls", action="store_true", help="encrypt, with the certificates of Dask's configuration")
    parser.add_argument("--ssh-port", type=int, default=22, metavar="N", help="(22)")
    parser.add_argument("--ssh-key", metavar="FILE", help="private key (those that ssh finds)")
    parser.add_argument("--known-hosts", metavar="FILE", help="keys of the hosts (~/.ssh/known_hosts)")
    options = parser.parse_args()
    if len(options.hosts) < 2:
        parser.error("give the scheduler's host and at least one for a worker, as: head node1 node2")
    protocol = "tls://" if options.tls else "tcp://"
    connect: dict[str, object] = {"port": options.ssh_port}
    connect |= {"client_keys": [options.ssh_key]} if options.ssh_key else {}
    connect |= {"known_hosts": options.known_hosts} if options.known_hosts else {}
    worker = {"nthreads": 1, "memory_limit": options.memory, "protocol": protocol, "dashboard_address": "127.0.0.1:0"}
    worker |= {"interface": options.interface} if options.interface else {}
    cluster = SSHCluster(
        options.hosts,
        connect_options=connect,
        worker_options=worker,
        scheduler_options={
            "host": options.hosts[0],
            "port": 0,
            "protocol": protocol,
            "dashboard_address": "127.0.0.1:8787",
        },
        security=Security() if options.tls else None,
    )
    with cluster:
        print(f"scheduler: {cluster.scheduler_address}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("ending the cluster", flush=True)


if __name__ == "__main__":
    main()
