"""Where a text's last tokens stood before, and what followed them: plain look-up, no model."""

from __future__ import annotations

from collections.abc import Iterable

_KEYS = 3  # tokens of the longest key; longer matches are counted from where it leads


class SuffixIndex:
    """A text that grows and shrinks at its end.

    The latest earlier place of the last three tokens (else two, else one) is the match; its length n is how far the
    tokens before agree too. A few dictionary look-ups a token, whatever the text's length.

    Args:
        longest: n is counted up to here.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        self._followers: dict[tuple[int, ...], int] = {}  # last tokens -> where their latest follower stands
        self._before: list[
            tuple[tuple[tuple[int, ...], int | None], ...]
        ] = []  # what each token that may be cut replaced

    def __len__(self) -> int:
        return len(self.tokens)

    def push(self, token_id: int) -> None:
        """One more token at the end."""
        end = len(self.tokens)
        keys = [tuple(self.tokens[end - n :]) for n in range(1, min(_KEYS, self.longest, end) + 1)]
        self._before.append(tuple((key, self._followers.get(key)) for key in keys))
        for key in keys:
            self._followers[key] = end
        self.tokens.append(token_id)

    def extend(self, token_ids: Iterable[int]) -> None:
        """Tokens that stay: `cut` cannot go back before them."""
        for token_id in token_ids:
            self.push(token_id)
        self._before.clear()

    def cut(self, length: int) -> None:
        """Back to the first ``length`` tokens, as if the rest had never been."""
        while len(self.tokens) > length:
            self.tokens.pop()
            for key, place in self._before.pop():
                if place is None:
                    del self._followers[key]
                else:
                    self._followers[key] = place

    def match(self) -> tuple[int, int]:
        """(n, place of the token that followed the match); (0, 0) where the last token is new."""
        end = len(self.tokens)
        for n in range(min(_KEYS, self.longest, end), 0, -1):
            place = self._followers.get(tuple(self.tokens[end - n :]))
            if place is not None:
                return self._extended(n, place), place
        return 0, 0

    def _extended(self, n: int, place: int) -> int:
        tokens, end = self.tokens, len(self.tokens)
        while n < min(self.longest, place) and tokens[place - 1 - n] == tokens[end - 1 - n]:
            n += 1
        return n


def followers(token_ids: Iterable[int], longest: int) -> list[tuple[int, int]]:
    """For each token: (n, what a match of the text before it would have told as that token); n 0: nothing."""
    index, found = SuffixIndex(longest), []
    for token_id in token_ids:
        n, place = index.match()
        found.append((n, index.tokens[place] if n else 0))
        index.push(token_id)
    return found
