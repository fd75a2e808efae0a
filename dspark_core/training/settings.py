"""Everything that decides a training run; written beside the checkpoint it gives."""

from dataclasses import asdict, dataclass
from typing import Any

from dspark_core.errors import ParameterError


@dataclass(frozen=True)
class TrainSettings:
    """Counts are anchors (one anchor = one block of predictions); rates are AdamW's; seconds say so.

    `hours` ends a run by the clock as well: learning rates fall with whichever is further along, anchors or time.
    `block_lengths`, `block_shares`: predictions per anchor and how often; short blocks train the early positions, which
    decide most of τ, for less time, and let a drafter run with fewer drafts than γ.
    `workers` batches are computed side by side, one thread each, and their gradients averaged into one step: on shared
    cores that is twice as fast as two threads inside every operation (each of which waits for the slower one).
    `cool_weight`: how many times more often an answer of temperature 0.3 or less is drawn (greedy chat comes first).
    `batch_sequences` and `batch_predictions` are those of one worker.
    """

    stage1_anchors: int = 500_000
    stage2_anchors: int = 1_000_000
    hours: float | None = None
    stage1_share: float = 0.35
    seed: int = 0
    workers: int = 2
    batch_sequences: int = 2
    batch_predictions: int = 512
    block_size: int = 8
    block_lengths: tuple[int, ...] = (8, 5, 3)
    block_shares: tuple[float, ...] = (0.5, 0.3, 0.2)
    layers: int = 2
    markov_rank: int = 128
    mask_token_id: int = 4
    common_tokens: int = 8192
    prompt_share: float = 0.1
    cool_weight: float = 3.0
    stage1_rate: float = 2e-3
    stage2_rate: float = 1e-3
    table_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    autocast: bool = True
    log_steps: int = 20
    checkpoint_s: float = 90.0
    validate_s: float = 300.0
    held_out_share: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if self.stage1_anchors < 0 or self.stage2_anchors < 0 or self.stage1_anchors + self.stage2_anchors == 0:
            raise ParameterError(
                f"Nothing to train: stage 1 has {self.stage1_anchors} anchors, stage 2 {self.stage2_anchors}."
            )
        if len(self.block_lengths) != len(self.block_shares) or max(self.block_lengths) != self.block_size:
            raise ParameterError(
                f"block_lengths {self.block_lengths} need one share each and γ = {self.block_size} as the longest."
            )
        if self.hours is not None and self.hours <= 0:
            raise ParameterError(f"hours is {self.hours}; give a time above 0 or leave it out.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
