"""Serving metrics over HTTP with prometheus-client, loaded only where `[metrics] listen` says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import structlog

from backhaul_runtime.clock import SystemClock

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.core import Metric as Family

    from backhaul_codec.assurance.metrics import Metric, Sample

ANSWER_S_MAX = 5.0
READY = "/ready"
"""Where a probe asks whether the program could do its work at once; no event loop is asked."""
log = structlog.get_logger("metrics")


class _Collector:
    """Asks the event loop for samples, from the thread of the HTTP server."""

    def __init__(self, metrics: Iterable[Metric], samples: Callable[[], Iterable[Sample]]) -> None:
        self._metrics = list(metrics)
        self._samples = samples
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterator[Family]:
        """Yield one family a metric, those without a value too."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        taken = asyncio.run_coroutine_threadsafe(self._take(), self._loop).result(ANSWER_S_MAX)
        for metric in self._metrics:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for sample in taken:
                if sample.metric is metric:
                    family.add_metric(sample.labels, float(sample.value))
            yield family

    async def _take(self) -> list[Sample]:
        return list(self._samples())


def _in_time(app: WSGIApplication, ready: Callable[[], bool]) -> WSGIApplication:
    """Refuse a question that is left open, or fails: of itself a server writes a raw traceback instead."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            if environ["PATH_INFO"] == READY:
                start_response("200 OK" if ready() else "503 Service Unavailable", [])
                return []
            return app(environ, start_response)
        except TimeoutError:
            log.warning("metrics_not_told_in_time", seconds=ANSWER_S_MAX)
            start_response("503 Service Unavailable", [])
        except Exception:
            log.exception("metrics_not_told")
            start_response("500 Internal Server Error", [])
        return []

    return answer


async def serve(
    listen: str,
    metrics: Iterable[Metric],
    samples: Callable[[], Iterable[Sample]],
    ready: Callable[[], bool] = lambda: True,
) -> None:
    """Serve ``listen`` ("127.0.0.1:9464"; empty: nothing) until cancelled; ``ready`` is asked in another thread.

    An address that cannot be had is logged, and everything else goes on.
    """
    if not listen:
        return
    from prometheus_client import CollectorRegistry, make_wsgi_app

    from backhaul_runtime.scrape_server import ScrapeServer

    registry = CollectorRegistry()
    registry.register(_Collector(metrics, samples))
    host, _, port = listen.rpartition(":")
    try:
        server = ScrapeServer(host, int(port), SystemClock().monotonic_s)
    except (OSError, OverflowError) as error:
        log.error("metrics_not_served", listen=listen, error=str(error))  # noqa: TRY400
        return
    log.info("metrics_served", listen=listen)
    server.set_app(_in_time(make_wsgi_app(registry), ready))
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    try:
        await asyncio.Event().wait()
    finally:
        # The server frees its address at once: the process that takes over may listen there.
        await asyncio.shield(asyncio.to_thread(server.end))
