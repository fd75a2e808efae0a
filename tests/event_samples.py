"""Events for tests, built from fates: ``a`` accepted, ``r`` rejected, ``d`` discarded, ``u`` unverified."""

from dspark_core.events import (
    Candidate,
    CommittedToken,
    DecodeRound,
    DrafterChanged,
    DraftToken,
    Fate,
    Finished,
    Inspection,
    LoadReading,
    LoadSample,
    NextToken,
    Prefilled,
    RoundTimings,
    Token,
    Waiting,
)

FATES = {"a": Fate.ACCEPTED, "r": Fate.REJECTED, "d": Fate.DISCARDED, "u": Fate.UNVERIFIED}
LOAD = LoadSample(
    source="GPU 0 (Card)",
    kind="gpu",
    utilisation=0.5,
    memory_used_bytes=1,
    memory_total_bytes=2,
    power_w=90.0,
    energy_j=12.5,
    occupancy=0.25,
    engine_busy=0.75,
    simulated=0.4,
)


def waiting(ahead: int = 2) -> Waiting:
    return Waiting(ahead, "32 answers are running, the most at once")


def prefilled(prompt_tokens: int = 5, prefill_s: float = 0.25) -> Prefilled:
    return Prefilled(
        prompt_tokens=prompt_tokens,
        prefill_s=prefill_s,
        seed=1,
        drafter="dspark",
        drafter_note="",
        num_draft_tokens=4,
        policy="fixed",
    )


def drafter_changed(drafter: str = "none") -> DrafterChanged:
    return DrafterChanged(read_s=0.5, drafter=drafter, drafter_note="plain", num_draft_tokens=0)


def decode_round(fates: str, *, index: int = 0, ended: bool = False, seconds: tuple[float, float, float] = (1, 2, 3)):
    """A round with these fates; ``ended`` when the text ended before the target's own token."""
    accepted = fates.count("a")
    draft = tuple(
        DraftToken(
            id=10 + at,
            text=f"t{at}",
            draft_prob=0.5,
            confidence=0.9,
            survival=0.9 ** (at + 1),
            target_prob=None if letter == "u" else 0.4,
            accept_prob=None if letter == "u" else 0.8,
            uniform=0.3 if letter in "ar" else None,
            fate=FATES[letter],
        )
        for at, letter in enumerate(fates)
    )
    following = None if ended else NextToken(99, "n", "correction" if "r" in fates else "bonus")
    committed = [CommittedToken(token.id, token.text) for token in draft[:accepted]]
    if following:
        committed.append(CommittedToken(following.id, following.text))
    return DecodeRound(
        index=index,
        anchor=Token(7, "anchor"),
        draft=draft,
        verify_len=len(fates) - fates.count("u"),
        reason="load 0.40 (simulated): every x_k is admitted",
        num_accepted=accepted,
        next=following,
        committed=tuple(committed),
        timings=RoundTimings(*map(float, seconds)),
        load=LOAD,
        policy="banded",
        l_min=1,
        l_max=8,
        threshold=0.3,
        band_low=0.6,
        band_high=0.9,
        signal=LoadReading("simulated", 0.4, "simulated: set by the user, not measured"),
        inspection=Inspection(
            candidates=tuple((Candidate(token.id, token.text, 0.1, 0.5, token.target_prob, None),) for token in draft),
            bonus=(),
            throughputs=(30.0, 31.5),
            stopped_at=0.2,
            temperature=0.7,
        ),
    )


def finished(text: str = "answer") -> Finished:
    return Finished(
        finish_reason="stop",
        text=text,
        text_delta="",
        token_ids=(1, 2, 3),
        rounds=2,
        tau=1.5,
        tokens_per_s=3.0,
        detail="stop token",
    )
