"""The acceptance rule of speculative sampling, pure (Leviathan et al., arXiv:2211.17192; Chen et al., 2302.01318).

Symbols: ℓ verified drafts, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dspark_core.drafters.base import DraftBlock
from dspark_core.events import NextKind
from dspark_core.sampling import Dice


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target said of ℓ drafts.

    Attributes:
        num_accepted: length of the accepted prefix.
        accept_probs: min(1, p_t/p_d) of all ℓ drafts.
        uniforms: the uniform numbers compared with them; None where none was drawn.
        next_id: the target's own token.
        kind: "correction" after a rejection, "bonus" when all ℓ were accepted.
        residual: what a correction was drawn from, [V], not normalised; else None.
    """

    num_accepted: int
    accept_probs: tuple[float, ...]
    uniforms: tuple[float | None, ...]
    next_id: int
    kind: NextKind
    residual: torch.Tensor | None = None


def verify(target_probs: torch.Tensor, block: DraftBlock, verify_len: int, dice: Dice) -> Verdict:
    """Accept the longest prefix the rule allows and draw the target's own token after it.

    The emitted tokens follow ``target_probs`` exactly, for any draft law, as long as the drafts were drawn from
    ``block.candidate_probs``: a draft is kept with probability min(1, p_t/p_d), and a rejected one is replaced by
    a draw from norm(max(0, p_t − p_d)). One-hot laws make this greedy decoding.

    Args:
        target_probs: [ℓ+1, V], row k is the law of the token after k accepted drafts.
        block: the drafts and their laws; only the first ℓ are looked at.
        verify_len: ℓ ≥ 0.
        dice: this request's chance.
    """
    draft_probs = _drawn_law(block.candidate_probs[:verify_len])
    accept_probs = _accept_probs(target_probs, block, draft_probs)
    uniforms: list[float | None] = [None] * verify_len
    for k in range(verify_len):
        accepted, uniforms[k] = dice.accept(accept_probs[k])
        if not accepted:
            residual = residual_law(target_probs[k], block.candidate_ids[k], draft_probs[k])
            return Verdict(k, tuple(accept_probs), tuple(uniforms), dice.choose(residual), "correction", residual)
    next_id = dice.choose(target_probs[verify_len])
    return Verdict(verify_len, tuple(accept_probs), tuple(uniforms), next_id, "bonus")


def residual_law(target_row: torch.Tensor, candidate_ids: torch.Tensor, candidate_probs: torch.Tensor) -> torch.Tensor:
    """max(0, p_t − p_d) [V], not normalised; p_t itself where rounding leaves no mass (p_t = p_d: never needed)."""
    residual = target_row.to(torch.float64, copy=True)
    at = candidate_ids.to(target_row.device)
    residual[at] = (residual[at] - candidate_probs.to(target_row.device, torch.float64)).clamp(min=0)
    return residual if bool(residual.sum() > 0) else target_row.double()


def _drawn_law(candidate_probs: torch.Tensor) -> torch.Tensor:
    """The draft law in float64, on the CPU. Dice divide by the sum, which in float32 is not quite 1; so must we."""
    wide = candidate_probs.to("cpu", torch.float64)
    return wide / wide.sum(-1, keepdim=True)


def _accept_probs(target_probs: torch.Tensor, block: DraftBlock, draft_probs: torch.Tensor) -> list[float]:
    verify_len = len(draft_probs)
    if verify_len == 0:
        return []
    drafted = torch.tensor(block.token_ids[:verify_len], device=target_probs.device)
    p_target = target_probs[:verify_len].gather(-1, drafted[:, None])[:, 0].double().cpu()
    at_drafted = block.candidate_ids[:verify_len].cpu() == drafted.cpu()[:, None]
    p_draft = (draft_probs * at_drafted).sum(-1)
    return [float(p) for p in (p_target / p_draft).clamp(max=1).tolist()]
