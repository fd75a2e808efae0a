"""The one stream: what the engine tells about a generation, as plain frozen values without torch.

The page, the command line, the benchmark, the recorder and the tests all read these events and nothing else.
`to_json` gives the published JSON form, one object an event.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Literal

from dspark_core.params import LoadSignal

FinishReason = Literal["stop", "length", "cancelled", "error"]
NextKind = Literal["correction", "bonus"]


class Fate(str, Enum):
    """What became of a drafted token."""

    ACCEPTED = "accepted"  # verified, kept, committed
    REJECTED = "rejected"  # the one that failed the acceptance rule
    DISCARDED = "discarded"  # verified after the rejection (or after the text's end): wasted work
    UNVERIFIED = "unverified"  # cut by the scheduler before the target saw it


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its own text (a part of a character shows as U+FFFD)."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class CommittedToken:
    """A token that joined the answer; ``text`` is what it added to the streamed text ('' while bytes are held back)."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One drafted token and everything that decided about it.

    Under greedy decoding the sampled law is a one-hot; the probabilities then shown are the models' at temperature 1
    and ``accept_prob`` is 1 if the token is the target's most likely one, else 0. Otherwise both probabilities are
    those of the very laws that were drawn from (temperature, top-k, top-p applied) and
    ``accept_prob = min(1, target_prob / draft_prob)``.

    Attributes:
        id, text: the token.
        draft_prob: p_d(x_k), the drafter's probability of the token.
        confidence: c_k in [0, 1], estimate of P(x_k accepted | x_<k accepted); known before x_k is drawn. Calibrated
            where the drafter's `calibration.json` covers the request. None when the drafter has no confidence head.
        survival: a_k = Π_{i≤k} c_i; None like ``confidence``.
        target_prob: p_t(x_k); None when unverified.
        accept_prob: the acceptance probability; None when unverified.
        uniform: the uniform number compared with ``accept_prob``; None when none was drawn (greedy, or not reached).
        fate: what became of it.
        raw_confidence: the head's own c_k where ``confidence`` is calibrated, else None (older records lack the key).
    """

    id: int
    text: str
    draft_prob: float
    confidence: float | None
    survival: float | None
    target_prob: float | None
    accept_prob: float | None
    uniform: float | None
    fate: Fate
    raw_confidence: float | None = field(default=None, metadata={"may_be_absent": True})


@dataclass(frozen=True, slots=True)
class NextToken:
    """The target's own token that ends a round: a correction after a rejection, a bonus when all were accepted."""

    id: int
    text: str
    kind: NextKind


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could stand at a position, with its probability under each law there.

    Attributes:
        id, text: the token.
        base: under the law that the drafter would have drawn from without its sequential head, cut to the same
            candidates; None without such a head.
        draft: under the law that x_k was drawn from; None where nothing was drafted.
        target: under the target's law; None at a position that the target did not verify.
        residual: under norm(max(0, p_t - p_d)), which the correction was drawn from; None but at the rejected position.
    """

    id: int
    text: str
    base: float | None
    draft: float | None
    target: float | None
    residual: float | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What decided in a round, for who asked to see it (`GenerationRequest.inspect`).

    The laws are the very ones that were drawn from. Under greedy decoding these are one-hots; ``base``, ``draft`` and
    ``target`` then are the models' at temperature 1, as in `DraftToken`, and ``residual`` is the one-hot that decided.

    Attributes:
        candidates: of every drafted position, in order: the drafted token, and the most likely ones under each law.
        bonus: those of the position that the bonus token was drawn for; empty where there was none.
        throughputs: Θ, expected tokens a second of the whole pass: first with no draft beyond L_min, then with each of
            this request's drafts that was weighed (and all that went before it) in the pass; the last one is the one
            that stopped the search, where one did. Empty where the policy weighs no Θ.
        stopped_at: c_{n+1}, where it made drafting stop before x_{n+1} was drawn.
        temperature: the request's; 0 is greedy decoding, whose laws are shown at temperature 1.
    """

    candidates: tuple[tuple[Candidate, ...], ...]
    bonus: tuple[Candidate, ...]
    throughputs: tuple[float, ...]
    stopped_at: float | None
    temperature: float


@dataclass(frozen=True, slots=True)
class RoundTimings:
    """Seconds of one round, device synchronised, measured inside the engine."""

    draft_s: float
    schedule_s: float
    verify_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the whole round."""
        return self.draft_s + self.schedule_s + self.verify_s


@dataclass(frozen=True, slots=True)
class LoadSample:
    """How busy hardware and engine were, as last sampled (never waits for a driver).

    Attributes:
        source: what the device's figures are of, ready for the screen: "GPU 0 (name)", "CPU", "none".
        kind: "gpu", "cpu" or "none".
        utilisation: 0..1, or None when not available.
        memory_used_bytes, memory_total_bytes: device memory, or the machine's for "CPU"; None when not available.
        power_w: watts; None when not available.
        note: why a figure of the device is not available, or ''.
        energy_j: joules that the device drew since the sensor began, by its own counter; None when not available.
        occupancy: answers in the round over those that may run at once, 0..1; None outside of an engine.
        engine_busy: share of the last seconds in which the engine computed a round or a prompt, 0..1, by the engine's
            own clock; None outside of an engine.
        simulated: the load that the user set for this request, 0..1, measured by nobody; None where none is in use.
        (Older records lack the last four.)
    """

    source: str
    kind: Literal["gpu", "cpu", "none"]
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    note: str = ""
    energy_j: float | None = field(default=None, metadata={"may_be_absent": True})
    occupancy: float | None = field(default=None, metadata={"may_be_absent": True})
    engine_busy: float | None = field(default=None, metadata={"may_be_absent": True})
    simulated: float | None = field(default=None, metadata={"may_be_absent": True})

    def reading(self, signal: LoadSignal) -> LoadReading:
        """The load under that name, with its source; without a value, with the reason."""
        if signal == "device":
            note = self.note or "no load sensor"
            return LoadReading.of(signal, self.utilisation, f"utilisation of {self.source}", note)
        value, source = {
            "occupancy": (self.occupancy, "answers in the round over those that may run at once"),
            "engine": (self.engine_busy, "share of the last seconds in which the engine computed"),
            "simulated": (self.simulated, "simulated: set by the user, not measured"),
        }[signal]
        return LoadReading.of(signal, value, source, "not measured yet")


@dataclass(frozen=True, slots=True)
class LoadReading:
    """One load under its name.

    Attributes:
        signal: the name.
        value: 0 (idle) to 1 (full); None when not available.
        source: where the value comes from, for the screen; it says "simulated" where it is.
        note: why there is no value, or ''.
    """

    signal: LoadSignal
    value: float | None
    source: str
    note: str = ""

    @classmethod
    def of(cls, signal: LoadSignal, value: float | None, source: str, why_not: str) -> LoadReading:
        """A value brought into 0..1, or None and ``why_not``."""
        if value is None:
            return cls(signal, None, source, why_not)
        return cls(signal, min(1.0, max(0.0, value)), source)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The request waits for its turn; told again whenever it moves up. One that can begin at once is told nothing.

    Attributes:
        ahead: requests before it in the line; 0 when it is next.
        reason: what the line waits for, for the screen.
    """

    ahead: int
    reason: str
    type: Literal["waiting"] = "waiting"

    @property
    def text(self) -> str:
        """The place in the line and the reason, for the screen."""
        return f"Waiting: {f'{self.ahead} ahead of you' if self.ahead else 'you are next'} ({self.reason})."


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache; rounds follow.

    Attributes:
        prompt_tokens: number of prompt tokens.
        prefill_s: seconds of the prefill.
        seed: the seed in use (drawn by the engine when the request had none).
        drafter: name of the drafter in use; ``drafter_note`` says what a reader should know about it, or ''.
        num_draft_tokens: γ of that drafter, 0 for plain decoding.
        policy: the schedule's policy name at the start.
    """

    prompt_tokens: int
    prefill_s: float
    seed: int
    drafter: str
    drafter_note: str
    num_draft_tokens: int
    policy: str
    type: Literal["prefilled"] = "prefilled"


@dataclass(frozen=True, slots=True)
class DrafterChanged:
    """Another drafter has read the text so far and drafts from here on.

    Attributes:
        read_s: seconds of the reading.
        drafter, drafter_note, num_draft_tokens: as in `Prefilled`.
    """

    read_s: float
    drafter: str
    drafter_note: str
    num_draft_tokens: int
    type: Literal["drafter_changed"] = "drafter_changed"


@dataclass(frozen=True, slots=True)
class DecodeRound:
    """One round: draft, plan, verify, commit.

    Attributes:
        index: 0, 1, 2, …
        anchor: x_0, the last committed token (or the prompt's last), input of the draft and the verification.
        draft: the γ (or fewer) drafted tokens, in order; with ``stop_early``, none beyond the cut.
        verify_len: ℓ, how many of them the target verified.
        reason: why ℓ was chosen, for the screen.
        num_accepted: accepted and committed drafts (without the target's own token).
        next: the target's own token; None when the text ended on an accepted draft before it.
        committed: the tokens that joined the answer, in order; τ is the mean of their number.
        timings: seconds.
        load: the load sample the round saw.
        l_min, l_max, threshold, policy: the schedule in force in this round.
        stop_early: whether drafting ended where nothing more could be verified; older records lack the key: it did not.
        band_low, band_high: the bands in force; None in older records.
        signal: the load that the policy judged by; None where it judged by none, and in older records.
        gain: the batch's tokens a second with this request's drafts over those without, as judged before the round from
            earlier ones, chance counted in their favour; None where the back-off is off or has seen too little, and in
            older records.
        resting: rounds of plain decoding until drafting is tried again, this one included; 0 when it is not resting,
            and in older records.
        inspection: the laws behind the round; None where nobody asked for them, and in older records.
    """

    index: int
    anchor: Token
    draft: tuple[DraftToken, ...]
    verify_len: int
    reason: str
    num_accepted: int
    next: NextToken | None
    committed: tuple[CommittedToken, ...]
    timings: RoundTimings
    load: LoadSample
    policy: str
    l_min: int
    l_max: int
    threshold: float
    stop_early: bool = field(default=False, metadata={"may_be_absent": True})
    band_low: float | None = field(default=None, metadata={"may_be_absent": True})
    band_high: float | None = field(default=None, metadata={"may_be_absent": True})
    signal: LoadReading | None = field(default=None, metadata={"may_be_absent": True})
    gain: float | None = field(default=None, metadata={"may_be_absent": True})
    resting: int = field(default=0, metadata={"may_be_absent": True})
    inspection: Inspection | None = field(default=None, metadata={"may_be_absent": True})
    type: Literal["round"] = "round"


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a generation.

    Attributes:
        finish_reason: "stop" (stop token or string), "length" (token limit or context end), "cancelled", "error".
        text: the whole answer, exactly what was streamed plus ``text_delta``.
        text_delta: text that was held back until the end.
        token_ids: all committed ids (a stop token included).
        rounds: number of rounds.
        tau: committed tokens per round; 0 when there was no round.
        tokens_per_s: committed tokens per second of round time (prefill left out); 0 when there was no round.
        detail: what ended it, for the screen ("stop token", "stop string '…'", "token limit 64", the error).
    """

    finish_reason: FinishReason
    text: str
    text_delta: str
    token_ids: tuple[int, ...]
    rounds: int
    tau: float
    tokens_per_s: float
    detail: str
    type: Literal["finished"] = "finished"


Event = Waiting | Prefilled | DrafterChanged | DecodeRound | Finished


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON-able dict; the keys are the attribute names, ``type`` tells the kind."""
    return asdict(event)
