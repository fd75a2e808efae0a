"""What an address may give, and what becomes of the rest."""

import gradio as gr
import pytest

from dspark_core.errors import ParameterError
from tests.ui.pages import in_a_loop
from ui.address import MAX_TEXT, Address
from ui.inputs import read_seed
from ui.race.offers import check_lane


@pytest.fixture(scope="module")
def address():
    def build():
        with gr.Blocks(analytics_enabled=False):
            address = Address(("chat", "rounds"))
            address.add("l_min", gr.Slider(0, 15, 1, step=1), clipped=True)
            address.add("l_max", gr.Slider(0, 15, 8, step=1), clipped=True)
            address.add("threshold", gr.Slider(0, 1, 0.3, step=0.01))
            address.add("beyond", gr.Checkbox(value=True))
            address.add("policy", gr.Dropdown(["threshold", "fixed"], value="threshold"))
            address.add("sets", gr.CheckboxGroup(["chat", "code"], value=["chat"]))
            address.add(
                "lanes",
                gr.Dropdown(["plain"], multiselect=True, max_choices=3, allow_custom_value=True, value=["plain"]),
                check=check_lane,
            )
            address.add("price", gr.Number(3.6, minimum=0))
            address.add("cards", gr.Number(100, precision=0, minimum=1))
            address.add("seed", gr.Textbox(), check=read_seed)
            address.add("prompt", gr.Textbox(), follow=False)
            address.pair("l_min", "l_max")
        return address

    return in_a_loop(build)


def test_good_values_are_read_by_the_kind_of_their_control(address):
    query = {"l_min": "3", "threshold": "0.6", "beyond": "0", "policy": "fixed", "seed": "5", "prompt": "${1} <b>"}
    values, problems = address.read(query, {})
    assert problems == []
    assert values == {
        "l_min": 3, "threshold": 0.6, "beyond": False, "policy": "fixed", "seed": "5", "prompt": "${1} <b>",
    }  # fmt: skip


def test_a_list_is_names_with_commas_between_and_the_same_name_counts_once(address):
    values, problems = address.read({"sets": "code, chat,code", "lanes": "plain,dspark+fixed@3"}, {})
    assert problems == []
    assert values == {"sets": ["code", "chat"], "lanes": ["plain", "dspark+fixed@3"]}


def test_a_number_field_takes_fractions_where_it_is_not_rounded_to_whole_numbers(address):
    assert address.read({"price": "2.75", "cards": "8"}, {}) == ({"price": 2.75, "cards": 8}, [])


@pytest.mark.parametrize("bad", ["", "nan", "inf", "-1", "1.5", "\u0661", "<img src=x>", "9" * 5000, "0x1", "0_1", "'"])
def test_a_bad_number_is_told_with_its_name_and_what_is_allowed_while_the_rest_applies(address, bad):
    values, problems = address.read({"threshold": bad, "policy": "fixed"}, {})
    assert values == {"policy": "fixed"}
    (problem,) = problems
    assert problem.startswith("threshold is ")
    assert "from 0 to 1" in problem
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("name", "bad", "told"),
    [
        ("policy", "<b>", "threshold, fixed"),
        ("beyond", "yes", "0, 1"),
        ("sets", "chat,<b>", "chat, code"),
        ("sets", ",", "1 to 2 names"),
        ("lanes", "a,b,c,d", "1 to 3 names"),
        ("lanes", "plain,<img src=x>", "no lane named"),
        ("lanes", "dspark+fixed@-1", "lanes: "),
        ("lanes", "x" * 3000 + "+fixed", "3,006 characters"),
        ("cards", "2.5", "a whole number from 1 to any"),
        ("price", "-1", "a number from 0 to any"),
        ("l_max", "2.5", "a whole number from 0 to 15"),
        ("l_max", "inf", "a whole number from 0 to 15"),
        ("seed", "x", "seed"),
        ("prompt", "x" * (MAX_TEXT + 1), "2,001 characters"),
        ("tab", "nowhere", "chat, rounds"),
        ("lang", "xx", "en, zh"),
        ("seed", "1" * 50, "50 digits"),
    ],
)
def test_what_a_control_cannot_take_is_refused_by_name(address, name, bad, told):
    values, problems = address.read({name: bad}, {})
    assert values == {}
    assert len(problems) == 1
    assert name in problems[0]
    assert told in problems[0]


def test_lengths_above_what_is_drafted_act_as_that(address):
    fitted = {address.parameters["l_max"].component: gr.update(maximum=7, value=7)}
    assert address.read({"l_max": "40"}, fitted) == ({"l_max": 7}, [])


def test_a_pair_that_contradicts_itself_is_left_out_also_where_one_half_is_the_default(address):
    for query in ({"l_min": "9"}, {"l_min": "5", "l_max": "2"}):
        values, problems = address.read(query, {})
        assert values == {}
        assert "l_min must not be above l_max" in problems[0]


def test_names_that_nobody_registered_are_left_alone(address):
    assert address.read({"utm_source": "x", "__theme": "dark", "lang": "zh"}, {}) == ({}, [])


def test_of_a_name_that_comes_again_the_first_value_counts_and_it_is_told(address):
    query = [
        ("tab", "rounds"),
        ("l_max", "3"),
        ("utm", "1"),
        ("tab", "<b>"),
        ("l_max", "5"),
        ("l_max", "x"),
        ("utm", "2"),
    ]
    values, problems = address.read(query, {})
    assert values == {"l_max": 3}
    assert problems == [f"{name} stands there more than once; the first counts." for name in ("tab", "l_max")]


def test_a_value_goes_into_the_update_that_the_session_makes(address):
    part = address.parameters["l_max"].component
    fitted = {part: gr.update(maximum=7, value=7)}
    assert address.changes({"l_max": 2}, fitted)[part] == gr.update(maximum=7, value=2)
    assert address.changes({"l_max": 2}, {}) == {part: gr.update(value=2)}
    assert address.message({"l_max": 2}, fitted)["defaults"]["l_max"] == 7


def test_a_name_is_given_once(address):
    for name in ("l_min", "tab", "lang", "__theme"):
        with pytest.raises(AssertionError):
            address.add(name, None)


def test_choices_are_the_sessions_own(address):
    fitted = {address.parameters["policy"].component: gr.update(choices=["prefix"], value="prefix")}
    assert address.read({"policy": "prefix"}, fitted) == ({"policy": "prefix"}, [])
    with pytest.raises(ParameterError):
        address.parameters["policy"].read("fixed", {"choices": ["prefix"]})
