"""What the charts of a load test show, as `evaluate.charts` values: `png` and `page` draw them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dspark_core.evaluate.charts import Chart, Panel, Series
from dspark_core.load_test.tables import levels, measured_on


def charts(report: Mapping[str, Any]) -> list[Chart]:
    """Throughput and budget over the users at once, and throughput over the speed for each user."""
    return [
        _by_users(
            report,
            "throughput",
            "Throughput over users at once, with 95 % intervals",
            "committed tokens a second, of all users",
        ),
        _by_users(
            report,
            "budget",
            "Verification budget over users at once, with 95 % intervals",
            "tokens in the pass per request and round (1 + ℓ)",
        ),
        _chart(
            report,
            "throughput_over_user_speed",
            "Throughput over speed for each user",
            "tokens a second for each user (median over answers); at each point the number of users",
            "committed tokens a second, of all users",
            "curve",
            tuple(_over_speed(name, cells) for name, cells in report["results"].items()),
        ),
    ]


def _by_users(report: Mapping[str, Any], figure: str, title: str, y_label: str) -> Chart:
    return _chart(
        report,
        f"{figure}_over_users",
        title,
        "users at once, with the answers that count for each lane",
        y_label,
        "lines",
        tuple(_over_users(name, cells, figure) for name, cells in report["results"].items()),
    )


def _chart(
    report: Mapping[str, Any],
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    kind: Literal["lines", "curve"],
    series: tuple[Series, ...],
) -> Chart:
    users = levels(report)
    panel = Panel(f"{users[0]} to {users[-1]} users" if len(users) > 1 else f"users: {users[0]}", series)
    caption = f"{measured_on(report)} {report['settings']['command']}"
    return Chart(name, title, x_label, y_label, kind, 1, (panel,), caption)


def _over_users(name: str, cells: Mapping[str, Any], figure: str) -> Series:
    return Series(
        name,
        tuple(cells),
        tuple(cell[figure] for cell in cells.values()),
        tuple(cell[f"{figure}_interval"] for cell in cells.values()),
        tuple(cell["answers"] for cell in cells.values()),
    )


def _over_speed(name: str, cells: Mapping[str, Any]) -> Series:
    seen = {users: cell for users, cell in cells.items() if cell["user_tokens_per_s"] is not None}
    return Series(
        name,
        tuple(seen),
        tuple(cell["throughput"] for cell in seen.values()),
        tuple(cell["throughput_interval"] for cell in seen.values()),
        tuple(cell["answers"] for cell in seen.values()),
        at=tuple(cell["user_tokens_per_s"] for cell in seen.values()),
    )
