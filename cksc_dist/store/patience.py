"""How long a store behind a URL is waited for that goes away for a while."""

from __future__ import annotations

import logging
import time

from cksc_dist.errors import CkscError, StoreAwayError

__all__ = ["NOT_AWAY", "Waiting"]

PATIENCE = 120.0
"""Seconds that a remote store may be away."""

SAID_FROM = 4.0
"""Seconds of a pause from which on a person should know why nothing happens."""

MOST_SAID = 150
"""Letters of an error that is told."""

logger = logging.getLogger(__name__)

# what is wrong with the question, and will be so however long one waits
NOT_AWAY = (
    FileNotFoundError,
    PermissionError,
    CkscError,
    ValueError,
    TypeError,
    LookupError,
    NotImplementedError,
    MemoryError,
)

_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, here and on every worker; where you log in for a "
    "while, log in again"
)
_SETTINGS = "mend the settings of AWS: AWS_PROFILE, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, and the files in ~/.aws"
_NAME = (
    "mend the address: it begins with s3://BUCKET/, where BUCKET has 3 to 63 small letters, digits, dots and hyphens"
)

# by name: the library of S3 need not be there, and has its own kinds for what is wrong before any server is asked
_NOT_ASKED = {
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "UnknownCredentialError": _CREDENTIALS,
    "TokenRetrievalError": _CREDENTIALS,
    "SSOError": _CREDENTIALS,
    "ProfileNotFound": _SETTINGS,
    "ConfigNotFound": _SETTINGS,
    "ConfigParseError": _SETTINGS,
    "InvalidConfigError": _SETTINGS,
    "InvalidEndpointConfigurationError": _SETTINGS,
    "NoRegionError": _SETTINGS,
    "ParamValidationError": _NAME,
}


def _what_to_set(error: Exception) -> str:
    """Return what to do about an error of a library that could not ask its server; empty: it is another error."""
    kinds = (kind for kind in type(error).__mro__ if kind.__module__.split(".")[0] == "botocore")
    return next((words for kind in kinds if (words := _NOT_ASKED.get(kind.__name__))), "")


def _one_line(error: Exception) -> str:
    """Return what an error says, without the long patterns that names of buckets are compared with."""
    text = " ".join(str(error).split())
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}..."


class Waiting:
    """How long to wait for a store that is away, and when to give up.

    Parameters
    ----------
    url
        The store.
    """

    def __init__(self, url: str) -> None:
        self._url, self._patience = url, PATIENCE
        self._give_up, self._pause, self._said = time.monotonic() + PATIENCE, 0.25, False

    def pause(self, error: Exception) -> float:
        """Return how many seconds to wait before the next attempt, or say that it has been enough.

        What waiting does not help against is said at once.
        """
        if words := _what_to_set(error):
            raise StoreAwayError(f"{self._url} cannot be asked for ({_one_line(error)}): {words}") from error
        pause, self._pause = self._pause, min(2 * self._pause, 5.0)
        if pause >= SAID_FROM and not self._said:
            self._said = True
            logger.warning("%s does not answer (%s); it is asked again for up to %.0f s", self._url, error, PATIENCE)
        if time.monotonic() + pause > self._give_up:
            raise StoreAwayError(
                f"{self._url} has been away for {self._patience:.0f} s ({type(error).__name__}: {error}); what is done "
                "is kept: run the same command again when it is back"
            ) from error
        return pause
