"""Whether what is sent to a scheduler is encrypted, and what a person has to do so that it is."""

from __future__ import annotations

import ipaddress
import os

import dask

from cksc_dist.errors import ClusterError
from cksc_dist.spec import RunSpec

__all__ = ["check_encryption", "encryption_warning", "is_encrypted", "is_here", "lacking_certificates", "warned"]

warned: set[str] = set()
"""Addresses of schedulers without TLS of which a person has been told."""


def lacking_certificates(address: str) -> str:
    """Say which file that TLS needs is missing, and what to do; empty where all are there, or none is needed."""
    missing = _missing_file(address)
    if not missing:
        return ""
    return (
        f"but there is {missing}; set the lines that cluster/make_certs printed "
        "(export DASK_DISTRIBUTED__COMM__TLS__...) here as well"
    )


def _missing_file(address: str) -> str:
    """Name the first file that TLS needs and that is not set or not there; empty where all are, or none is needed."""
    if not is_encrypted(address):
        return ""
    for key in ("ca-file", "client.cert", "client.key"):
        name = f"distributed.comm.tls.{key}"
        value = dask.config.get(name, None)
        if value is None and key != "client.key":  # the key may be in the file of the certificate
            return f"no {name} in Dask's configuration"
        if value is not None and "\n" not in value and not os.access(value, os.R_OK):
            return f"no readable file {value}, which {name} names"
    return ""


def is_encrypted(address: str) -> bool:
    """Tell whether an address asks for TLS; one without a scheme goes by Dask's own setting."""
    default = dask.config.get("distributed.comm.default-scheme", "tcp")
    return (address.split("://")[0] if "://" in address else default) in ("tls", "wss")


def is_here(address: str) -> bool:
    """Tell whether what is sent to an address stays on this machine."""
    scheme, _, rest = address.rpartition("://")
    host = rest.rsplit(":", 1)[0].strip("[]")
    if scheme == "inproc" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def encryption_warning(run: RunSpec) -> str:
    """Return what is to be said of a scheduler without TLS, and take it as said; refuse it as settings demand."""
    text = check_encryption(run)
    if text:
        warned.add(run.scheduler or "")
    return text


def check_encryption(run: RunSpec) -> str:
    """Return a warning of a scheduler that is reached over a network without TLS, or refuse it as settings demand."""
    address = run.scheduler
    if address is None or is_encrypted(address) or is_here(address):  # one that is started here listens here alone
        return ""
    recipe = (
        "make certificates with cluster/make_certs, set the lines that it prints for scheduler, workers and here, and "
        "use the tls:// address (cluster/README.md)"
    )
    if run.require_tls or os.environ.get("CKSC_REQUIRE_TLS", "0") not in ("", "0"):
        raise ClusterError(f"{address} is not encrypted, and TLS is required; {recipe}")
    return (
        f"{address} IS NOT ENCRYPTED: whoever reaches it over the network can read the data and run code on every "
        f"worker, and here; {recipe}. --require-tls, or CKSC_REQUIRE_TLS=1, makes this an error"
    )
