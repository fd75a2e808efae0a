"""Texts of plain decoding beside those of a policy: counts of their first tokens, and a verdict for each view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dspark_core.errors import ParameterError, so_many
from dspark_core.events import DecodeRound, Event
from dspark_core.lab.chi_square import Verdict, of_two_samples
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams

PLAIN, PLAIN_DRAFTER = ScheduleParams("fixed", 0, 0), "none"
LEAST_TEXTS, MOST_TEXTS = 100, 5_000
MOST_TOKENS = 3
ENDED = -1  # in place of a token of a text that ended before it
_ROOM = 8  # tokens beyond those compared: drafts behind them must be possible, or a policy has nothing to cut
_SEEDS = 2**62
Outcome = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One look at the texts.

    Attributes:
        places: the positions compared, from 1: (1,) first tokens, (1, 2) the first two together.
        plain, other: counts by outcome, a token id for each place.
        verdict: whether both can come from one law.
    """

    places: tuple[int, ...]
    plain: Counter[Outcome]
    other: Counter[Outcome]
    verdict: Verdict


def views_of(tokens: int) -> list[tuple[int, ...]]:
    """The views of texts of so many tokens: each place by itself, then the beginnings of two and more together."""
    return [(k,) for k in range(1, tokens + 1)] + [tuple(range(1, k + 1)) for k in range(2, tokens + 1)]


@dataclass(slots=True)
class Comparison:
    """Counts that grow.

    Attributes:
        tokens: how many of each text's first tokens are compared, 1 to `MOST_TOKENS`.
        texts: of each of the two lanes, its texts' first tokens with their counts.
        words: the text of every token id that came up.
    """

    tokens: int
    texts: tuple[Counter[Outcome], Counter[Outcome]] = field(default_factory=lambda: (Counter(), Counter()))
    words: dict[int, str] = field(default_factory=dict)

    def add(self, lane: int, events: Sequence[Event]) -> None:
        """One text of lane 0 (plain) or 1 (the policy)."""
        ids: list[int] = []
        for event in events:
            if isinstance(event, DecodeRound):
                for token in event.draft:
                    self.words.setdefault(token.id, token.text)
                if event.next is not None:
                    self.words.setdefault(event.next.id, event.next.text)
                ids += [token.id for token in event.committed]
        padded = (*ids, *[ENDED] * self.tokens)
        self.texts[lane][padded[: self.tokens]] += 1

    def has_enough(self, events: Sequence[Event]) -> bool:
        """Whether the answer has the tokens that are compared."""
        return sum(len(event.committed) for event in events if isinstance(event, DecodeRound)) >= self.tokens

    @property
    def done(self) -> tuple[int, int]:
        """Texts of each lane."""
        return self.texts[0].total(), self.texts[1].total()

    def views(self) -> list[View]:
        """All views of the texts so far."""
        return [self._view(places) for places in views_of(self.tokens)]

    def _view(self, places: tuple[int, ...]) -> View:
        plain, other = (_marginal(texts, places) for texts in self.texts)
        return View(places, plain, other, of_two_samples(plain, other))


def requests_for(request: GenerationRequest, texts: int, tokens: int, seed: int) -> Iterator[GenerationRequest]:
    """The requests in turn, plain and other: number 2i is plain text i, number 2i + 1 the policy's. All seeds differ.

    Args:
        request: the prompt with the policy, drafter and law to be compared with plain decoding.
        texts: N of each.
        tokens: that are compared.
        seed: the experiment's.

    Raises:
        ParameterError: a number outside its bounds, or greedy decoding, whose law is a single text.
    """
    if not LEAST_TEXTS <= texts <= MOST_TEXTS:
        raise ParameterError(
            f"{so_many(texts, 'text is', 'texts are')} asked for; take {LEAST_TEXTS} to {MOST_TEXTS:,}."
        )
    if not 1 <= tokens <= MOST_TOKENS:
        raise ParameterError(f"{so_many(tokens, 'token is', 'tokens are')} asked for; compare 1 to {MOST_TOKENS}.")
    if request.sampling.temperature == 0:
        raise ParameterError("The temperature is 0: every text would be the same. Take one above 0.")
    law = replace(request.sampling, max_new_tokens=tokens + _ROOM)
    return _in_turn(replace(request, inspect=False), law, texts, seed)


def _in_turn(request: GenerationRequest, law: SamplingParams, texts: int, seed: int) -> Iterator[GenerationRequest]:
    for number in range(2 * texts):
        sampling = replace(law, seed=(seed + number) % _SEEDS)
        if number % 2:
            yield replace(request, sampling=sampling)
        else:
            yield replace(request, sampling=sampling, schedule=PLAIN, drafter=PLAIN_DRAFTER)


def _marginal(texts: Counter[Outcome], places: tuple[int, ...]) -> Counter[Outcome]:
    counts: Counter[Outcome] = Counter()
    for ids, count in texts.items():
        counts[tuple(ids[place - 1] for place in places)] += count
    return counts
