"""Addresses within the hub's pages, of the form that hub/page/src/state/route.ts gives them. Pure."""

from __future__ import annotations

from datetime import date, timedelta
from urllib.parse import quote, urlencode, urlsplit

from backhaul_spark.errors import OptionError


class PageLinks:
    """Links into the hub's pages, at the day that is told of.

    Args:
        url: where the pages are served; empty: no links.

    Raises:
        OptionError: it is no address of http or https.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
        except ValueError:
            fits = False
        if url and not fits:
            raise OptionError("--page-url", url, "an address such as https://hub.example:8443")
        self._url = url.rstrip("/")

    def fleet(self, day: date) -> str:
        """Return the address of the fleet's screen, "" without pages."""
        return self._url and f"{self._url}/#/fleet?{urlencode({'range': _range(day)})}"

    def device(self, device: str, day: date, series: str = "") -> str:
        """Return the address of a device's screen, "" without pages."""
        said = {"series": series} if series else {}
        query = urlencode(said | {"range": _range(day)})
        return self._url and f"{self._url}/#/device/{quote(device, safe='')}?{query}"


def _range(day: date) -> str:
    return f"{day}T00:00:00.000Z~{day + timedelta(days=1)}T00:00:00.000Z"
