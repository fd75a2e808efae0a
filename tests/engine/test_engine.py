"""The engine's thread: side by side, steerable, and it outlives whatever happens to one request."""

import threading
import time
from dataclasses import replace

import pytest

from dspark_core import engine as engine_module
from dspark_core.admission import Limits
from dspark_core.answer import failed
from dspark_core.decode_loop import PREFILL_CHUNK, DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.engine import Engine
from dspark_core.errors import ParameterError, ResourceError
from dspark_core.events import DecodeRound, Finished, Prefilled
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.turn import Turn
from tests.engine.counting import wait_until
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer


class SlowTarget(ToyTarget):
    """Takes a moment for each pass, so that a test can act between rounds; breaks when told to."""

    pause_s = 0.002
    broken = False

    def forward(self, *args, **options):
        time.sleep(self.pause_s)
        if self.broken:
            raise RuntimeError("the device fell off")
        return super().forward(*args, **options)


@pytest.fixture
def engine():
    target = SlowTarget(vocab_size=5, max_context=4000)
    loop = DecodeLoop(target, ToyTokenizer(), {"none": NoneDrafter(), "table": TableDrafter(5, 4)}, FixedLoad())
    engine = Engine(loop, Limits(max_active=4, max_waiting=0))
    yield engine
    engine.close()
    assert all(slot.released for slot in target.slots)


def ask(limit=30, seed=1, schedule=None, drafter="table", temperature=1.0, prompt=(1, 2)):
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=limit)
    return GenerationRequest(prompt, sampling, schedule or ScheduleParams("fixed", 0, 4, 0), drafter)


def rounds_of(generation):
    return generation._answer.rounds if generation._answer else 0


def test_events_come_in_order(engine):
    events = list(engine.submit(ask()))
    assert isinstance(events[0], Prefilled)
    assert isinstance(events[-1], Finished)
    assert [event.index for event in events[1:-1]] == list(range(len(events) - 2))
    wait_until(lambda: engine.num_active == 0)


def test_a_listener_hears_the_same_events_and_leaves_none_to_iterate_over(engine):
    heard = []
    generation = engine.submit(ask(), heard.append)
    wait_until(lambda: heard and isinstance(heard[-1], Finished))
    assert list(generation) == []
    asked = list(engine.submit(ask()))
    assert [type(event) for event in heard] == [type(event) for event in asked]
    assert heard[-1].token_ids == asked[-1].token_ids


def test_each_of_several_answers_equals_its_solo_run(engine):
    solo = [list(engine.submit(ask(40, seed)))[-1].token_ids for seed in range(4)]
    together = [engine.submit(ask(40, seed)) for seed in range(4)]
    assert [list(generation)[-1].token_ids for generation in together] == solo


def test_schedule_change_is_obeyed_from_the_next_round_and_by_this_answer_only(engine):
    mine, other = engine.submit(ask(600)), engine.submit(ask(600, seed=2))
    changed_at = None
    for event in mine:
        if isinstance(event, DecodeRound) and event.index == 5:
            mine.update_schedule(ScheduleParams("fixed", 0, 1, 0))
        if isinstance(event, DecodeRound) and event.l_max == 1 and changed_at is None:
            changed_at = event.index
        if isinstance(event, DecodeRound) and changed_at is not None:
            assert event.l_max == 1
            assert event.verify_len <= 1
    assert changed_at is not None
    assert {event.l_max for event in other if isinstance(event, DecodeRound)} == {4}


def test_unknown_policy_is_refused_mid_answer_and_changes_nothing(engine):
    with engine.submit(ask(300)) as generation:
        with pytest.raises(ParameterError, match="psychic"):
            generation.update_schedule(ScheduleParams("psychic"))
        assert generation.request.schedule.policy == "fixed"


def test_cancel_frees_the_slot_and_tells_the_text_so_far(engine):
    generation = engine.submit(ask(3000))
    wait_until(lambda: rounds_of(generation) > 3)
    generation.cancel()
    events = list(generation)
    assert events[-1].finish_reason == "cancelled"
    assert events[-1].token_ids == tuple(t.id for e in events[1:-1] for t in e.committed)
    assert engine.num_active == 0


def test_cancel_before_the_prompt_is_read(engine):
    generation = engine.submit(ask(30, prompt=(1, 2) * 1500))
    generation.cancel()
    assert list(generation)[-1].finish_reason == "cancelled"


def test_leaving_the_with_block_cancels(engine):
    with engine.submit(ask(3000)) as generation:
        next(iter(generation))
    wait_until(lambda: engine.num_active == 0)


def test_an_abandoned_reader_does_not_hold_up_the_engine(engine):
    engine.submit(ask(500))  # nobody reads this one
    assert list(engine.submit(ask(20)))[-1].finish_reason == "length"


def test_a_failed_pass_ends_its_answers_with_an_error_and_the_engine_goes_on(engine):
    generation = engine.submit(ask(3000))
    wait_until(lambda: rounds_of(generation) > 2)
    engine._loop.target.broken = True
    finished = list(generation)[-1]
    engine._loop.target.broken = False
    assert finished.finish_reason == "error"
    assert "fell off" in finished.detail
    assert finished.text
    assert list(engine.submit(ask(10)))[-1].finish_reason == "length"


def test_a_long_prompt_does_not_hold_up_a_running_answer(engine):
    running = engine.submit(ask(3000))
    wait_until(lambda: rounds_of(running) > 2)
    before = running._answer.rounds
    long_prompt = engine.submit(ask(5, prompt=(1, 2) * 1500))
    wait_until(lambda: long_prompt._answer is not None and long_prompt._answer.ready)
    assert running._answer.rounds - before >= 8  # 2,999 tokens in chunks of 256: a round between any two
    running.cancel()


def test_too_many_requests_are_refused(engine):
    running = [engine.submit(ask(3000, seed)) for seed in range(4)]
    with pytest.raises(ResourceError, match="Try again"):
        engine.submit(ask())
    for generation in running:
        generation.cancel()
    wait_until(lambda: engine.num_active == 0)
    assert list(engine.submit(ask(5)))[-1].finish_reason == "length"


def test_bad_requests_never_reach_the_loop(engine):
    with pytest.raises(ParameterError):
        engine.submit(ask(drafter="medusa"))
    assert engine.num_active == 0


def test_closing_ends_what_runs_and_refuses_what_comes(engine):
    generation = engine.submit(ask(3000))
    engine.close()
    engine.close()
    assert list(generation)[-1].finish_reason == "cancelled"
    with pytest.raises(ResourceError, match="closed"):
        engine.submit(ask())


def test_submitting_from_many_threads_at_once(engine):
    results, refused = [], []

    def visitor(seed):
        try:
            results.append((seed, list(engine.submit(ask(15, seed)))[-1].token_ids))
        except ResourceError:
            refused.append(seed)

    threads = [threading.Thread(target=visitor, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) + len(refused) == 12
    for seed, token_ids in results:
        assert list(engine.submit(ask(15, seed)))[-1].token_ids == token_ids


def test_next_event_gives_up_after_its_timeout(engine):
    generation = engine.submit(ask(5))
    while not isinstance(generation.next_event(1.0), Finished):
        pass
    with pytest.raises(StopIteration):
        generation.next_event(0.01)


class FaultyDrafter(TableDrafter):
    """Goes wrong in one way or another after its first round."""

    def __init__(self, fault):
        super().__init__(5, 4, name=fault)
        self.fault = fault

    def open(self, capacity):
        state = super().open(capacity)
        draft, rounds = state.draft, []

        def faulty(*arguments):
            rounds.append(1)
            block = draft(*arguments)
            if len(rounds) == 1:
                return block
            if self.fault == "raises":
                raise ValueError("the drafter is confused")
            if self.fault == "unknown token":
                return replace(block, token_ids=(99, *block.token_ids[1:]))
            return replace(block, candidate_probs=block.candidate_probs * float("nan"))

        state.draft = faulty
        return state


class ForgetfulDrafter(TableDrafter):
    """Fails as soon as it is to read a prompt."""

    def open(self, capacity):
        state = super().open(capacity)

        def observe(*_):
            raise ValueError("the drafter cannot read")

        state.observe = observe
        return state


def test_who_cannot_read_its_prompt_fails_alone_in_a_shared_chunk(engine):
    engine._loop.drafters["forgetful"] = ForgetfulDrafter(engine._loop.target.vocab_size, 4)
    requests = [ask(20, seed, drafter="forgetful" if seed == 1 else "table") for seed in range(3)]
    with engine._wake:
        generations = [engine.submit(request) for request in requests]
    ends = [list(generation)[-1] for generation in generations]
    assert [end.finish_reason for end in ends] == ["length", "error", "length"]
    assert "the drafter cannot read" in ends[1].detail
    assert [ends[i].token_ids for i in (0, 2)] == [list(engine.submit(ask(20, i)))[-1].token_ids for i in (0, 2)]


@pytest.mark.parametrize("fault", ["raises", "unknown token", "law of no numbers"])
def test_one_answers_own_failure_is_nobody_elses(engine, fault):
    engine._loop.drafters["faulty"] = FaultyDrafter(fault)
    good = [engine.submit(ask(200, seed)) for seed in range(2)]
    bad = engine.submit(ask(200, drafter="faulty"))
    ends = [list(generation)[-1] for generation in (*good, bad)]
    assert [end.finish_reason for end in ends] == ["length", "length", "error"]
    assert ends[2].token_ids
    assert [end.token_ids for end in ends[:2]] == [list(engine.submit(ask(200, s)))[-1].token_ids for s in range(2)]


def test_a_round_that_cannot_be_told_ends_its_own_answer_alone(engine, monkeypatch):
    report = Turn.report

    def faulty(turn, *args):
        if turn.answer.request.sampling.seed == 1:
            raise ValueError("no words for it")
        report(turn, *args)

    monkeypatch.setattr(Turn, "report", faulty)
    with engine._wake:
        generations = [engine.submit(ask(20, seed)) for seed in range(3)]
    ends = [list(generation)[-1] for generation in generations]
    assert [end.finish_reason for end in ends] == ["length", "error", "length"]


@pytest.mark.parametrize("fault", ["observe_all", "inspect", "report", "took"])
def test_a_round_that_fails_after_its_commit_is_in_no_figure_of_the_end(engine, monkeypatch, fault):
    place = {"observe_all": engine._loop.drafters["table"], "took": engine._loop._planner}.get(fault, Turn)
    right, calls = getattr(place, fault), []

    def faulty(*args):
        calls.append(1)
        if len(calls) == 5:
            raise ValueError("confused")
        return right(*args)

    monkeypatch.setattr(place, fault, faulty)
    events = list(engine.submit(ask(200)))
    rounds, end = [event for event in events if isinstance(event, DecodeRound)], events[-1]
    assert (end.finish_reason, len(rounds)) == ("error", end.rounds)
    assert rounds
    assert end.token_ids == tuple(token.id for each in rounds for token in each.committed)
    assert end.text == "".join(token.text for each in rounds for token in each.committed) + end.text_delta


def test_a_policy_that_a_drafter_cannot_serve_is_refused_before_and_while_it_runs(engine):
    unsure = TableDrafter(5, 4, name="unsure")
    unsure.has_confidence = False
    engine._loop.drafters["unsure"] = unsure
    with pytest.raises(ParameterError, match="no confidence head"):
        engine.submit(ask(schedule=ScheduleParams("threshold"), drafter="unsure"))
    with engine.submit(ask(300, drafter="unsure")) as generation, pytest.raises(ParameterError, match="confidence"):
        generation.update_schedule(ScheduleParams("threshold"))
    assert list(engine.submit(ask(5, drafter="none", schedule=ScheduleParams("threshold"))))[-1].token_ids


@pytest.mark.parametrize("policy", ["prefix", "delayed"])
def test_a_policy_without_its_step_curve_is_refused_before_and_while_it_runs(engine, policy):
    with pytest.raises(ParameterError, match="python -m dspark_core profile"):
        engine.submit(ask(schedule=ScheduleParams(policy)))
    with engine.submit(ask(300)) as generation, pytest.raises(ParameterError, match="dspark_core profile"):
        generation.update_schedule(ScheduleParams(policy))


def test_a_biased_policy_is_refused_before_and_while_it_runs(engine):
    with pytest.raises(ParameterError, match="biased"):
        engine.submit(ask(schedule=ScheduleParams("retrospective")))
    with engine.submit(ask(300)) as generation, pytest.raises(ParameterError, match="biased"):
        generation.update_schedule(ScheduleParams("retrospective"))


def test_each_round_tells_the_load_and_the_signal_that_its_own_request_asked_for(engine):
    simulating = ScheduleParams("banded", 0, 4, band_low=0.1, load_signal="simulated", simulated_load=1)
    idle = replace(simulating, load_signal="occupancy")
    running = [engine.submit(ask(4000, schedule=schedule)) for schedule in (simulating, idle)]

    def beside_the_other(event):
        return isinstance(event, DecodeRound) and event.load.occupancy > 1 / engine._loop.full_batch

    under_full, under_real = (next(event for event in generation if beside_the_other(event)) for generation in running)
    assert under_full.load.occupancy == under_real.load.occupancy == 2 / engine._loop.full_batch
    assert (under_full.load.simulated, under_real.load.simulated) == (1, None)
    assert (under_full.signal.signal, under_full.signal.value) == ("simulated", 1)
    assert (under_real.signal.signal, under_real.signal.value) == ("occupancy", under_real.load.occupancy)
    assert "simulated" in under_full.signal.source
    assert "simulated" in under_full.reason
    assert "simulated" not in under_real.reason
    assert (under_full.band_low, under_full.band_high) == (0.1, 0.9)
    assert 0 < under_real.load.engine_busy <= 1
    running[0].update_schedule(replace(simulating, simulated_load=0.25))
    assert next(event for event in running[0] if event.signal.value != 1).signal.value == 0.25
    for generation in running:
        generation.cancel()


def test_an_engine_that_computes_is_busy_and_one_that_waits_is_not(engine):
    engine._loop.busy.window_s = 0.2
    generation = engine.submit(ask(4000))
    wait_until(lambda: engine.load().engine_busy > 0.5)
    assert engine.load().occupancy == 1 / engine._loop.full_batch
    generation.cancel()
    wait_until(lambda: engine.load().engine_busy == 0)
    assert engine.load().occupancy == 0
    assert engine.load().source == FixedLoad().sample().source


def test_one_whose_memory_cannot_be_given_back_is_told_so_and_the_engine_goes_on(engine):
    drafter = engine._loop.drafters["table"]
    first_open = drafter.open

    def never_released(capacity):
        state = first_open(capacity)

        def release():
            raise RuntimeError("the driver is gone")

        state.release = release
        return state

    drafter.open = never_released
    end = list(engine.submit(ask(5)))[-1]
    assert (end.finish_reason, "the driver is gone" in end.detail) == ("error", True)
    drafter.open = first_open
    assert list(engine.submit(ask(5)))[-1].finish_reason == "length"


def test_a_listener_that_fails_ends_its_own_generation_and_no_other(engine):
    def listener(_):
        raise RuntimeError("I do not listen")

    good = engine.submit(ask(200, 1))
    engine.submit(ask(3000), listener)
    assert list(good)[-1].finish_reason == "length"
    wait_until(lambda: engine.num_active == 0)


def test_who_reads_an_engine_that_has_stopped_is_told_so_and_nobody_waits_for_it(engine):
    def stop(_):
        raise SystemExit

    running, later = engine.submit(ask(3000)), engine.submit(ask(3000, 1))
    wait_until(lambda: rounds_of(running) > 2)
    engine._loop.drafters["table"].draft_all = stop
    ends = [list(generation)[-1] for generation in (running, later)]
    assert [end.finish_reason for end in ends] == ["error", "error"]
    assert all("engine has stopped" in end.detail for end in ends)
    with pytest.raises(ResourceError, match="closed"):
        engine.submit(ask(3))


def test_a_failed_pass_over_prompts_ends_those_that_shared_it_and_no_other(engine):
    target = engine._loop.target
    first_forward = target.forward

    def forward(slots, token_ids, *, want_logits=True, **options):
        if not want_logits and len(token_ids) == 2:
            raise RuntimeError("too much for me")
        return first_forward(slots, token_ids, want_logits=want_logits, **options)

    target.forward = forward
    requests = [ask(5, prompt=(1,) * (PREFILL_CHUNK // 2 + 1)) for _ in range(3)]  # of which two make a whole chunk
    with engine._wake:
        generations = [engine.submit(request) for request in requests]
    assert [list(generation)[-1].finish_reason for generation in generations] == ["error", "error", "length"]


@pytest.mark.parametrize("step", ["draft_all", "observe_all"])
@pytest.mark.parametrize("raises", [True, False])
def test_a_drafter_that_fails_as_a_whole_or_answers_too_few_takes_no_other_drafters_requests_with_it(
    engine, step, raises
):
    def broken(_):
        if raises:
            raise MemoryError
        return []

    engine._loop.drafters["few"] = few = TableDrafter(engine._loop.target.vocab_size, 4, name="few")
    setattr(few, step, broken)
    with engine._wake:
        good, bad = engine.submit(ask(20)), engine.submit(ask(20, drafter="few"))
    assert [list(generation)[-1].finish_reason for generation in (good, bad)] == ["length", "error"]


@pytest.mark.parametrize("meant_for_users", [True, False])
def test_an_errors_class_is_told_only_where_its_text_was_not_meant_for_users(meant_for_users):
    detail = failed(ResourceError("The disk is full.") if meant_for_users else KeyError("layer")).detail
    assert ("KeyError" in detail, detail == "The disk is full.") == (not meant_for_users, meant_for_users)


def test_a_call_runs_in_the_engines_thread_between_rounds_and_gives_its_value_or_error(engine):
    running = engine.submit(ask(limit=200))
    next(iter(running))
    assert engine.call(threading.current_thread) is engine._thread
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: 1 / 0)
    assert engine.call(lambda: 7) == 7, "the engine outlived it"
    assert list(running)[-1].finish_reason == "length"


def test_work_that_calls_for_more_work_gets_it_at_once(engine):
    assert engine.call(lambda: engine.call(threading.current_thread)) is engine._thread
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: engine.call(lambda: 1 / 0))


def test_a_caller_that_is_interrupted_takes_back_work_that_has_not_begun(engine, monkeypatch):
    begun, done, release = [], threading.Event(), threading.Event()
    threading.Thread(target=engine.call, args=(lambda: release.wait(20),)).start()

    class Interrupted(engine_module.Future):
        def result(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(engine_module, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.call(lambda: begun.append(1))
    monkeypatch.undo()
    release.set()
    engine.call(done.set)
    assert done.is_set()
    assert begun == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopIteration, MemoryError])
def test_a_call_whose_work_is_broken_off_by_any_error_raises_it_and_the_engine_goes_on(engine, kind):
    def broken():
        raise kind

    with pytest.raises(kind):
        engine.call(broken)
    assert list(engine.submit(ask(limit=3)))[-1].finish_reason == "length"


def test_calls_while_the_engine_closes_are_all_answered_or_refused(engine):
    answers, callers = [], []

    def caller(number):
        try:
            answers.append(engine.call(lambda: number))
        except ResourceError:
            answers.append("refused")

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(40)]
    for thread in callers[:20]:
        thread.start()
    closing = threading.Thread(target=engine.close)
    closing.start()
    for thread in callers[20:]:
        thread.start()
    for thread in (*callers, closing):
        thread.join(20)
    assert len(answers) == 40
    assert len({answer for answer in answers if answer != "refused"}) == 40 - answers.count("refused")


class BrokenLine:
    """A line that the engine cannot work with."""

    running = waiting = ()

    def __len__(self):
        raise RuntimeError("the line is lost")


def test_an_engine_that_is_gone_or_closed_lets_nobody_wait_for_a_call(engine, monkeypatch):
    told = []

    def late():
        try:
            engine.call(lambda: 1)
        except ResourceError as error:
            told.append(str(error))

    def break_down():
        threading.Thread(target=late).start()
        wait_until(lambda: engine._calls)
        monkeypatch.setattr(engine, "_line", BrokenLine())

    engine.call(break_down)
    wait_until(lambda: told)
    assert "stopped" in told[0]
    with pytest.raises(ResourceError, match="closed"):
        engine.call(lambda: 1)
