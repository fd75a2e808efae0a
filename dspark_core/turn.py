"""One answer's turn in a round: what is drafted, planned, verified and committed, and the event that tells it.

Symbols: γ drafts, ℓ verified drafts.
"""

from __future__ import annotations

from dspark_core.answer import Answer
from dspark_core.drafters.base import DraftAsk, DraftBlock, Observation
from dspark_core.events import (
    CommittedToken,
    DecodeRound,
    DraftToken,
    Fate,
    Inspection,
    LoadSample,
    NextToken,
    RoundTimings,
    Token,
)
from dspark_core.inspection import Inspector
from dspark_core.params import ScheduleParams
from dspark_core.scheduling import DraftView, Plan, load_for
from dspark_core.scheduling.back_off import Judgement
from dspark_core.target.base import TargetOutput
from dspark_core.text import TokenText
from dspark_core.verification import Case, Judged
from dspark_core.verify import Verdict

_NOT_JUDGED = Judgement()


class Turn:
    """Filled in by the decode loop, phase by phase; `report` reads it when the round is over.

    Attributes:
        answer: whose turn it is.
        schedule: read once, so that the whole round obeys one schedule.
        anchor: x_0.
        judgement: whether it drafts.
        room: how many drafts the text has room for, beside the target's own token.
        wanted: how many tokens it would draft, as far as that is known before drafting.
        count: how many tokens to draft.
        ask, drafted, block, plan, output, case, judged, committed, observation, event: what the phases made.
        inspection: what `inspect` made, where the request asks for it; else None.
    """

    ask: DraftAsk
    drafted: DraftBlock | Exception
    block: DraftBlock
    plan: Plan
    output: TargetOutput
    case: Case
    judged: Judged
    committed: tuple[CommittedToken, ...]
    observation: Observation
    event: DecodeRound

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.schedule = answer.schedule
        self.anchor = answer.anchor
        self.room = answer.tokens_left - 1
        count = min(answer.drafter.num_draft_tokens, self.room)
        self.wanted = min(count, self.schedule.l_max) if self.schedule.stop_early else count
        self.judgement, self.count = _NOT_JUDGED, self.wanted
        self.inspection: Inspection | None = None

    def judge(self, judgement: Judgement) -> None:
        """Draft what is wanted, or as much of it as is worth it, or rest."""
        self.judgement = judgement
        wanted = self.wanted if judgement.most is None else min(self.wanted, judgement.most)
        self.count = 0 if judgement.rest else wanted

    @property
    def drafting(self) -> tuple[str, int, ScheduleParams, float | None]:
        """What `Planner.around` is told."""
        return self.answer.drafter.name, self.count, self.schedule, self.judgement.expected

    @property
    def work(self) -> tuple[str, int, int]:
        """What `Planner.took` is told; drafting that stops before its first token has cost what a token does."""
        drafts = max(1, len(self.block.token_ids)) if self.count else 0
        return self.answer.drafter.name, drafts, self.plan.verify_len

    @property
    def view(self) -> DraftView:
        """What the scheduler may know of the block."""
        known, why = self.block.known_confidences, self.judgement.reason
        return DraftView(len(self.block.token_ids), known, self.schedule, self.room, resting=why)

    @property
    def inputs(self) -> tuple[int, ...]:
        """What goes through the target: anchor and the ℓ drafts to verify."""
        return (self.anchor, *self.block.token_ids[: self.plan.verify_len])

    @property
    def verdict(self) -> Verdict:
        """What the target said."""
        return self.judged.verdict

    @property
    def num_accepted(self) -> int:
        """Drafts accepted and committed: the text's end may cut accepted ones off."""
        return min(self.verdict.num_accepted, len(self.committed))

    @property
    def ended_on_a_draft(self) -> bool:
        """Whether the text ended before the target's own token could join it."""
        return len(self.committed) <= self.verdict.num_accepted

    def inspect(self, tokenizer: TokenText) -> None:
        """Look at what decided, if that was asked for. After the round's time is taken: it is none of the figures."""
        laws = self.judged.laws
        if laws is None:
            return
        own = None if self.ended_on_a_draft else self.verdict
        inspector = Inspector(self.block, laws, self.answer.request.sampling, tokenizer)
        self.inspection = inspector.inspection(self.plan, own)

    def report(self, tokenizer: TokenText, timings: RoundTimings, load: LoadSample) -> None:
        """Make the round's event; counts the round and its seconds in the answer."""
        answer, schedule = self.answer, self.schedule
        self.event = DecodeRound(
            index=answer.rounds,
            anchor=Token(self.anchor, tokenizer.token_text(self.anchor)),
            draft=self._draft_tokens(tokenizer),
            verify_len=self.plan.verify_len,
            reason=self.plan.reason,
            num_accepted=self.num_accepted,
            next=self._next_token(tokenizer),
            committed=self.committed,
            timings=timings,
            load=load_for(schedule, load),
            policy=schedule.policy,
            l_min=schedule.l_min,
            l_max=schedule.l_max,
            threshold=schedule.threshold,
            stop_early=schedule.stop_early,
            band_low=schedule.band_low,
            band_high=schedule.band_high,
            signal=self.plan.signal,
            gain=self.judgement.gain,
            resting=self.judgement.rest,
            inspection=self.inspection,
        )
        answer.told(timings.total_s)

    def _draft_tokens(self, tokenizer: TokenText) -> tuple[DraftToken, ...]:
        draft = []
        raw = self.block.raw_confidences
        survival = 1.0
        for k, token_id in enumerate(self.block.token_ids):
            confidence = self.block.confidences[k] if self.block.confidences is not None else None
            survival *= confidence if confidence is not None else 1.0
            verified = k < self.plan.verify_len
            draft.append(
                DraftToken(
                    id=token_id,
                    text=tokenizer.token_text(token_id),
                    draft_prob=self.block.shown_probs[k],
                    confidence=confidence,
                    survival=survival if confidence is not None else None,
                    target_prob=self.judged.target_probs_shown[k] if verified else None,
                    accept_prob=self.verdict.accept_probs[k] if verified else None,
                    uniform=self.verdict.uniforms[k] if verified else None,
                    fate=self._fate(k),
                    raw_confidence=None if raw is None else raw[k],
                )
            )
        return tuple(draft)

    def _fate(self, position: int) -> Fate:
        if position >= self.plan.verify_len:
            return Fate.UNVERIFIED
        if position < self.num_accepted:
            return Fate.ACCEPTED
        if position == self.verdict.num_accepted and not self.ended_on_a_draft:
            return Fate.REJECTED
        return Fate.DISCARDED

    def _next_token(self, tokenizer: TokenText) -> NextToken | None:
        if self.ended_on_a_draft:
            return None
        next_id = self.verdict.next_id
        return NextToken(next_id, tokenizer.token_text(next_id), self.verdict.kind)
