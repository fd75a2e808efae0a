"""Texts that grow side by side are each what the target says of them alone."""

import pytest
import torch

from dspark_core.errors import ParameterError
from dspark_core.target.lockstep import Lockstep

TAPS = (0, 2)


def alone(target, ids):
    slot = target.open_slot(len(ids))
    (output,) = target.forward([slot], [ids], tapped_layers=TAPS)
    return output


def test_every_row_is_its_own_text_whatever_its_length(tiny_target):
    texts = [[5, 6, 7, 8, 9, 10], [40, 41, 42, 43, 44, 45], [3] * 6]
    block = Lockstep(tiny_target, rows=3, capacity=20)
    block.step([11, 12, 13])
    block.restart(1, block.prefix(1, 0))  # the second row starts anew, one token behind the others
    texts = [[11, *texts[0]], texts[1], [13, *texts[2]]]
    for step in range(6):
        hidden, features = block.step([texts[0][step + 1], texts[1][step], texts[2][step + 1]], tapped_layers=TAPS)
        for row, text in enumerate(texts):
            told = alone(tiny_target, text[: int(block.lengths[row])])
            torch.testing.assert_close(hidden[row], told.hidden[-1], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(features[row], told.features[-1], rtol=1e-4, atol=1e-4)


def test_a_prefix_is_shared_and_an_older_text_leaves_no_trace(tiny_target):
    block = Lockstep(tiny_target, rows=2, capacity=16)
    for token in (5, 6):
        block.step([token, token])
    prefix = block.prefix(0, 2)
    for token in range(20, 30):
        block.step([token, token + 1])
    block.restart(1, prefix)
    hidden, _ = block.step([50, 60])
    torch.testing.assert_close(hidden[1], alone(tiny_target, [5, 6, 60]).hidden[-1], rtol=1e-4, atol=1e-4)


def test_no_rows_and_rows_beyond_the_context_are_refused(tiny_target):
    with pytest.raises(ParameterError, match="0 rows"):
        Lockstep(tiny_target, rows=0, capacity=5)
    with pytest.raises(ParameterError, match="256"):
        Lockstep(tiny_target, rows=1, capacity=257)
