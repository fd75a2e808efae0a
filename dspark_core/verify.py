"""The acceptance rule of speculative sampling, pure (Leviathan et al., arXiv:2211.17192; Chen et al., 2302.01318).

Symbols: ℓ verified drafts, V vocabulary, K token ids that a row of the target's law is over.
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
        residual: what a correction was drawn from, [K], not normalised; else None.
    """

    num_accepted: int
    accept_probs: tuple[float, ...]
    uniforms: tuple[float | None, ...]
    next_id: int
    kind: NextKind
    residual: torch.Tensor | None = None


def verify(
    target_probs: torch.Tensor,
    block: DraftBlock,
    verify_len: int,
    dice: Dice,
    target_ids: torch.Tensor | None = None,
) -> Verdict:
    """Accept the longest prefix the rule allows and draw the target's own token after it.

    The emitted tokens follow ``target_probs`` exactly, for any draft law, as long as the drafts were drawn from
    ``block.candidate_probs``: a draft is kept with probability min(1, p_t/p_d), and a rejected one is replaced by
    a draw from norm(max(0, p_t − p_d)). One-hot laws make this greedy decoding.

    Args:
        target_probs: [ℓ+1, K], row k is the law of the token after k accepted drafts.
        block: the drafts and their laws; only the first ℓ are looked at.
        verify_len: ℓ ≥ 0.
        dice: this request's chance.
        target_ids: [ℓ+1, K], the token ids of the law's columns; None: K = V, column i is token i.
    """
    ids = [None] * (verify_len + 1) if target_ids is None else list(target_ids)
    draft_probs = _drawn_law(block.candidate_probs[:verify_len])
    accept_probs = _accept_probs(target_probs, target_ids, block, draft_probs)
    uniforms: list[float | None] = [None] * verify_len
    for k in range(verify_len):
        accepted, uniforms[k] = dice.accept(accept_probs[k])
        if not accepted:
            residual = residual_law(target_probs[k], block.candidate_ids[k], draft_probs[k], ids[k])
            next_id = _token(ids[k], dice.choose(residual))
            return Verdict(k, tuple(accept_probs), tuple(uniforms), next_id, "correction", residual)
    next_id = _token(ids[verify_len], dice.choose(target_probs[verify_len]))
    return Verdict(verify_len, tuple(accept_probs), tuple(uniforms), next_id, "bonus")


def residual_law(
    target_row: torch.Tensor,
    candidate_ids: torch.Tensor,
    candidate_probs: torch.Tensor,
    row_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """max(0, p_t − p_d) [K], not normalised; p_t itself where rounding leaves no mass (p_t = p_d: never needed).

    It has mass only where p_t has: so where p_t is over ``row_ids`` [K] alone, so is it.
    """
    residual = target_row.to(torch.float64, copy=True)
    at, p_draft = candidate_ids.to(target_row.device), candidate_probs.to(target_row.device, torch.float64)
    if row_ids is None:
        residual[at] = (residual[at] - p_draft).clamp(min=0)
    else:
        residual = (residual - ((at == row_ids[:, None]) * p_draft).sum(-1)).clamp(min=0)
    return residual if bool(residual.sum() > 0) else target_row.double()


def _token(row_ids: torch.Tensor | None, column: int) -> int:
    return column if row_ids is None else int(row_ids[column])


def _drawn_law(candidate_probs: torch.Tensor) -> torch.Tensor:
    """The draft law in float64, on the CPU. Dice divide by the sum, which in float32 is not quite 1; so must we."""
    wide = candidate_probs.to("cpu", torch.float64)
    return wide / wide.sum(-1, keepdim=True)


def _accept_probs(
    target_probs: torch.Tensor, target_ids: torch.Tensor | None, block: DraftBlock, draft_probs: torch.Tensor
) -> list[float]:
    verify_len = len(draft_probs)
    if verify_len == 0:
        return []
    drafted = torch.tensor(block.token_ids[:verify_len])[:, None]
    there = drafted.to(target_probs.device)
    if target_ids is None:
        p_target = target_probs[:verify_len].gather(-1, there)[:, 0]
    else:
        p_target = (target_probs[:verify_len] * (target_ids[:verify_len] == there)).sum(-1)
    p_draft = (draft_probs * (block.candidate_ids[:verify_len].cpu() == drafted)).sum(-1)
    return [float(p) for p in (p_target.double().cpu() / p_draft).clamp(max=1).tolist()]
