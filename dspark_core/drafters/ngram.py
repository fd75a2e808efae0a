"""Prompt look-up: the text itself is the drafter. What followed the same few tokens before is proposed again.

No weights, no pass: it costs next to nothing and shines where an answer repeats its prompt (summaries, edits, code).
Symbols: γ drafts, n tokens that match.
"""

from __future__ import annotations

from itertools import cycle, islice

import torch

from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock, GoesOn, OneByOne
from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice
from dspark_core.suffix_index import SuffixIndex

LONGEST_MATCH = 3
NUM_DRAFT_TOKENS = 8


class NgramState:
    """One request's text, and how often each length of match has told the next token rightly so far."""

    def __init__(self, longest: int) -> None:
        self._text = SuffixIndex(longest)
        self._right = [0] * (longest + 1)
        self._tried = [0] * (longest + 1)

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:  # noqa: ARG002 - needs no features
        """Score the look-up on every new token, as if it had drafted it, then learn the token."""
        for token in token_ids:
            n, place = self._text.match()
            if n:
                self._tried[n] += 1
                self._right[n] += self._text.tokens[place] == token
            self._text.extend((token,))

    def draft(
        self,
        anchor: int,
        count: int,
        sampling: SamplingParams,  # noqa: ARG002
        dice: Dice,  # noqa: ARG002
        goes_on: GoesOn | None = None,
    ) -> DraftBlock:
        """Copy what followed the longest match; none at all when nothing matches.

        A draft's law is one-hot at every temperature, so acceptance has the target's own probability of that token.
        """
        committed = len(self._text)
        self._text.push(anchor)
        n, place = self._text.match()
        following = self._text.tokens[place:]
        self._text.cut(committed)
        if count <= 0 or not n:
            return EMPTY_BLOCK
        # Laplace's rule on this very text: known before the block, so no token decides about its own verification.
        confidence = (self._right[n] + 1) / (self._tried[n] + 2)
        wanted, stopped_at = count, None
        for k in range(count):
            if goes_on is not None and not goes_on((confidence,) * (k + 1)):
                wanted, stopped_at = k, confidence
                break
        drafted = tuple(islice(cycle(following), wanted))  # beyond the text's end the copy goes on with itself
        return DraftBlock(
            token_ids=drafted,
            confidences=(confidence,) * wanted,
            candidate_ids=torch.tensor(drafted, dtype=torch.long).unsqueeze(1),
            candidate_probs=torch.ones(wanted, 1),
            shown_probs=(1.0,) * wanted,
            stopped_at=stopped_at,
        )

    def release(self) -> None:
        """Forget the text."""
        self._text = SuffixIndex(self._text.longest)


class NgramDrafter(OneByOne):
    """Look-up of the last one to three tokens in prompt and answer."""

    name = "ngram"
    note = "Prompt look-up: drafts what followed the same tokens earlier in the text; no weights."
    num_draft_tokens = NUM_DRAFT_TOKENS
    has_confidence = True
    tapped_layers: tuple[int, ...] = ()

    def __init__(self, longest: int = LONGEST_MATCH, num_draft_tokens: int = NUM_DRAFT_TOKENS) -> None:
        self._longest = longest
        self.num_draft_tokens = num_draft_tokens

    def open(self, capacity: int) -> NgramState:  # noqa: ARG002 - it grows with the text
        """State for a new request."""
        return NgramState(self._longest)
