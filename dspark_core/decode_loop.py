"""The decode loop: draft → plan → verify → commit, for all running answers in one pass of the target.

Symbols: n tokens, m·H feature width.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from dspark_core.admission import MAX_ACTIVE
from dspark_core.answer import Answer
from dspark_core.drafters.base import DraftAsk, Drafter, Observation, block_or_raise
from dspark_core.errors import ParameterError, shown
from dspark_core.events import DecodeRound, DrafterChanged, Event, LoadSample, Prefilled, RoundTimings
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.penalties import adjusted
from dspark_core.sampling import Dice, SeededDice
from dspark_core.scheduling import RoundView
from dspark_core.scheduling.back_off import BackOff
from dspark_core.scheduling.load import LoadSensor
from dspark_core.scheduling.load.busy import BusyShare
from dspark_core.scheduling.planner import Planner
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.target.base import Target, TargetOutput
from dspark_core.text import TokenText
from dspark_core.turn import Turn
from dspark_core.verification import Case, judge_all

_Asked = TypeVar("_Asked")
_Got = TypeVar("_Got")

PREFILL_CHUNK = 256  # prompt tokens per turn: a long prompt must not hold up the others' rounds


class DecodeLoop:
    """Steps answers. Not thread-safe: one thread at a time, which is the engine's business.

    Args:
        target: the frozen model.
        tokenizer: ids to text.
        drafters: what a request may ask for, by name.
        load_sensor: asked once a round; it answers at once.
        step_curve: SPS(B) of this target on this machine; without it, policies that need one are refused.
        full_batch: answers in a round at which the batch counts as fully occupied.
        lab: whether biased policies may be used, to show what they do to the text's law.
        back_off: which answers rest from drafts that do not pay.
    """

    def __init__(
        self,
        target: Target,
        tokenizer: TokenText,
        drafters: Mapping[str, Drafter],
        load_sensor: LoadSensor,
        *,
        step_curve: StepCurve | None = None,
        full_batch: int = MAX_ACTIVE,
        lab: bool = False,
        back_off: BackOff | None = None,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.drafters = drafters
        self.load_sensor = load_sensor
        self.full_batch = full_batch
        self.busy = BusyShare()  # whoever runs the loop enters it while the loop computes
        self._planner = Planner(step_curve, lab=lab, back_off=back_off)
        self._tapped_layers = tuple(sorted({layer for d in drafters.values() for layer in d.tapped_layers}))

    @property
    def step_curve(self) -> StepCurve | None:
        """SPS(B), as the next round uses it."""
        return self._planner.step_curve

    @step_curve.setter
    def step_curve(self, curve: StepCurve | None) -> None:
        self._planner.step_curve = curve

    def drafter_named(self, name: str) -> Drafter:
        """The drafter of that name. Raises ParameterError."""
        try:
            return self.drafters[name]
        except (KeyError, TypeError):  # a list has no hash
            known = ", ".join(self.drafters)
            raise ParameterError(f"There is no drafter named {shown(name)} here. Choose one of: {known}.") from None

    def check(self, request: GenerationRequest) -> None:
        """Refuse what cannot be honoured.

        Raises:
            ParameterError: unknown drafter or policy, a policy that this drafter cannot serve, token ids outside the
                vocabulary, a bias that bans every token, a prompt beyond the context.
        """
        self.check_schedule(request.schedule, self.drafter_named(request.drafter))
        self._check_bias(request.sampling)
        self._check_prompt(request.prompt_ids)

    def check_schedule(self, schedule: ScheduleParams, drafter: Drafter) -> None:
        """Refuse a schedule that cannot be honoured with this drafter.

        Raises:
            ParameterError: an unknown or biased policy, one that needs confidences that the drafter lacks, or step
                costs that nobody measured.
        """
        policy = self._planner.policy_for(schedule, drafter.name if drafter.num_draft_tokens else None)
        if policy.needs_confidence and drafter.num_draft_tokens > 0 and not drafter.has_confidence:
            raise ParameterError(
                f"The policy {schedule.policy!r} needs confidences; the drafter {drafter.name!r} has no confidence "
                "head. Choose the policy 'fixed' or another drafter."
            )

    def capacity_for(self, request: GenerationRequest) -> int:
        """Tokens that are held for the request: its prompt and all that its answer may have."""
        return min(self.target.max_context, len(request.prompt_ids) + request.sampling.max_new_tokens)

    def open(self, request: GenerationRequest, dice: Dice | None = None) -> Answer:
        """State for a new request. Raises ParameterError as `check`, and ResourceError when memory is short."""
        self.check(request)
        seed = request.sampling.seed if request.sampling.seed is not None else secrets.randbits(31)
        slot = self.target.open_slot(self.capacity_for(request))
        try:
            return Answer(
                request,
                slot=slot,
                drafter=self.drafter_named(request.drafter),
                tokenizer=self.tokenizer,
                stop_token_ids=self.target.stop_token_ids,
                dice=dice or SeededDice(seed),
                seed=seed,
            )
        except BaseException:
            slot.release()
            raise

    def steer(self, answer: Answer, request: GenerationRequest) -> bool:
        """Obey schedule, sampling and drafter of ``request`` from the next round on; another drafter reads first.

        Sets `ending` where a lower token limit is reached already.

        Returns:
            Whether it is another drafter.

        Raises:
            ResourceError: no memory for the other drafter's state.
        """
        drafter = self.drafter_named(request.drafter)
        answer.schedule = request.schedule
        answer.obey(request.sampling)
        if drafter is answer.drafter:
            return False
        answer.switch(drafter)
        return True

    def prefill_chunk(self, answer: Answer) -> Prefilled | DrafterChanged | None:
        """`prefill` for one answer by itself; raises what went wrong."""
        outcome = self.prefill([answer])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def prefill(self, answers: Sequence[Answer]) -> list[Prefilled | DrafterChanged | Exception | None]:
        """Read up to `PREFILL_CHUNK` more tokens in one pass, the first answers' first.

        Of prompts, or of the text so far for a new drafter. A failure of the pass is that of those who share it.

        Returns:
            For each answer: the event once all is read (before it, the answer must not take part in a round), None
            while there is more, or what went wrong in its own part.
        """
        start = self._now()
        room, reading = PREFILL_CHUNK, []
        for answer in answers:
            if chunk := answer.unread[:room]:
                room -= len(chunk)
                reading.append((answer, chunk))
        if reading:
            self._read(reading)
        seconds = self._now() - start
        for answer, _ in reading:
            answer.read_s += seconds
        return [answer.failure or (None if answer.unread else answer.begin_rounds()) for answer in answers]

    def _read(self, reading: Sequence[tuple[Answer, tuple[int, ...]]]) -> None:
        """One pass over a chunk of each answer; `failure` tells what went wrong."""
        try:
            outputs = self._forward(*zip(*reading, strict=True), want_logits=False)
        except Exception as error:  # of all that share the pass, and of nobody else
            for answer, _ in reading:
                answer.failure = error
            return
        self._observe(
            [
                (answer, Observation(answer.drafter_state, chunk, self._features_for(answer, output.features)))
                for (answer, chunk), output in zip(reading, outputs, strict=True)
            ]
        )

    def step(self, answers: Sequence[Answer]) -> list[DecodeRound | None]:
        """One round of every answer: draft → plan → verify → commit. Those that end have `ending` set.

        An answer whose own part of the round fails gets `failure` set and None in the result; the others go on. Only
        a failure of the shared pass is raised, and is the failure of all.
        """
        begun = self._now()
        turns = self._turns(answers)
        around = self._planner.around(self.load(len(answers)), [turn.drafting for turn in turns])
        start = self._now()
        drafting = self._draft(turns, around)
        drafted = self._now()
        planning = self._plan(drafting, around)
        planned = self._now()
        outputs = self._forward([turn.answer for turn in planning], [turn.inputs for turn in planning])
        for turn, output in zip(planning, outputs, strict=True):
            turn.output = output
        verified = _each(self._verify(planning), self._commit)
        self._observe([(turn.answer, turn.observation) for turn in verified if turn.answer.ending is None])
        timings = RoundTimings(drafted - start, start - begun + planned - drafted, self._now() - planned)
        self._planner.took(timings.total_s, [turn.work for turn in verified])
        _each(verified, lambda turn: turn.inspect(self.tokenizer))
        _each(
            [turn for turn in turns if not turn.answer.failure],
            lambda turn: turn.report(self.tokenizer, timings, around.load),
        )
        return [None if turn.answer.failure else turn.event for turn in turns]

    def load(self, answers: int) -> LoadSample:
        """The sensor's sample, with the occupancy by so many answers and the engine's busy share; from any thread."""
        occupancy = min(1.0, answers / self.full_batch)
        return replace(self.load_sensor.sample(), occupancy=occupancy, engine_busy=self.busy.share())

    def run(self, request: GenerationRequest, dice: Dice | None = None) -> list[Event]:
        """A whole generation by itself, in the caller's thread: what tests and law enumeration use."""
        answer = self.open(request, dice)
        try:
            prefilled = None
            while prefilled is None:
                prefilled = self.prefill_chunk(answer)
            events: list[Event] = [prefilled]
            while answer.ending is None:
                events.extend(event for event in self.step([answer]) if event is not None)
                if answer.failure is not None:
                    raise answer.failure
            events.append(answer.finish(answer.ending))
        finally:
            answer.release()
        return events

    def _check_bias(self, sampling: SamplingParams) -> None:
        vocab_size = self.target.vocab_size
        outside = [token_id for token_id, _ in sampling.logit_bias if token_id >= vocab_size]
        if outside:
            raise ParameterError(
                f"logit_bias names the token {shown(outside[0])}, which is not in this model's vocabulary (0 to "
                f"{vocab_size - 1}). Take the ids from this model's own tokenizer."
            )
        if sum(bias == -math.inf for _, bias in sampling.logit_bias) == vocab_size:
            raise ParameterError(
                f"logit_bias bans all {vocab_size} tokens of the vocabulary, so there is none to answer with. "
                "Leave at least one."
            )

    def _check_prompt(self, prompt_ids: tuple[int, ...]) -> None:
        outside = [i for i in prompt_ids if not 0 <= i < self.target.vocab_size]
        if outside:
            raise ParameterError(
                f"Token id {shown(outside[0])} is not in this model's vocabulary (0 to {self.target.vocab_size - 1}). "
                "Encode the prompt with this model's own tokenizer."
            )
        if len(prompt_ids) >= self.target.max_context:
            raise ParameterError(
                f"The prompt has {len(prompt_ids)} tokens; this model's context holds {self.target.max_context}, "
                "and the answer needs room in it. Shorten the prompt or clear the history."
            )

    def _turns(self, answers: Sequence[Answer]) -> list[Turn]:
        """The round's turns, and who drafts: settled by earlier rounds alone."""
        turns = [Turn(answer) for answer in answers]
        drafting = [(turn.answer.drafter.name, turn.wanted, turn.schedule) for turn in turns]
        for turn, judgement in zip(turns, self._planner.judge(answers, drafting), strict=True):
            turn.judge(judgement)
        return turns

    def _draft(self, turns: Sequence[Turn], around: RoundView) -> list[Turn]:
        """Draft for the whole round, all requests of a drafter together. Returns the turns that got a block."""
        asking = _each(turns, lambda turn: self._ask(turn, around))
        for drafter, together in _by_drafter([(turn.answer, turn) for turn in asking]):
            outcomes = _for_each(drafter, drafter.draft_all, [turn.ask for _, turn in together])
            for (_, turn), outcome in zip(together, outcomes, strict=True):
                turn.drafted = outcome
        return _each(asking, self._take_block)

    def _ask(self, turn: Turn, around: RoundView) -> None:
        answer, schedule = turn.answer, turn.schedule
        goes_on = None
        if schedule.stop_early:
            goes_on = partial(self._planner.policy_for(schedule).goes_on, schedule=schedule, around=around)
        sampling = answer.request.sampling
        inspect = answer.request.inspect
        turn.ask = DraftAsk(answer.drafter_state, turn.anchor, turn.count, sampling, answer.dice, goes_on, inspect)

    def _take_block(self, turn: Turn) -> None:
        turn.block = block_or_raise(turn.drafted)
        outside = [i for i in turn.block.token_ids if not 0 <= i < self.target.vocab_size]
        if outside:
            raise RuntimeError(f"The drafter {turn.answer.drafter.name!r} drafted the unknown token id {outside[0]}.")

    def _plan(self, turns: Sequence[Turn], around: RoundView) -> list[Turn]:
        """Plan the whole round at once. Returns the turns that got a plan; the others' answers have failed."""
        plans = self._planner.plan([turn.answer for turn in turns], [turn.view for turn in turns], around)
        well = []
        for turn, plan in zip(turns, plans, strict=True):
            if isinstance(plan, Exception):
                turn.answer.failure = plan
            else:
                turn.plan = plan
                well.append(turn)
        return well

    def _forward(
        self, answers: Sequence[Answer], token_ids: Sequence[Sequence[int]], *, want_logits: bool = True
    ) -> list[TargetOutput]:
        needs_features = any(answer.drafter.tapped_layers for answer in answers)
        return self.target.forward(
            [answer.slot for answer in answers],
            token_ids,
            tapped_layers=self._tapped_layers if needs_features else (),
            want_logits=want_logits,
        )

    def _features_for(self, answer: Answer, features: torch.Tensor) -> torch.Tensor:
        """The columns [n, m·H] of the layers that this answer's drafter taps."""
        wanted = answer.drafter.tapped_layers
        if wanted == self._tapped_layers:
            return features
        width = self.target.hidden_size
        starts = [self._tapped_layers.index(layer) * width for layer in wanted]
        return torch.cat([features[:, s : s + width] for s in starts], dim=-1) if starts else features[:, :0]

    def _verify(self, turns: Sequence[Turn]) -> list[Turn]:
        """Judge the whole round's drafts at once. Returns the turns that got a verdict."""
        asking = _each(turns, self._bring)
        well = []
        for turn, outcome in zip(asking, judge_all([turn.case for turn in asking]), strict=True):
            if isinstance(outcome, Exception):
                turn.answer.failure = outcome
            else:
                turn.judged = outcome
                well.append(turn)
        return well

    def _bring(self, turn: Turn) -> None:
        """Make the turn's case."""
        answer, request = turn.answer, turn.answer.request
        logits = turn.output.logits[:, : self.target.vocab_size]
        logits = adjusted(logits, request.sampling, request.prompt_ids, answer.token_ids, turn.inputs[1:])
        turn.case = Case(logits, request.sampling, turn.block, answer.dice, request.inspect)

    def _commit(self, turn: Turn) -> None:
        answer, block, verify_len = turn.answer, turn.block, turn.plan.verify_len
        kept = turn.verdict.num_accepted
        if turn.count:
            self._planner.learn(answer, verify_len, kept)
        answer.slot.crop(answer.slot.length - verify_len + kept)
        turn.committed = answer.commit((*block.token_ids[:kept], turn.verdict.next_id))
        # The drafter sees exactly what the target's cache kept: anchor + accepted drafts.
        features = self._features_for(answer, turn.output.features)[: kept + 1]
        turn.observation = Observation(answer.drafter_state, turn.inputs[: kept + 1], features)

    def _observe(self, told: Sequence[tuple[Answer, Observation]]) -> None:
        """Tell the drafters what the target has read, each of all its answers; `failure` tells what went wrong."""
        for drafter, together in _by_drafter(told):
            failures = _for_each(drafter, drafter.observe_all, [observation for _, observation in together])
            for (answer, _), failure in zip(together, failures, strict=True):
                answer.failure = failure

    def _now(self) -> float:
        """Seconds; waits for the device, so that a phase's time is its own."""
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return time.perf_counter()


def _each(turns: Sequence[Turn], action: Callable[[Turn], None]) -> list[Turn]:
    """Do the same to every turn; one that fails takes nobody with it. Returns those that went well."""
    well = []
    for turn in turns:
        try:
            action(turn)
        except Exception as error:  # whatever a drafter raises is that answer's failure, not the others'
            turn.answer.failure = error
        else:
            well.append(turn)
    return well


def _for_each(
    drafter: Drafter, together: Callable[[list[_Asked]], list[_Got]], asked: list[_Asked]
) -> list[_Got | Exception]:
    """What a drafter gives to each of its requests; where it fails as a whole, so does each, and no other drafter's."""
    try:
        got: list[_Got | Exception] = [*together(asked)]
        if len(got) != len(asked):
            raise RuntimeError(f"The drafter {drafter.name!r} gave {len(got)} answers to {len(asked)} requests.")
    except Exception as error:
        return [error] * len(asked)
    return got


def _by_drafter(parts: Sequence[tuple[Answer, _Asked]]) -> list[tuple[Drafter, list[tuple[Answer, _Asked]]]]:
    """Answers with their parts, by the drafter that serves them."""
    groups: dict[int, tuple[Drafter, list[tuple[Answer, _Asked]]]] = {}
    for answer, part in parts:
        groups.setdefault(id(answer.drafter), (answer.drafter, []))[1].append((answer, part))
    return list(groups.values())
