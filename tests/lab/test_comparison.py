"""Plain decoding beside a policy: on the toy's own engine equal laws pass, and a bent one is found."""

import threading
from collections import Counter
from contextlib import closing

import pytest

from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.engine import Engine
from dspark_core.errors import ParameterError
from dspark_core.lab.comparison import ENDED, PLAIN, Comparison, requests_for, views_of
from dspark_core.lab.crowd import answers
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from tests.event_samples import decode_round
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer

WARM = SamplingParams(temperature=1.0, top_k=2)
REQUEST = GenerationRequest((1, 1, 0), WARM, ScheduleParams("threshold", 0, 2, 0.5), "table", inspect=True)


def compared(texts=150, tokens=2):
    drafters = {"table": TableDrafter(), "none": NoneDrafter()}
    comparison = Comparison(tokens)
    engine = Engine(DecodeLoop(ToyTarget(), ToyTokenizer(), drafters, FixedLoad()))
    with closing(engine):
        for told in answers(engine, requests_for(REQUEST, texts, tokens, seed=1), threading.Event()):
            if told:
                comparison.add(told[0] % 2, told[1])
    return comparison


def test_lossless_texts_pass_in_every_view():
    comparison = compared()
    assert comparison.done == (150, 150)
    views = comparison.views()
    assert [view.places for view in views] == [(1,), (2,), (1, 2)]
    assert all(view.verdict.p_value > 1e-3 for view in views)
    assert views[2].verdict.cells > 3
    assert set(comparison.words) >= {token for outcome in comparison.texts[0] for token in outcome}


def test_a_law_that_differs_in_the_second_token_alone_is_found_there_and_in_the_pair():
    comparison = Comparison(2)
    comparison.texts[0].update({(1, 1): 100, (1, 2): 100, (2, 1): 100, (2, 2): 100})
    comparison.texts[1].update({(1, 1): 160, (1, 2): 40, (2, 1): 40, (2, 2): 160})
    first, second, pair = (view.verdict.p_value for view in comparison.views())
    assert first == second == 1.0  # either token by itself is as before: only together they tell
    assert pair < 1e-9


def test_a_text_that_ended_has_a_mark_in_place_of_its_missing_token():
    comparison = Comparison(3)
    comparison.add(0, [decode_round("r")])
    (outcome,) = comparison.texts[0]
    assert outcome[1:] == (ENDED, ENDED)


def test_the_lanes_take_turns_with_a_seed_for_each_text():
    made = list(requests_for(REQUEST, 100, 2, seed=5))
    assert len(made) == 200
    assert len({request.sampling.seed for request in made}) == 200
    assert {(r.schedule, r.drafter) for r in made[0::2]} == {(PLAIN, "none")}
    assert {(r.schedule, r.drafter) for r in made[1::2]} == {(REQUEST.schedule, "table")}
    assert {(r.sampling.temperature, r.sampling.top_k, r.inspect) for r in made} == {(1.0, 2, False)}
    assert all(r.sampling.max_new_tokens > 2 for r in made), "drafts behind the tokens compared must be possible"


@pytest.mark.parametrize(
    ("request_", "texts", "tokens", "words"),
    [
        (REQUEST, 99, 2, "take 100 to 5,000"),
        (REQUEST, 5001, 2, "take 100 to 5,000"),
        (REQUEST, 100, 4, "compare 1 to 3"),
        (GenerationRequest((1,), SamplingParams(), REQUEST.schedule, "table"), 100, 2, "temperature is 0"),
    ],
)
def test_what_would_show_nothing_is_refused_at_once(request_, texts, tokens, words):
    with pytest.raises(ParameterError, match=words):
        requests_for(request_, texts, tokens, seed=1)


def test_every_place_and_every_beginning_is_a_view():
    assert views_of(1) == [(1,)]
    assert views_of(3) == [(1,), (2,), (3,), (1, 2), (1, 2, 3)]
    comparison = Comparison(1)
    comparison.texts[0].update({(1,): 3})
    assert comparison.views()[0].plain == Counter({(1,): 3})
