"""Rollouts that ship: what the confidence head said and how far the drafts were right, as the engine made them.

``python -m dspark_core calibrate --rounds FILE`` writes such a file. The page shows the packaged one before a model is
ready, and calls it recorded.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dspark_core.calibration.calibration import FittedOn
from dspark_core.calibration.rounds import Rounds, joined
from dspark_core.errors import ParameterError
from dspark_core.files import write_whole
from dspark_core.typed_json import decode

PACKAGED = Path(__file__).parent / "recorded.json.gz"
_FORMAT = 1
_DIGITS = 3  # of a logit: the confidences then are right to 0.0002
_AGAIN = "Make it again: python -m dspark_core calibrate --rounds FILE."


@dataclass(frozen=True, eq=False)
class Recorded:
    """All settings of one drafter.

    Attributes:
        weights_sha256: of the ``model.safetensors`` that the rounds were made with.
        made_by: model, drafter and prompts.
        num_positions: γ.
        parts: by sampling temperature (0 is greedy), the rounds of each answer.
    """

    weights_sha256: str
    made_by: FittedOn
    num_positions: int
    parts: dict[float, tuple[Rounds, ...]]


def write_recorded(path: Path, recorded: Recorded) -> None:
    """Write the file whole or not at all; the same rounds give the same bytes. Raises ResourceError."""
    body = {
        "format": _FORMAT,
        "weights_sha256": recorded.weights_sha256,
        "made_by": asdict(recorded.made_by),
        "num_positions": recorded.num_positions,
        "settings": {f"{t:g}": [_rows(part) for part in parts] for t, parts in recorded.parts.items()},
    }
    data = gzip.compress(json.dumps(body, allow_nan=False).encode(), mtime=0)
    write_whole(path, lambda place: place.write_bytes(data))


def read_recorded(path: Path = PACKAGED) -> Recorded | None:
    """The rollouts of the file; None where there is no such file.

    Raises:
        ParameterError: the file is damaged or of another version.
    """
    try:
        body = json.loads(gzip.decompress(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ParameterError(f"{path.name} cannot be read ({error}). {_AGAIN}") from error
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise ParameterError(f"{path.name} is not of the format that this version reads ({_FORMAT}). {_AGAIN}")
    try:
        width = int(body["num_positions"])
        parts = {
            float(t): tuple(rounds_of_rows(rows, width) for rows in answers) for t, answers in body["settings"].items()
        }
        return Recorded(str(body["weights_sha256"]), decode(FittedOn, body["made_by"], "made_by"), width, parts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParameterError(f"{path.name} is damaged ({error}). {_AGAIN}") from error


def _rows(part: Rounds) -> list[list[float]]:
    """A round a row: accepted, observed, then its logits as far as observed."""
    return [
        [accepted, observed, *(round(logit, _DIGITS) for logit in logits[:observed])]
        for accepted, observed, logits in zip(
            part.accepted.tolist(), part.observed.tolist(), part.logits.tolist(), strict=True
        )
    ]


def rounds_of_rows(rows: Sequence[Sequence[float]], width: int) -> Rounds:
    """Rounds from rows [accepted, observed, logit 1, logit 2, …] with at most γ = ``width`` logits.

    Raises:
        ParameterError: as `Rounds.of`, and for longer rows.
    """
    if not rows:
        return joined([], width)
    if max(map(len, rows)) > width + 2:
        raise ParameterError(f"A round has {max(map(len, rows)) - 2} logits for {width} positions.")
    logits = [[*row[2:], *[0.0] * (width - len(row) + 2)] for row in rows]
    return Rounds.of(logits, [row[0] for row in rows], [row[1] for row in rows])
