"""The tab Cost: figures are the core's, labels tell where the throughput comes from, bad input is refused kindly."""

import json
from dataclasses import replace

import pytest

from dspark_core.cost import ARTICLE
from dspark_core.errors import ParameterError
from ui.cost.reckoning import REQUESTS, TOKENS, Entered, reckoned
from ui.cost.tab import Cost

EXAMPLE = Entered(100, 3.6, "$", REQUESTS, 10, 25, 200, 0, None, 1.3, "")
MEASURED = replace(
    EXAMPLE, gpus=1, unit=TOKENS, before=40.0, after=60.0, tokens=64,
    source=json.dumps({"before": 40.0, "after": 60.0, "tokens": 64}),
)  # fmt: skip


def test_the_articles_example_comes_out_as_published():
    found = reckoned(EXAMPLE)
    assert found["cost_per_request"] == pytest.approx(list(ARTICLE.cost_per_request))
    assert found["requests_per_s"] == list(ARTICLE.requests_per_s)
    assert found["said"] == "published"
    assert found["joules_per_request"] == [None, None]


@pytest.mark.parametrize("changed", [{"before": 11}, {"after": 24}, {"gpus": 99}, {"price": 4}])
def test_whatever_is_changed_of_it_is_no_longer_called_published(changed):
    assert reckoned(replace(EXAMPLE, **changed))["said"] == "typed"


def test_what_was_taken_from_a_measurement_is_called_measured_until_it_is_changed():
    assert reckoned(MEASURED)["said"] == "measured"
    assert reckoned(MEASURED)["requests_per_s"] == pytest.approx([40 / 64, 60 / 64])
    for changed in (
        {"before": 41},
        {"tokens": 65},
        {"unit": REQUESTS},
        {"source": "{"},
        {"source": "[1]"},
        {"source": 3},
    ):
        assert reckoned(replace(MEASURED, **changed))["said"] == "typed"


def test_energy_is_told_where_joules_are_known():
    found = reckoned(replace(MEASURED, joules_before=2.0, joules_after=1.5))
    assert found["joules_per_request"] == [128, 96]
    assert found["kwh_per_million"] == pytest.approx([128e6 / 3.6e6, 96e6 / 3.6e6])


def test_the_rebound_rises_above_an_elasticity_of_one():
    rises = [reckoned(replace(EXAMPLE, elasticity=e))["rises"] for e in (0.5, 1, 1.05)]
    assert rises == [False, False, True]
    found = reckoned(EXAMPLE)
    assert found["total"] == pytest.approx(2.5**0.3)
    assert dict(map(tuple, found["curve"]))[1.0] == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpus": None}, "number of GPUs"), ({"gpus": 0}, "number of GPUs"), ({"price": -1}, "price"),
        ({"currency": "x" * 9}, "currency"), ({"currency": None}, "currency"), ({"unit": "miles"}, "Choose whether"),
        ({"before": 0}, "throughput before"), ({"after": None}, "throughput after"), ({"tokens": "many"}, "Tokens"),
        ({"joules_before": -1}, "Joules"), ({"elasticity": 11}, "elasticity"), ({"elasticity": None}, "elasticity"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name_and_the_page_is_told(changed, said):
    entered = replace(EXAMPLE, **changed)
    with pytest.raises(ParameterError, match=said):
        reckoned(entered)
    told = json.loads(Cost().reckon(*(getattr(entered, name) for name in Entered.__slots__)))
    assert said in told["error"]
