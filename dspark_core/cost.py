"""What answers cost: requests a second, money and energy for a request, and the rebound when they get cheaper. Pure.

Throughput is tokens a second (or requests a second), prices are in any one currency, energy in joules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_core.errors import ParameterError, shown

SECONDS_PER_HOUR = 3600.0
LARGEST, SMALLEST = 1e12, 1e-12  # of every number that is entered, apart from 0
JOULES_PER_KWH = 3.6e6


def number(name: str, value: object, *, above: float = 0.0, least: float | None = None) -> float:
    """``value`` as a float. Raises ParameterError: it is no finite number ``above`` (or from ``least`` on), or vast."""
    limit = f"from {least:g} on" if least is not None else f"above {above:g}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        within = value > above if least is None else value >= least
        if within and (value == 0 or SMALLEST <= abs(value) <= LARGEST):  # NaN is neither
            return float(value)
    said = "empty" if value is None or value == "" else shown(value)
    raise ParameterError(
        f"{name} is {said}; enter a number {limit}, at most {LARGEST:g} (the smallest is {SMALLEST:g})."
    )


@dataclass(frozen=True, slots=True)
class Fleet:
    """The machines that answer.

    Attributes:
        gpus: how many, ≥ 1.
        price_per_gpu_hour: of one of them, ≥ 0.

    Raises:
        ParameterError: a value is outside its range.
    """

    gpus: int
    price_per_gpu_hour: float

    def __post_init__(self) -> None:
        if not isinstance(self.gpus, int) or isinstance(self.gpus, bool) or not 1 <= self.gpus <= LARGEST:
            raise ParameterError(f"The number of GPUs is {shown(self.gpus)}; enter a whole number from 1 on.")
        number("The price of a GPU-hour", self.price_per_gpu_hour, least=0)

    @property
    def price_per_s(self) -> float:
        """Of the whole fleet: gpus · price / 3600."""
        return self.gpus * self.price_per_gpu_hour / SECONDS_PER_HOUR

    def requests_per_s(self, tokens_per_s: float, tokens_per_request: float) -> float:
        """Requests that all of them answer: gpus · (tokens/s of one) / (tokens a request). Raises ParameterError."""
        speed = number("Tokens a second of one GPU", tokens_per_s)
        return self.gpus * speed / number("Tokens a request", tokens_per_request)

    def cost_per_request(self, requests_per_s: float) -> float:
        """Price of a second over the requests answered in it. Raises ParameterError."""
        return self.price_per_s / number("Requests a second", requests_per_s)


def energy_per_request(joules_per_token: float, tokens_per_request: float) -> float:
    """Joules. Raises ParameterError."""
    return number("Joules a token", joules_per_token) * number("Tokens a request", tokens_per_request)


@dataclass(frozen=True, slots=True)
class Rebound:
    """What becomes of demand and of the total when a unit gets cheaper (Jevons), with constant elasticity.

    Demand is D(c) = D₀ · (c / c₀)^(-ε). When the unit cost goes from c₀ to c₀ / s, demand grows to D₀ · s^ε, and the
    total (demand times unit cost; energy too, where energy for a unit falls as its cost does) to s^(ε-1) of before.

    Attributes:
        saving: s, how many times cheaper a unit got, > 0 (below 1 it got dearer).
        elasticity: ε ≥ 0: by how many per cent demand rises when the unit cost falls by one per cent.

    Raises:
        ParameterError: a value is outside its range.
    """

    saving: float
    elasticity: float

    def __post_init__(self) -> None:
        number("The saving", self.saving)
        if not number("The elasticity", self.elasticity, least=0) <= 10:
            raise ParameterError(f"The elasticity is {self.elasticity}; enter a number from 0 to 10.")

    @property
    def demand(self) -> float:
        """Units asked for, over those before: s^ε. Raises ParameterError where that is beyond all numbers."""
        return self._power(self.elasticity)

    @property
    def total(self) -> float:
        """Total cost or energy, over that before: s^(ε-1). Above 1 although each unit got cheaper: the rebound."""
        return self._power(self.elasticity - 1)

    @property
    def rises(self) -> bool:
        """Whether the total rises although each unit got cheaper: s > 1 and ε > 1."""
        return self.saving > 1 and self.elasticity > 1

    def _power(self, exponent: float) -> float:
        try:
            return float(self.saving**exponent)
        except OverflowError:
            raise ParameterError(
                f"With a saving of {self.saving:g} and an elasticity of {self.elasticity:g} demand is beyond all "
                "numbers. Enter a smaller saving or elasticity."
            ) from None


def totals(saving: float, elasticities: Sequence[float]) -> list[float]:
    """`Rebound.total` for each elasticity. Raises ParameterError."""
    return [Rebound(saving, elasticity).total for elasticity in elasticities]


@dataclass(frozen=True, slots=True)
class Published:
    """The example of the article that this project follows: a claim about its authors' machines.

    Attributes:
        gpus: cards.
        requests_per_s: before and after.
        cost_per_request: before and after, in dollars.
    """

    gpus: int = 100
    requests_per_s: tuple[float, float] = (10.0, 25.0)
    cost_per_request: tuple[float, float] = (0.01, 0.004)

    @property
    def price_per_gpu_hour(self) -> float:
        """The price that its numbers imply; the article does not tell it: requests/s · cost · 3600 / cards."""
        return self.requests_per_s[0] * self.cost_per_request[0] * SECONDS_PER_HOUR / self.gpus


ARTICLE = Published()
Gain = tuple[int, int | None, int, int]  # requests at once from, to (None: any number); throughput gained, per cent
ARTICLE_GAINS: tuple[Gain, ...] = ((1, 9, 51, 100), (10, 50, 100, 200), (51, None, 200, 400))
