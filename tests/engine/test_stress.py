"""Many visitors for a while: no error, nothing leaked, every survivor's text as alone.

    DSPARK_STRESS_S=600 python -m pytest -s tests/engine/test_stress.py -k tiny     # ten minutes on the tiny model
    DSPARK_STRESS_S=600 python -m pytest -s tests/engine/test_stress.py -k real     # and on the model that ships

Without DSPARK_STRESS_S only the tiny model's runs, for a few seconds. The report is printed.
"""

import os

import pytest

from dspark_core.admission import Limits
from dspark_core.decode_loop import DecodeLoop
from dspark_core.loading import find_model, load_drafters
from tests.engine.mixed import CURVE, tiny_loop
from tests.engine.stress import Stress
from tests.toy import FixedLoad

SECONDS = float(os.environ.get("DSPARK_STRESS_S", "4"))
LIMITS = Limits(max_active=32, max_waiting=8)
MOST_GROWTH_MB = 64  # of the process, beyond the most of the first half


def check(stress):
    report = stress.run(seconds=SECONDS, pause_s=0.02)
    print(f"\n{report}")  # noqa: T201 - it is what one runs this for
    assert report.compared >= 1
    assert report.finished == report.joins
    assert report.memory_after_mb - report.memory_first_half_mb < MOST_GROWTH_MB, report


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 10 + 600)
def test_on_the_tiny_model_32_visitors_at_random_leave_no_trace():
    check(Stress(tiny_loop, LIMITS, longest_prompt=600, longest_answer=120))


@pytest.mark.slow
@pytest.mark.skipif("DSPARK_STRESS_S" not in os.environ, reason="takes minutes: asked for by DSPARK_STRESS_S=SECONDS")
@pytest.mark.timeout(SECONDS * 10 + 1200)
def test_on_the_real_model_32_visitors_at_random_leave_no_trace(smollm2, smollm2_tokenizer):
    def make_loop():
        drafters = load_drafters(find_model("smollm2-135m"), "auto", smollm2)
        curve = CURVE.with_drafting(dict.fromkeys(drafters, CURVE.drafting["dspark"]))  # whatever ships
        return DecodeLoop(smollm2, smollm2_tokenizer, drafters, FixedLoad(), step_curve=curve)

    check(Stress(make_loop, LIMITS, variety=8, longest_prompt=300, longest_answer=24))
