"""The decode loop: draft → plan → verify → commit, for all running answers in one pass of the target.

Symbols: γ drafts, ℓ verified drafts, V vocabulary, m·H feature width.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from dspark_core.answer import Answer, Ending
from dspark_core.drafters.base import DraftBlock, Drafter
from dspark_core.errors import ParameterError
from dspark_core.events import (
    CommittedToken,
    DecodeRound,
    DraftToken,
    Fate,
    Finished,
    LoadSample,
    NextToken,
    Prefilled,
    RoundTimings,
    Token,
)
from dspark_core.params import GenerationRequest, ScheduleParams
from dspark_core.sampling import Dice, SeededDice, law, shown_probs
from dspark_core.scheduling import DraftView, Plan, policy_named
from dspark_core.scheduling.load import LoadSensor
from dspark_core.target.base import Target, TargetOutput
from dspark_core.text import TokenText
from dspark_core.verify import Verdict, verify

PREFILL_CHUNK = 256  # prompt tokens per turn: a long prompt must not hold up the others' rounds


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one answer's round came to."""

    verdict: Verdict
    target_probs_shown: list[float]
    committed: tuple[CommittedToken, ...]
    num_accepted: int  # accepted and committed


class DecodeLoop:
    """Steps answers. Not thread-safe: one thread at a time, which is the engine's business."""

    def __init__(
        self,
        target: Target,
        tokenizer: TokenText,
        drafters: Mapping[str, Drafter],
        load_sensor: LoadSensor,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.drafters = drafters
        self.load_sensor = load_sensor
        self._tapped_layers = tuple(sorted({layer for d in drafters.values() for layer in d.tapped_layers}))

    def check(self, request: GenerationRequest) -> None:
        """Refuse what cannot be honoured.

        Raises:
            ParameterError: unknown drafter or policy, token ids outside the vocabulary, prompt beyond the context.
        """
        self._drafter_named(request.drafter)
        policy_named(request.schedule.policy)
        self._check_prompt(request.prompt_ids)

    def open(self, request: GenerationRequest, dice: Dice | None = None) -> Answer:
        """State for a new request. Raises ParameterError as `check`, and ResourceError when memory is short."""
        self.check(request)
        seed = request.sampling.seed if request.sampling.seed is not None else secrets.randbits(31)
        capacity = min(self.target.max_context, len(request.prompt_ids) + request.sampling.max_new_tokens)
        return Answer(
            request,
            slot=self.target.open_slot(capacity),
            drafter=self._drafter_named(request.drafter),
            tokenizer=self.tokenizer,
            stop_token_ids=self.target.stop_token_ids,
            dice=dice or SeededDice(seed),
            seed=seed,
        )

    def prefill_chunk(self, answer: Answer) -> Prefilled | None:
        """Read up to `PREFILL_CHUNK` more prompt tokens; the event when the prompt is read."""
        chunk = answer.unread_prompt[:PREFILL_CHUNK]
        if chunk:
            start = self._now()
            output = self._forward([answer], [chunk], want_logits=False)[0]
            answer.drafter_state.observe(chunk, self._features_for(answer, output.features))
            answer.prefill_s += self._now() - start
        return None if answer.unread_prompt else answer.prefilled()

    def step(self, answers: Sequence[Answer]) -> list[DecodeRound]:
        """One round of every answer: draft → plan → verify → commit. Those that end have `ending` set."""
        load = self.load_sensor.sample()
        schedules = [answer.schedule for answer in answers]  # read once: a round obeys one schedule
        anchors = [answer.anchor for answer in answers]
        start = self._now()
        blocks = [self._draft(answer) for answer in answers]
        drafted = self._now()
        plans = self._plan(answers, blocks, schedules, load)
        planned = self._now()
        inputs = [(a, *b.token_ids[: p.verify_len]) for a, b, p in zip(anchors, blocks, plans, strict=True)]
        outputs = self._forward(answers, inputs)
        outcomes = [
            self._verify_and_commit(answer, block, plan.verify_len, tokens, output)
            for answer, block, plan, tokens, output in zip(answers, blocks, plans, inputs, outputs, strict=True)
        ]
        timings = RoundTimings(drafted - start, planned - drafted, self._now() - planned)
        rounds = []
        for i, answer in enumerate(answers):
            rounds.append(
                DecodeRound(
                    index=answer.rounds,
                    anchor=self._token(anchors[i]),
                    draft=self._draft_tokens(blocks[i], plans[i].verify_len, outcomes[i]),
                    verify_len=plans[i].verify_len,
                    reason=plans[i].reason,
                    num_accepted=outcomes[i].num_accepted,
                    next=self._next_token(outcomes[i]),
                    committed=outcomes[i].committed,
                    timings=timings,
                    load=load,
                    policy=schedules[i].policy,
                    l_min=schedules[i].l_min,
                    l_max=schedules[i].l_max,
                    threshold=schedules[i].threshold,
                )
            )
            answer.rounds += 1
            answer.round_s += timings.total_s
        return rounds

    def run(self, request: GenerationRequest, dice: Dice | None = None) -> list[Prefilled | DecodeRound | Finished]:
        """A whole generation by itself, in the caller's thread: what tests and law enumeration use."""
        answer = self.open(request, dice)
        try:
            prefilled = None
            while prefilled is None:
                prefilled = self.prefill_chunk(answer)
            events: list[Prefilled | DecodeRound | Finished] = [prefilled]
            while answer.ending is None:
                events.extend(self.step([answer]))
            events.append(answer.finish(answer.ending))
        finally:
            answer.release()
        return events

    def _drafter_named(self, name: str) -> Drafter:
        try:
            return self.drafters[name]
        except KeyError:
            known = ", ".join(self.drafters)
            raise ParameterError(f"There is no drafter named {name!r} here. Choose one of: {known}.") from None

    def _check_prompt(self, prompt_ids: tuple[int, ...]) -> None:
        outside = [i for i in prompt_ids if not 0 <= i < self.target.vocab_size]
        if outside:
            raise ParameterError(
                f"Token id {outside[0]} is not in this model's vocabulary (0 to {self.target.vocab_size - 1}). "
                "Encode the prompt with this model's own tokenizer."
            )
        if len(prompt_ids) >= self.target.max_context:
            raise ParameterError(
                f"The prompt has {len(prompt_ids)} tokens; this model's context holds {self.target.max_context}, "
                "and the answer needs room in it. Shorten the prompt or clear the history."
            )

    def _draft(self, answer: Answer) -> DraftBlock:
        count = min(answer.drafter.num_draft_tokens, answer.tokens_left - 1)
        return answer.drafter_state.draft(answer.anchor, count, answer.request.sampling, answer.dice)

    @staticmethod
    def _plan(
        answers: Sequence[Answer], blocks: Sequence[DraftBlock], schedules: Sequence[ScheduleParams], load: LoadSample
    ) -> list[Plan]:
        views = [
            DraftView(len(block.token_ids), block.confidences, schedule, answer.tokens_left - 1)
            for answer, block, schedule in zip(answers, blocks, schedules, strict=True)
        ]
        plans: dict[int, Plan] = {}
        for name in {view.schedule.policy for view in views}:
            group = [i for i, view in enumerate(views) if view.schedule.policy == name]
            plans.update(zip(group, policy_named(name).plan([views[i] for i in group], load), strict=True))
        for i, view in enumerate(views):
            if not view.lower <= plans[i].verify_len <= view.upper:
                raise RuntimeError(f"Policy {view.schedule.policy!r} left its bounds: {plans[i]} for {view}.")
        return [plans[i] for i in range(len(views))]

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

    def _verify_and_commit(
        self, answer: Answer, block: DraftBlock, verify_len: int, tokens: Sequence[int], output: TargetOutput
    ) -> _Outcome:
        sampling = answer.request.sampling
        logits = output.logits[:, : self.target.vocab_size]
        target_probs = law(logits, sampling)
        verdict = verify(target_probs, block, verify_len, answer.dice)
        shown: list[float] = []
        if verify_len:
            drafted = torch.tensor(block.token_ids[:verify_len], device=logits.device)
            shown = shown_probs(logits[:verify_len], target_probs[:verify_len], drafted, sampling)
        kept = verdict.num_accepted
        answer.slot.crop(answer.slot.length - verify_len + kept)
        committed = answer.commit((*block.token_ids[:kept], verdict.next_id))
        if answer.ending is None:  # the drafter sees exactly what the target's cache kept: anchor + accepted drafts
            features = self._features_for(answer, output.features)[: kept + 1]
            answer.drafter_state.observe(tuple(tokens[: kept + 1]), features)
        return _Outcome(verdict, shown, committed, min(kept, len(committed)))

    def _draft_tokens(self, block: DraftBlock, verify_len: int, outcome: _Outcome) -> tuple[DraftToken, ...]:
        draft = []
        survival = 1.0
        for k, token_id in enumerate(block.token_ids):
            confidence = block.confidences[k] if block.confidences is not None else None
            survival *= confidence if confidence is not None else 1.0
            verified = k < verify_len
            draft.append(
                DraftToken(
                    id=token_id,
                    text=self.tokenizer.token_text(token_id),
                    draft_prob=block.shown_probs[k],
                    confidence=confidence,
                    survival=survival if confidence is not None else None,
                    target_prob=outcome.target_probs_shown[k] if verified else None,
                    accept_prob=outcome.verdict.accept_probs[k] if verified else None,
                    uniform=outcome.verdict.uniforms[k] if verified else None,
                    fate=_fate(k, verify_len, outcome),
                )
            )
        return tuple(draft)

    def _next_token(self, outcome: _Outcome) -> NextToken | None:
        if len(outcome.committed) <= outcome.verdict.num_accepted:
            return None
        next_id = outcome.verdict.next_id
        return NextToken(next_id, self.tokenizer.token_text(next_id), outcome.verdict.kind)

    def _token(self, token_id: int) -> Token:
        return Token(token_id, self.tokenizer.token_text(token_id))

    def _now(self) -> float:
        """Seconds; waits for the device, so that a phase's time is its own."""
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return time.perf_counter()


def _fate(position: int, verify_len: int, outcome: _Outcome) -> Fate:
    if position >= verify_len:
        return Fate.UNVERIFIED
    if position < outcome.num_accepted:
        return Fate.ACCEPTED
    ended_before_verdict = len(outcome.committed) <= outcome.verdict.num_accepted
    if position == outcome.verdict.num_accepted and not ended_before_verdict:
        return Fate.REJECTED
    return Fate.DISCARDED


def failed(answer: Answer, error: Exception) -> Finished:
    """The end of an answer that an error stopped; what it had is kept."""
    return answer.finish(Ending("error", f"{type(error).__name__}: {error}"))
