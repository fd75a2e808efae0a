"""What a drafter drafts in a few fixed situations, to compare drafters exactly."""

import torch

from dspark_core.params import SamplingParams
from dspark_core.sampling import SeededDice


def some_drafts(drafter):
    """Blocks after several anchors, greedy and sampled, over the same made-up features of five tokens."""
    width = len(drafter.tapped_layers) * drafter.target.hidden_size
    features = torch.randn(5, width, generator=torch.Generator().manual_seed(5))
    state = drafter.open(32)
    state.observe((1, 2, 3, 4, 5), features.to(drafter.target.dtype))
    return [
        state.draft(anchor, drafter.num_draft_tokens, SamplingParams(temperature=temperature), SeededDice(anchor))
        for anchor in (3, 7, 19, 28)
        for temperature in (0.0, 0.7, 1.0)
    ]


def same_drafts(ours, theirs):
    """Whether tokens, confidences and laws are the same bit for bit."""
    return all(
        (a.token_ids, a.confidences, a.raw_confidences) == (b.token_ids, b.confidences, b.raw_confidences)
        and torch.equal(a.candidate_ids, b.candidate_ids)
        and torch.equal(a.candidate_probs, b.candidate_probs)
        for a, b in zip(ours, theirs, strict=True)
    )
