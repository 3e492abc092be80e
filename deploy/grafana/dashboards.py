"""Write the dashboards of panels.py as JSON: `python deploy/grafana/dashboards.py [DIRECTORY]`.

tests/integration/test_prometheus.py asks each panel's questions of a real Prometheus, and compares the files in
`dashboards` with panels.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from panels import DASHBOARDS, SCRAPED_AS, Panel

SOURCE = {"type": "prometheus", "uid": "${source}"}
COLUMNS = 24
# As the pages have them on dark ground: told apart by the colour-blind, and by lightness.
WELL, LOOK, ACT = "#2f8fd0", "#d08f00", "#ff6b4a"


def question(ask: str, job: str) -> str:
    """Return a question with job and chosen instances added to each metric."""

    def chosen(found: re.Match[str]) -> str:
        more = f", {found[2]}" if found[2] else ""
        return f'{found[1]}{{job="{job}", instance=~"$instance"{more}}}'

    return re.sub(r"\b(backhaul_\w+|up)(?:\{([^}]*)\}|\b(?![\w({]))", chosen, ask)


def dashboard(name: str) -> dict[str, Any]:
    """Return a dashboard as Grafana (11 and later) takes it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in DASHBOARDS[name].items():
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": place})
        top, left = top + 1, 0
        height = 4 if row[0].kind == "stat" else 8
        for panel in row:
            if left + panel.width > COLUMNS:
                top, left = top + height, 0
            place = {"h": height, "w": panel.width, "x": left, "y": top}
            panels.append({**_panel(panel, SCRAPED_AS[name]), "gridPos": place})
            left += panel.width
        top += height
    return {
        "uid": f"backhaul-{name}",
        "title": f"backhaul: {name}",
        "tags": ["backhaul"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["backhaul"], "title": "backhaul", "keepTime": True}
        ],
        "templating": {"list": _variables(SCRAPED_AS[name])},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def _variables(job: str) -> list[dict[str, Any]]:
    return [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "instance",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": f'label_values(up{{job="{job}"}}, instance)', "refId": "instance"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]


def _panel(panel: Panel, job: str) -> dict[str, Any]:
    steps = [{"color": WELL, "value": None}]
    steps += [
        {"color": colour, "value": value}
        for colour, value in ((LOOK, panel.look), (ACT, panel.act))
        if value is not None
    ]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        # Blue, orange and their like: told apart by the colour-blind, by lightness too.
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic-by-name"},
    }
    if panel.kind == "timeseries":
        style = "line" if len(steps) > 1 else "off"
        defaults |= {
            "min": None if panel.unit in ("s", "cps") else 0,
            "custom": {
                "lineWidth": 1,
                "fillOpacity": 8,
                "showPoints": "auto",
                "spanNulls": False,
                "thresholdsStyle": {"mode": style},
            },
        }
        options: dict[str, Any] = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": question(ask, job),
                "legendFormat": legend or panel.title,
            }
            for number, (ask, legend) in enumerate(panel.asks.items())
        ],
    }


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "dashboards")
    for each in DASHBOARDS:
        text = json.dumps(dashboard(each), indent=1, ensure_ascii=False)
        (directory / f"{each}.json").write_text(text + "\n", encoding="utf-8")
