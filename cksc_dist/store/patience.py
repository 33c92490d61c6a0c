"""How long a store behind a URL is waited for that goes away for a while."""

from __future__ import annotations

import logging
import time

from cksc_dist.errors import StoreError

__all__ = ["NOT_AWAY", "Waiting"]

PATIENCE = 120.0
"""Seconds that a remote store may be away."""

SAID_FROM = 4.0
"""Seconds of a pause from which on a person should know why nothing happens."""

logger = logging.getLogger(__name__)

# what is wrong with the question, and will be so however long one waits
NOT_AWAY = (FileNotFoundError, PermissionError, StoreError, ValueError, TypeError, LookupError, NotImplementedError)


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
        """Return how many seconds to wait before the next attempt, or say that it has been enough."""
        pause, self._pause = self._pause, min(2 * self._pause, 5.0)
        if pause >= SAID_FROM and not self._said:
            self._said = True
            logger.warning("%s does not answer (%s); it is asked again for up to %.0f s", self._url, error, PATIENCE)
        if time.monotonic() + pause > self._give_up:
            raise StoreError(
                f"{self._url} has been away for {self._patience:.0f} s ({type(error).__name__}: {error}); what is done "
                "is kept: run the same command again when it is back"
            ) from error
        return pause
