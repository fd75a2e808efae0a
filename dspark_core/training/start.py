"""Smart start: a drafter that begins as the target's own last layers instead of noise."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from dspark_core.errors import ParameterError
from dspark_core.fields import shown
from dspark_core.modules.config import DraftConfig
from dspark_core.modules.drafter import Drafter
from dspark_core.target.config import LlamaConfig
from dspark_core.training.source import TargetWeights


def spread_taps(layers: int) -> tuple[int, ...]:
    """Five target layers from the second to the last but one (fewer where there are not that many)."""
    return tuple(sorted({math.ceil(1 + i * (layers - 3) / 4) for i in range(5)})) if layers > 3 else (0,)


def draft_config(
    target: LlamaConfig,
    taps: tuple[int, ...],
    *,
    layers: int,
    block_size: int,
    markov_rank: int,
    mask_token_id: int,
    head_type: str = "vanilla",
    copy_longest: int = 0,
    confidence_reads_law: bool = False,
) -> DraftConfig:
    """A drafter of the target's own shape, embedding and LM head left with the target.

    ParameterError when a tap or the mask token is none of the target's, or the target is too small.
    """
    last = target.num_layers - 2
    if not taps or list(taps) != sorted(set(taps)) or not all(0 <= tap <= last for tap in taps):
        raise ParameterError(
            f"taps are {shown(list(taps))}; give one or more of the target's layers 0 to {last}, rising, none twice."
        )
    if not 0 <= mask_token_id < target.vocab_size:
        raise ParameterError(f"mask_token_id is {mask_token_id}; it must be a token id, 0 to {target.vocab_size - 1}.")
    if not 1 <= layers <= target.num_layers:
        raise ParameterError(f"A target of {target.num_layers} layers cannot fill {layers} draft layers.")
    if not 0 <= markov_rank <= target.hidden_size:
        raise ParameterError(
            f"markov_rank is {markov_rank}; give 0 (no sequential head) to {target.hidden_size}, "
            "the width of the target's embedding."
        )
    return DraftConfig(
        hidden_size=target.hidden_size,
        intermediate_size=target.intermediate_size,
        num_attention_heads=target.num_heads,
        num_key_value_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        num_hidden_layers=layers,
        num_target_layers=target.num_layers,
        target_layer_ids=taps,
        vocab_size=target.vocab_size,
        block_size=block_size,
        mask_token_id=mask_token_id,
        rms_norm_eps=target.rms_norm_eps,
        rope_theta=target.rope.theta,
        max_position_embeddings=target.max_context,
        markov_rank=markov_rank,
        markov_head_type=head_type,
        copy_longest=copy_longest,
        enable_confidence_head=True,
        confidence_reads_law=confidence_reads_law,
        confidence_head_with_markov=markov_rank > 0,
        embed_tokens_from_target=True,
        lm_head_from_target=True,
    )


@torch.no_grad()
def smart_start(drafter: Drafter, target: TargetWeights, features: Tensor, *, seed: int = 0) -> None:
    """Fill `drafter` in place from the target; `features` [n, m·H] is a sample of tapped rows to measure on.

    `fc` ≈ identity on the deepest tap (noise of 1/100 of that on the others); `norm` = the target's last one; W1 =
    principal components of the embedding, so that rare tokens start near their likes. Draft layer i = target layer
    N-layers+i and `hidden_norm` = the input norm of the layer above the deepest tap, unless the target's layers
    normalise their results too and have another activation (Gemma): a draft layer cannot be one of them, so it and
    `hidden_norm` stay as they were made, and training begins further back.
    """
    config = drafter.config
    hidden, first = config.hidden_size, target.config.num_layers - config.num_hidden_layers
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(drafter.fc.weight.shape, generator=generator) * (0.01 / hidden**0.5)
    mixing[:, -hidden:] += torch.eye(hidden)
    drafter.fc.weight.copy_(mixing)
    drafter.norm.weight.copy_(target.final_norm)
    if not target.config.family.outer_norms:
        above = min(config.target_layer_ids[-1] + 1, target.config.num_layers - 1)
        drafter.hidden_norm.weight.copy_(target.layer(above, "input_layernorm"))
        for index, layer in enumerate(drafter.layers):
            _copy_layer(layer, target, first + index, features[:, -hidden:])
    if drafter.markov_head is not None:
        drafter.markov_head.markov_w1.weight.copy_(principal_components(target.embedding, config.markov_rank))


def _copy_layer(layer: nn.Module, target: TargetWeights, index: int, rows: Tensor) -> None:
    """Make a draft layer the target's layer `index`, as far as it can be: biases (Qwen 2) are left out.

    A target without q/k norms gives gains that keep its attention scores' size: the RMS of its queries and keys over
    `rows` [n, H].
    """
    norms = ("self_attn.q_norm", "self_attn.k_norm")
    has_norms = target.config.family.query_key_norm
    gain = target.layer(index, "input_layernorm").to(rows.dtype)
    normed = functional.rms_norm(rows, gain.shape, gain, target.config.rms_norm_eps).float()
    for name, parameter in layer.named_parameters():
        name = name.removesuffix(".weight")
        if has_norms or name not in norms:
            parameter.copy_(target.layer(index, name))
        else:
            projected = normed @ target.layer(index, name.replace("norm", "proj")).float().T
            heads = projected.view(len(projected), -1, target.config.head_dim)
            parameter.fill_(float(heads.square().mean(-1).sqrt().mean()))


def principal_components(table: Tensor, rank: int) -> Tensor:
    """The table's rows [V, H] in their `rank` strongest directions, scaled to unit RMS: [V, rank]."""
    wide = table.float() - table.float().mean(0)
    _, vectors = torch.linalg.eigh(wide.T @ wide)  # rising eigenvalues
    parts = wide @ vectors[:, -rank:]
    scaled: Tensor = parts / parts.square().mean().sqrt()
    return scaled


@torch.no_grad()
def take_weights(drafter: Drafter, earlier: Drafter) -> list[str]:
    """Copy what `earlier` has under the same name and shape; returns the names of the rest, which stays as it is.

    Markov tables of a larger rank are taken as the nearest ones of this rank.
    """
    found, anew = dict(earlier.state_dict()), []
    rank = drafter.config.markov_rank
    if 0 < rank < earlier.config.markov_rank:
        found |= _of_lower_rank(found, rank)
    for name, value in drafter.state_dict().items():
        if name in found and found[name].shape == value.shape:
            value.copy_(found[name])
        else:
            anew.append(name)
    return anew


_W1, _W2, _CONFIDENCE = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "confidence_head.proj.weight"


def _of_lower_rank(weights: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """The bigram scores W1·W2ᵀ in their `rank` strongest directions, and what the confidence head reads of W1.

    Strongest over the tokens that are drafted (the others' rows of W2 are 0): there are five times as many others, all
    of them rare, and they would decide. By QR of both sides, since W1·W2ᵀ itself is V × V.
    """
    w1, w2 = weights[_W1].float(), weights[_W2].float()
    drafted = w2.abs().sum(-1) > 0
    if int(drafted.sum()) < w1.shape[1]:  # too few to tell directions by (W2 of a drafter that learnt nothing is 0)
        return {}
    _, right1 = torch.linalg.qr(w1[drafted])
    basis2, right2 = torch.linalg.qr(w2[drafted])
    _, strengths, directions = torch.linalg.svd(right1 @ right2.T)
    if not strengths[0] > 0:  # scores of 0 have no directions
        return {}
    # Scores of a lower rank have fewer directions than are asked for: what stands for the others must not be infinite.
    strengths = strengths[:rank].clamp(min=float(torch.finfo(torch.float32).eps * strengths[0]))
    directions = directions[:rank].T
    # W1·(R2ᵀ·V / s) has orthonormal columns over the drafted tokens; W1 keeps the size that it had.
    turn = right2.T @ directions / strengths
    size = w1.square().mean().sqrt() / (w1 @ turn).square().mean().sqrt()
    lower1 = w1 @ turn * size
    lower2 = torch.zeros(len(w2), rank)
    lower2[drafted] = basis2 @ directions * strengths / size
    found = {_W1: lower1, _W2: lower2}
    confidence = weights.get(_CONFIDENCE)
    if confidence is not None and confidence.shape[1] > w1.shape[1]:
        hidden, reads = confidence[:, : -w1.shape[1]].float(), confidence[:, -w1.shape[1] :].float()
        fitted = torch.linalg.lstsq(lower1[drafted], w1[drafted] @ reads.T).solution
        found[_CONFIDENCE] = torch.cat((hidden, fitted.T), dim=1)
    return found
