"""The short way in for Python, on the real model."""

import pytest

from dspark_core import DSpark
from dspark_core.errors import DSparkError, ModelUnavailableError, ParameterError
from dspark_core.events import DecodeRound, Prefilled
from dspark_core.loading import choose_device


@pytest.fixture(scope="module")
def dspark():
    with DSpark(main_model="smollm2-135m", draft_model="auto", max_draft_len=4, confidence_threshold=0.2) as session:
        yield session


def test_generate_gives_the_text_that_the_events_stream(dspark):
    events = list(dspark.stream("What is the capital of France?", max_length=16))
    text = dspark.generate("What is the capital of France?", max_length=16)
    assert text == events[-1].text
    assert "Paris" in text
    assert isinstance(events[0], Prefilled)
    assert all(event.verify_len <= 4 for event in events if isinstance(event, DecodeRound))


def test_messages_and_sampling_options_pass_through(dspark):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
    texts = {dspark.generate(messages, 12, temperature=0.9, seed=4) for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("prompt", ["", "   ", []])
def test_an_empty_prompt_is_refused(dspark, prompt):
    with pytest.raises(ParameterError, match="empty"):
        dspark.generate(prompt)


def test_an_option_that_does_not_exist_is_not_dropped(dspark):
    with pytest.raises(TypeError, match="mirostat"):
        dspark.generate("Hi", mirostat=0.1)


def test_a_prompt_beyond_the_context_is_refused_with_its_length(dspark):
    with pytest.raises(ParameterError, match="8192"):
        dspark.generate("word " * 9000)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"main_model": "gpt-9"}, "gpt-9"), ({"draft_model": "/nowhere/at/all"}, "/nowhere/at/all")],
)
def test_unknown_models_are_refused_by_name(options, says):
    with pytest.raises(ModelUnavailableError, match=says):
        DSpark(**options)


@pytest.mark.parametrize("options", [{"device": "tpu"}, {"device": "cuda:x"}, {"dtype": "int3"}])
def test_unknown_devices_and_types_are_refused(options):
    with pytest.raises(ParameterError):
        DSpark(**options)


def test_a_failure_is_raised_not_returned_as_a_short_answer(dspark, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of ink")

    monkeypatch.setattr(dspark.session.target, "lm_head", broken)
    monkeypatch.setattr(dspark.session.drafters["dspark"], "hidden_states", broken)
    with pytest.raises(DSparkError, match="out of ink"):
        dspark.generate("Hi", 8)


@pytest.mark.parametrize("device", ["cuda:²", "cuda:" + "9" * 5000, "cuda:", "cpu:0", ""])
def test_device_names_that_are_no_device_are_refused(device):
    with pytest.raises(ParameterError):
        choose_device(device)


@pytest.mark.parametrize("name", ["", "..", ".", "~nosuchuser/x"])
def test_draft_model_names_never_resolve_inside_the_package(name):
    with pytest.raises(DSparkError):
        DSpark(draft_model=name)
