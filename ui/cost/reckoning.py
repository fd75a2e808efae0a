"""From what was entered to the figures of the tab; all formulas are `dspark_core.cost`'s."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dspark_core.cost import ARTICLE, JOULES_PER_KWH, Fleet, Rebound, energy_per_request, number, totals
from dspark_core.errors import ParameterError
from ui.inputs import read_whole

REQUESTS, TOKENS = "requests", "tokens"
MAX_CURRENCY = 8
ELASTICITIES = tuple(step / 20 for step in range(61))  # 0 … 3


@dataclass(frozen=True, slots=True)
class Entered:
    """The controls, as entered; ``source`` is the browser's word of what was taken from a measurement."""

    gpus: object
    price: object
    currency: object
    unit: object
    before: object
    after: object
    tokens: object
    joules_before: object
    joules_after: object
    elasticity: object
    source: object


def reckoned(entered: Entered) -> dict[str, Any]:
    """The figures, JSON-able. Raises ParameterError, with the field's name."""
    fleet = Fleet(read_whole("The number of GPUs", entered.gpus), number("The price", entered.price, least=0))
    if not isinstance(entered.currency, str) or len(entered.currency.strip()) > MAX_CURRENCY:
        raise ParameterError(f"The currency is too long; enter at most {MAX_CURRENCY} characters, such as $ or EUR.")
    if entered.unit not in (REQUESTS, TOKENS):
        raise ParameterError("Choose whether requests or tokens a second are entered.")
    tokens = number("Tokens a request", entered.tokens)
    requests = [
        number(f"Requests a second {when}", value) if entered.unit == REQUESTS else fleet.requests_per_s(value, tokens)
        for when, value in (
            ("before", number("The throughput before", entered.before)),
            ("after", number("The throughput after", entered.after)),
        )
    ]
    costs = [fleet.cost_per_request(each) for each in requests]
    saving = requests[1] / requests[0]
    rebound = Rebound(saving, number("The elasticity", entered.elasticity, least=0))
    return {
        "kind": "cost",
        "currency": entered.currency.strip(),
        "said": _said(entered, fleet),
        "requests_per_s": requests,
        "cost_per_request": costs,
        "saving": saving,
        "joules_per_request": [_joules(value, tokens) for value in (entered.joules_before, entered.joules_after)],
        "kwh_per_million": [
            None if (joules := _joules(value, tokens)) is None else joules * 1e6 / JOULES_PER_KWH
            for value in (entered.joules_before, entered.joules_after)
        ],
        "elasticity": rebound.elasticity,
        "demand": rebound.demand,
        "total": rebound.total,
        "rises": rebound.rises,
        "curve": [list(pair) for pair in zip(ELASTICITIES, totals(saving, ELASTICITIES), strict=True)],
    }


def _joules(value: object, tokens: float) -> float | None:
    """Of a request; None where nothing is entered for a token."""
    if value is None or value == "" or value == 0:
        return None
    return energy_per_request(number("Joules a token", value), tokens)


def _said(entered: Entered, fleet: Fleet) -> str:
    """Where the throughput comes from: "published", "measured" or "typed"."""
    pair = (entered.before, entered.after)
    if entered.unit == REQUESTS and pair == ARTICLE.requests_per_s and fleet == article_fleet():
        return "published"
    try:
        taken = json.loads(entered.source) if isinstance(entered.source, str) and entered.source else {}
        measured = [taken["before"], taken["after"], taken["tokens"]] == [*pair, entered.tokens]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "typed"
    return "measured" if measured and entered.unit == TOKENS else "typed"


def article_fleet() -> Fleet:
    """The article's machines, at the price that its figures imply."""
    return Fleet(ARTICLE.gpus, round(ARTICLE.price_per_gpu_hour, 6))
