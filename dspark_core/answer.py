"""One request's state between rounds, and `commit`: the only place where a text ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dspark_core.drafters.base import Drafter, DrafterState
from dspark_core.errors import DSparkError
from dspark_core.events import CommittedToken, DrafterChanged, Finished, FinishReason, Prefilled
from dspark_core.params import GenerationRequest, SamplingParams
from dspark_core.sampling import Dice
from dspark_core.target.base import KVSlot
from dspark_core.text import TextStream, TokenText


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a text ends here."""

    reason: FinishReason
    detail: str


def failed(error: Exception) -> Ending:
    """The end of a text that an error stopped: in its own words where it was meant for a user."""
    if isinstance(error, DSparkError):
        return Ending("error", str(error))
    if isinstance(error, MemoryError):
        told = f" ({error})" if str(error) else ""
        return Ending(
            "error", f"The memory is used up{told}. Ask for fewer new tokens, or wait until others have ended."
        )
    what = f"{type(error).__name__}: {error}".rstrip(".: ")
    return Ending("error", f"Something inside the engine went wrong ({what}). DSPARK_DEBUG=1 logs where.")


def unanswered(ending: Ending) -> Finished:
    """The end of a request whose answer never began."""
    return Finished(
        finish_reason=ending.reason,
        text="",
        text_delta="",
        token_ids=(),
        rounds=0,
        tau=0.0,
        tokens_per_s=0.0,
        detail=ending.detail,
    )


class Answer:
    """What the decode loop knows of one running request.

    Invariant between rounds: the slot holds prompt + answer without the last token, which is the anchor.
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        slot: KVSlot,
        drafter: Drafter,
        tokenizer: TokenText,
        stop_token_ids: frozenset[int],
        dice: Dice,
        seed: int,
    ) -> None:
        self.request = request
        self.schedule = request.schedule  # replaced after `Generation.update_schedule` while the answer runs
        self.slot = slot
        self.drafter = drafter
        self.drafter_state: DrafterState = drafter.open(slot.capacity)
        self.dice = dice
        self.seed = seed
        self.token_ids: list[int] = []
        self.rounds = 0
        self.round_s = 0.0
        self.read_s = 0.0  # seconds of the reading that `begin_rounds` ends
        self.ending: Ending | None = None
        self.failure: Exception | None = None  # what went wrong in this answer's own part of a round
        self._stop_token_ids = stop_token_ids
        self._stream = TextStream(tokenizer.token_bytes, request.sampling.stop)
        self._released = False
        self._began = self._ready = False
        self._untold: list[CommittedToken] = []  # of the last `commit`, until its round is told

    @property
    def anchor(self) -> int:
        """x_0: the last committed token, or the prompt's last; not in the target's cache yet."""
        return self.token_ids[-1] if self.token_ids else self.request.prompt_ids[-1]

    @property
    def tokens_left(self) -> int:
        """How many tokens may still be committed: by the token limit, and by the context's end (the slot's size)."""
        context_left = self.slot.capacity - len(self.request.prompt_ids) - len(self.token_ids)
        return min(self.request.sampling.max_new_tokens - len(self.token_ids), context_left)

    @property
    def unread(self) -> tuple[int, ...]:
        """Tokens that still have to go through the target before rounds follow: all but the last one, the anchor.

        These are the prompt's, and after a change of drafter the answer's too.
        """
        prompt = self.request.prompt_ids
        if self.slot.length >= len(prompt) - 1 + len(self.token_ids):
            return ()
        return (*prompt, *self.token_ids)[self.slot.length : -1]

    @property
    def ready(self) -> bool:
        """Whether rounds may follow: everything is read and `begin_rounds` has told so."""
        return self._ready

    def obey(self, sampling: SamplingParams) -> None:
        """Draw by this law from the next round on, seed and stop strings apart; ends at a limit that is reached."""
        if sampling is self.request.sampling:
            return
        self.request = replace(self.request, sampling=sampling)
        limit = sampling.max_new_tokens
        if self.token_ids and len(self.token_ids) >= limit:
            self.ending = Ending("length", f"token limit {limit}")

    def switch(self, drafter: Drafter) -> None:
        """Draft with another one from the next round on. Raises ResourceError when there is no memory for its state.

        A state has to observe every token with the features of its own layers, which nobody keeps: so all is read
        again, as a prompt is. The text's law does not depend on the drafter, whenever it changes.
        """
        state = drafter.open(self.slot.capacity)
        self.drafter_state.release()
        self.drafter, self.drafter_state = drafter, state
        self.slot.crop(0)
        self.read_s, self._ready = 0.0, False

    def begin_rounds(self) -> Prefilled | DrafterChanged:
        """The event that tells that everything is read and rounds follow."""
        self._ready = True
        if self._began:
            return DrafterChanged(self.read_s, self.drafter.name, self.drafter.note, self.drafter.num_draft_tokens)
        self._began = True
        return Prefilled(
            prompt_tokens=len(self.request.prompt_ids),
            prefill_s=self.read_s,
            seed=self.seed,
            drafter=self.drafter.name,
            drafter_note=self.drafter.note,
            num_draft_tokens=self.drafter.num_draft_tokens,
            policy=self.schedule.policy,
        )

    def commit(self, token_ids: Sequence[int]) -> tuple[CommittedToken, ...]:
        """Take the tokens of a round up to the text's end; sets `ending` when one of them is the last."""
        self._untold = []
        for token_id in token_ids:
            is_stop = token_id in self._stop_token_ids
            self._untold.append(CommittedToken(token_id, "" if is_stop else self._stream.push(token_id)))
            self.token_ids.append(token_id)
            self.ending = self._ending_at(is_stop)
            if self.ending is not None:
                break
        return tuple(self._untold)

    def told(self, seconds: float) -> None:
        """The round of the last `commit` has its event: count it and its seconds."""
        self.rounds += 1
        self.round_s += seconds
        self._untold = []

    def finish(self, ending: Ending) -> Finished:
        """Give the memory back and tell the end: what the rounds told, without one that failed after its commit."""
        self.release()
        text_delta = self._stream.finish()
        text = self._stream.text
        if self._untold:
            del self.token_ids[-len(self._untold) :]
            # What was held back goes too: some of it may be the failed round's.
            text = text.removesuffix("".join(token.text for token in self._untold) + text_delta)
            text_delta, self._untold = "", []
        return Finished(
            finish_reason=ending.reason,
            text=text,
            text_delta=text_delta,
            token_ids=tuple(self.token_ids),
            rounds=self.rounds,
            tau=len(self.token_ids) / self.rounds if self.rounds else 0.0,
            tokens_per_s=len(self.token_ids) / self.round_s if self.round_s else 0.0,
            detail=ending.detail,
        )

    def release(self) -> None:
        """Give slot and drafter state back; safe to repeat."""
        if not self._released:
            self._released = True
            try:
                self.slot.release()
            finally:
                self.drafter_state.release()

    def _ending_at(self, is_stop: bool) -> Ending | None:
        if is_stop:
            return Ending("stop", "stop token")
        if self._stream.stopped_by is not None:
            return Ending("stop", f"stop string {self._stream.stopped_by!r}")
        limit = self.request.sampling.max_new_tokens
        if len(self.token_ids) >= limit:
            return Ending("length", f"token limit {limit}")
        if self.tokens_left <= 0:
            return Ending("length", f"end of the context ({self.slot.capacity} tokens)")
        return None
