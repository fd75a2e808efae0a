"""Whether a recording is one whole answer that adds up: what may be shown to others as the engine's own telling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from dspark_core.errors import ParameterError, shown
from dspark_core.events import DecodeRound, DrafterChanged, Event, Fate, Finished, Inspection, Prefilled, Waiting
from dspark_core.labels import LONGEST, is_label
from dspark_core.recording import Header, Recording

MAX_ROUNDS = 20_000
MAX_DRAFTS = 1024  # of a round; far above any drafter's γ
MAX_MESSAGES = 2000  # of the conversation
_LONGEST_TOKEN = 4000  # characters; what a vocabulary's longest token has, and more
_MOST_CANDIDATES = 1000
_LARGEST_ID = 2**31
_LONGEST_S = 1e6
_SLACK = 1e-3  # of probabilities beyond [0, 1], by rounding


def check_answer(recording: Recording, name: str) -> Header:
    """Check that ``recording``, read from ``name``, holds a header and the events of one answer from start to end.

    Returns:
        The header.

    Raises:
        ParameterError: it does not; the message says where and what to do.
    """
    if recording.header is None:
        raise ParameterError(
            f"{name} has no header, so nobody could say where and when its figures were measured. Record the answer "
            "again: with Save under Rounds, or with `python -m dspark_core infer --record`."
        )
    events = [event for event in recording.events if not isinstance(event, Waiting)]
    _check_labels(recording, name)
    _check_messages(recording.header, name)
    if not events or not isinstance(events[0], Prefilled):
        _refuse(name, "its answer has no beginning (an event of the type prefilled)")
    if not isinstance(events[-1], Finished):
        _refuse(name, "its answer has no end (an event of the type finished), so the file is cut off")
    rounds = [event for event in events[1:-1] if isinstance(event, DecodeRound)]
    others = [event for event in events[1:-1] if not isinstance(event, (DecodeRound, DrafterChanged))]
    if others:
        _refuse(name, f"it holds more than one answer (another {others[0].type} follows)")
    if len(rounds) > MAX_ROUNDS:
        _refuse(name, f"it has {len(rounds)} rounds; at most {MAX_ROUNDS} are shown")
    _check_gammas(events, name)
    for index, event in enumerate(rounds):
        if event.index != index:
            _refuse(name, f"round {index + 1} calls itself number {shown(event.index + 1)}")
        wrong = _wrong_in(event)
        if wrong:
            _refuse(name, f"round {index + 1} does not add up: {wrong}")
    _check_sums(rounds, events[-1], name)
    return recording.header


def _refuse(name: str, why: str) -> NoReturn:
    raise ParameterError(
        f"{name} is not the record of one whole answer: {why}. Load a file as Rounds saves it, unchanged."
    )


def _check_messages(header: Header, name: str) -> None:
    if len(header.messages) > MAX_MESSAGES:
        _refuse(name, f"it has {len(header.messages):,} messages; at most {MAX_MESSAGES:,} are shown")
    if not header.messages or header.messages[-1].role != "user":
        _refuse(name, "its header has no message that is answered")


def _check_labels(recording: Recording, name: str) -> None:
    for what, text in _labels(recording):
        if not is_label(text):
            _refuse(name, f"{what} is {shown(text)}; it may have {LONGEST:,} characters, each of which can be seen")


def _labels(recording: Recording) -> Iterator[tuple[str, str]]:
    """Texts that the page puts into its own sentences."""
    header = recording.header
    for of in ("model", "device", "dtype", "drafter", "versions"):
        yield f"its {of}", getattr(header, of)
    for event in recording.events:
        if isinstance(event, (Prefilled, DrafterChanged)):
            yield from (("its drafter", event.drafter), ("a note on its drafter", event.drafter_note))
        elif isinstance(event, DecodeRound):
            yield from ((f"a {of} of round {event.index + 1}", text) for of, text in _round_labels(event))
        elif isinstance(event, (Finished, Waiting)):
            yield "a reason of it", event.detail if isinstance(event, Finished) else event.reason


def _round_labels(event: DecodeRound) -> Iterator[tuple[str, str]]:
    yield from (("reason", event.reason), ("policy", event.policy))
    for reading in (event.load, event.signal):
        if reading is not None:
            yield from (("source of the load", reading.source), ("note on the load", reading.note))


def _check_gammas(events: Sequence[Event], name: str) -> None:
    for event in events:
        if isinstance(event, (Prefilled, DrafterChanged)) and not 0 <= event.num_draft_tokens <= MAX_DRAFTS:
            _refuse(name, f"its drafter drafts {shown(event.num_draft_tokens)} tokens; 0 to {MAX_DRAFTS} are possible")


def _wrong_in(event: DecodeRound) -> str:
    """What contradicts itself in a round, or ''."""
    if len(event.draft) > MAX_DRAFTS:
        return f"{len(event.draft)} drafts"
    if not 0 <= event.l_min <= event.l_max <= MAX_DRAFTS:
        return f"bounds {shown(event.l_min)} to {shown(event.l_max)}"
    times = (event.timings.draft_s, event.timings.schedule_s, event.timings.verify_s)
    if any(not 0 <= seconds <= _LONGEST_S for seconds in times):
        return "a time that cannot be"
    if any(not -_SLACK <= share <= 1 + _SLACK for share in _shares(event) if share is not None):
        return "a probability outside 0 to 1"
    if event.inspection is not None and (wrong := _wrong_laws(event.inspection)):
        return wrong
    return _wrong_fates(event) or _wrong_tokens(event)


def _wrong_laws(laws: Inspection) -> str:
    if max(len(laws.throughputs), len(laws.candidates)) > MAX_DRAFTS + 1:
        return "laws of more positions than can be drafted"
    rows = (*laws.candidates, laws.bonus)
    if any(len(row) > _MOST_CANDIDATES for row in rows):
        return f"more than {_MOST_CANDIDATES:,} tokens of one law"
    if any(len(candidate.text) > _LONGEST_TOKEN for row in rows for candidate in row):
        return f"a token of more than {_LONGEST_TOKEN:,} characters"
    return ""


def _shares(event: DecodeRound) -> Iterator[float | None]:
    """Every number of a round that must lie from 0 to 1."""
    yield from (event.threshold, event.band_low, event.band_high)
    for token in event.draft:
        yield from (token.draft_prob, token.confidence, token.survival, token.target_prob)
        yield from (token.accept_prob, token.uniform, token.raw_confidence)
    if event.inspection is not None:
        for row in (*event.inspection.candidates, event.inspection.bonus):
            for candidate in row:
                yield from (candidate.base, candidate.draft, candidate.target, candidate.residual)


def _wrong_fates(event: DecodeRound) -> str:
    kept, fates = event.num_accepted, [token.fate for token in event.draft]
    if any((fate is Fate.ACCEPTED) != (at < kept) for at, fate in enumerate(fates)):
        return f"{kept} accepted drafts, but other fates"
    if any((fate is Fate.UNVERIFIED) != (at >= event.verify_len) for at, fate in enumerate(fates)):
        return f"{event.verify_len} verified drafts, but other fates"
    if (Fate.REJECTED in fates and fates.index(Fate.REJECTED) != kept) or fates.count(Fate.REJECTED) > 1:
        return "a rejected draft that is not the first after the accepted ones"
    if any((token.target_prob is None) != (token.fate is Fate.UNVERIFIED) for token in event.draft):
        return "a target's probability of an unverified draft, or none of a verified one"
    return ""


def _wrong_tokens(event: DecodeRound) -> str:
    texts = [event.anchor.text, *(token.text for token in event.draft), *(token.text for token in event.committed)]
    if any(len(text) > _LONGEST_TOKEN for text in [*texts, event.next.text if event.next else ""]):
        return f"a token of more than {_LONGEST_TOKEN:,} characters"
    ids = [token.id for token in event.draft]
    expected = ids[: event.num_accepted] + ([] if event.next is None else [event.next.id])
    if [token.id for token in event.committed] != expected:
        return "its committed tokens are not the accepted ones and the target's own"
    if any(not 0 <= number < _LARGEST_ID for number in (event.anchor.id, *ids, *expected)):
        return "a token id that no vocabulary has"
    return ""


def _check_sums(rounds: Sequence[DecodeRound], end: Finished, name: str) -> None:
    committed = [token for event in rounds for token in event.committed]
    if end.rounds != len(rounds) or end.token_ids != tuple(token.id for token in committed):
        _refuse(name, "its end counts other rounds or tokens than there are")
    if end.text != "".join(token.text for token in committed) + end.text_delta:
        _refuse(name, "its text is not what its rounds committed")
