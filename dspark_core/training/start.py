"""Smart start: a drafter that begins as the target's own last layers instead of noise."""

import torch
from torch import Tensor, nn

from dspark_core.errors import ParameterError
from dspark_core.modules.config import DraftConfig
from dspark_core.modules.drafter import Drafter
from dspark_core.training.source import LlamaSource

TAPS_OF_30_LAYERS = (1, 8, 15, 22, 28)


def draft_config(
    source: LlamaSource, *, layers: int, block_size: int, markov_rank: int, mask_token_id: int
) -> DraftConfig:
    """A drafter of the target's own shape, embedding and LM head left with the target."""
    return DraftConfig(
        hidden_size=source.hidden_size,
        intermediate_size=source.intermediate_size,
        num_attention_heads=source.heads,
        num_key_value_heads=source.kv_heads,
        head_dim=source.head_dim,
        num_hidden_layers=layers,
        num_target_layers=source.num_layers,
        target_layer_ids=source.taps,
        vocab_size=source.vocab_size,
        block_size=block_size,
        mask_token_id=mask_token_id,
        rms_norm_eps=source.eps,
        rope_theta=source.rope_theta,
        max_position_embeddings=source.max_position_embeddings,
        markov_rank=markov_rank,
        enable_confidence_head=True,
        confidence_head_with_markov=markov_rank > 0,
        embed_tokens_from_target=True,
        lm_head_from_target=True,
    )


@torch.no_grad()
def smart_start(drafter: Drafter, source: LlamaSource, features: Tensor, *, seed: int = 0) -> None:
    """Fill `drafter` in place from the target; `features` [n, m·H] is a sample of tapped rows to measure on.

    Draft layer i = target layer N-layers+i; `fc` ≈ identity on the deepest tap (noise of 1/100 of that on the others);
    `hidden_norm` = the input norm of the layer above that tap; q/k gains = RMS of the target's queries and keys
    (the target has no q/k norm, so the gain keeps its attention scores' size); W1 = principal components of the
    embedding, so that rare tokens start near their likes.
    """
    config = drafter.config
    hidden, first = config.hidden_size, source.num_layers - config.num_hidden_layers
    if first < 0:
        raise ParameterError(
            f"A target of {source.num_layers} layers cannot fill {config.num_hidden_layers} draft layers."
        )
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(drafter.fc.weight.shape, generator=generator) * (0.01 / hidden**0.5)
    mixing[:, -hidden:] += torch.eye(hidden)
    drafter.fc.weight.copy_(mixing)
    above = min(config.target_layer_ids[-1] + 1, source.num_layers - 1)
    drafter.hidden_norm.weight.copy_(source.layer(above, "input_layernorm"))
    drafter.norm.weight.copy_(source.weights["model.norm.weight"])
    deepest = features[:, -hidden:]
    for index, layer in enumerate(drafter.layers):
        for name, parameter in layer.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                continue
            parameter.copy_(source.layer(first + index, name.removesuffix(".weight")))
        normed = source.norm(deepest, source.layer(first + index, "input_layernorm")).float()
        attention = layer.self_attn
        if isinstance(attention, nn.Module):
            for name in ("q", "k"):
                projected = normed @ source.layer(first + index, f"self_attn.{name}_proj").float().T
                heads = projected.view(len(projected), -1, config.head_dim)
                gain = heads.square().mean(-1).sqrt().mean()
                getattr(attention, f"{name}_norm").weight.fill_(float(gain))
    if drafter.markov_head is not None:
        drafter.markov_head.markov_w1.weight.copy_(principal_components(source.embedding, config.markov_rank))


def principal_components(table: Tensor, rank: int) -> Tensor:
    """The table's rows [V, H] in their `rank` strongest directions, scaled to unit RMS: [V, rank]."""
    wide = table.float() - table.float().mean(0)
    _, vectors = torch.linalg.eigh(wide.T @ wide)  # rising eigenvalues
    parts = wide @ vectors[:, -rank:]
    if parts.shape[1] < rank:
        raise ParameterError(f"A Markov rank of {rank} exceeds the embedding's width {table.shape[1]}.")
    scaled: Tensor = parts / parts.square().mean().sqrt()
    return scaled
