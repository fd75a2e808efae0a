"""How many virtual users may ask so that a visitor is always admitted. No torch here."""

from __future__ import annotations

from dspark_core.errors import ParameterError, shown

MOST_USERS = 32
_KEPT_FREE = 4  # answers of visitors beside them


def most_users(max_active: int, max_tokens: int, max_context: int, tokens_each: int) -> int:
    """So many users leave room for visitors.

    Of the answers that run at once an eighth stays free, from one to four; of the tokens, one visitor's whole context.

    Args:
        max_active: answers that the engine runs at once.
        max_tokens: tokens that it holds for all of them.
        max_context: tokens that one answer may have with its prompt.
        tokens_each: tokens of one user's prompt and answer at most.
    """
    free = min(_KEPT_FREE, max(1, max_active // 8))
    return max(0, min(MOST_USERS, max_active - free, (max_tokens - max_context) // tokens_each))


def check_users(users: int, most: int, max_active: int) -> None:
    """Raise ParameterError if so many would not leave room, or there are none."""
    if not 1 <= users <= most:
        room = f"from 1 to {most}" if most > 1 else ("1" if most else "none")
        raise ParameterError(
            f"{shown(users)} virtual users are asked for; here the number is {room}. The engine runs {max_active} "
            "answers at once, and the last places stay free for visitors. Ask for fewer users or shorter answers"
            f"{'' if most >= MOST_USERS else ', or start the app with a higher --max-active'}."
        )
