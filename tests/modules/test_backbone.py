"""The backbone: cached context equals the many-anchor form, and what each output may depend on."""

import pytest
import torch
from torch.nn import functional

from tests.modules.tiny import GAMMA, TAPS, H, tiny_drafter

T = 9


@pytest.fixture
def drafter():
    return tiny_drafter().double()


def features(seed=1, tokens=T):
    return torch.randn(tokens, len(TAPS) * H, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def block(seed=2, length=GAMMA):
    return torch.randn(length, H, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(drafter, rows, embeddings, anchor):
    context = drafter.context_keys_values(rows, torch.arange(len(rows)))
    return drafter.forward_block(embeddings, torch.arange(anchor, anchor + len(embeddings)), context)


def reference(drafter, rows, embeddings, anchor):
    """The published form, written out: keys of [context; block], queries with the last γ rotary positions."""
    config, x = drafter.config, embeddings
    mixed = drafter.hidden_norm(drafter.fc(rows))
    positions = torch.cat((torch.arange(len(rows)), torch.arange(anchor, anchor + len(embeddings))))
    angles = positions[:, None].double() / config.rope_theta ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
    turn = torch.polar(torch.ones_like(angles), angles)

    def turned(v, at):
        half = config.head_dim // 2
        pairs = torch.complex(v[..., :half].contiguous(), v[..., half:].contiguous()) * at[:, None]
        return torch.cat((pairs.real, pairs.imag), dim=-1)

    def normed(v, gain):
        return v / (v.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * gain

    for layer in drafter.layers:
        own = layer.input_layernorm(x)
        attention, both = layer.self_attn, torch.cat((mixed, layer.input_layernorm(x)))
        q = attention.q_proj(own).view(-1, config.num_attention_heads, config.head_dim)
        k = attention.k_proj(both).view(-1, config.num_key_value_heads, config.head_dim)
        v = attention.v_proj(both).view(-1, config.num_key_value_heads, config.head_dim)
        q = turned(normed(q, attention.q_norm.weight), turn[-len(x) :])
        k = turned(normed(k, attention.k_norm.weight), turn)
        groups = config.num_attention_heads // config.num_key_value_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        weights = torch.softmax(torch.einsum("qhd,khd->hqk", q, k) / config.head_dim**0.5, -1)
        x = x + attention.o_proj(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))
        after = layer.post_attention_layernorm(x)
        x = x + layer.mlp.down_proj(functional.silu(layer.mlp.gate_proj(after)) * layer.mlp.up_proj(after))
    return drafter.norm(x)


def test_equals_the_published_form(drafter):
    torch.testing.assert_close(
        run(drafter, features(), block(), T), reference(drafter, features(), block(), T), rtol=0, atol=1e-6
    )


def test_many_anchors_equal_one_block_at_a_time(drafter):
    anchors, rows = torch.tensor([[3, 7], [1, 4]]), torch.stack((features(1), features(5)))
    embeddings = torch.stack([torch.stack((block(10 * s), block(10 * s + 1))) for s in range(2)])
    context = drafter.context_keys_values(rows, torch.arange(T).expand(2, T))
    visible = torch.arange(T) < anchors.unsqueeze(-1)
    positions = anchors.unsqueeze(-1) + torch.arange(GAMMA)
    together = drafter.forward_blocks(embeddings, positions, context, visible)
    for s in range(2):
        for a in range(2):
            anchor = int(anchors[s, a])
            alone = run(drafter, rows[s, :anchor], embeddings[s, a], anchor)
            torch.testing.assert_close(together[s, a], alone, rtol=0, atol=1e-9)


def test_context_is_computed_once_per_token(drafter):
    rows = features()
    whole = drafter.context_keys_values(rows, torch.arange(T))
    first = drafter.context_keys_values(rows[:4], torch.arange(4))
    rest = drafter.context_keys_values(rows[4:], torch.arange(4, T))
    for layer in range(len(whole)):
        for part in range(2):
            joined = torch.cat((first[layer][part], rest[layer][part]), dim=-2)
            torch.testing.assert_close(joined, whole[layer][part], rtol=0, atol=1e-9)


def test_anchor_and_later_features_cannot_be_seen(drafter):
    """A block over context [0, 4) is the same whatever the features of token 4 and later are."""
    rows, visible = features(), (torch.arange(T) < 4)[None, None]
    poisoned = rows.clone()
    poisoned[4:] = 1e3
    outputs = [
        drafter.forward_blocks(
            block()[None, None],
            torch.arange(4, 4 + GAMMA)[None, None],
            drafter.context_keys_values(x[None], torch.arange(T)[None]),
            visible,
        )
        for x in (rows, poisoned)
    ]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)


def test_block_leaves_the_context_as_it_was(drafter):
    context = drafter.context_keys_values(features(), torch.arange(T))
    before = [(k.clone(), v.clone()) for k, v in context]
    positions = torch.arange(T, T + GAMMA)
    first = drafter.forward_block(block(), positions, context)
    again = drafter.forward_block(block(), positions, context)
    assert torch.equal(first, again)
    assert all(
        torch.equal(a, b) for old, new in zip(before, context, strict=True) for a, b in zip(old, new, strict=True)
    )


def test_block_is_bidirectional_inside(drafter):
    changed = block()
    changed[-1] += 1
    difference = run(drafter, features(), block(), T) - run(drafter, features(), changed, T)
    assert difference[0].abs().max() > 1e-6


def test_only_distances_between_positions_matter(drafter):
    rows, moved = features(), torch.arange(T) + 50
    context = drafter.context_keys_values(rows, moved)
    shifted = drafter.forward_block(block(), torch.arange(T + 50, T + 50 + GAMMA), context)
    torch.testing.assert_close(shifted, run(drafter, rows, block(), T), rtol=0, atol=1e-5)


def test_key_norm_applies_to_the_context_too(drafter):
    """Scaling k_proj changes no key, the context's included (up to the norm's epsilon)."""
    plain = run(drafter, features(), block(), T)
    for layer in drafter.layers:
        layer.self_attn.k_proj.weight.mul_(1000)
        layer.self_attn.k_norm.eps = layer.self_attn.k_norm.eps * 1e6
    torch.testing.assert_close(run(drafter, features(), block(), T), plain, rtol=0, atol=1e-9)


def test_a_block_without_context_works(drafter):
    assert torch.isfinite(run(drafter, features(tokens=0), block(), 0)).all()


def test_feature_order_is_the_order_of_the_taps(drafter):
    rows = features()
    swapped = torch.cat((rows[:, H:], rows[:, :H]), dim=-1)
    assert (run(drafter, rows, block(), T) - run(drafter, swapped, block(), T)).abs().max() > 1e-6
