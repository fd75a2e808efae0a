"""Rotary position tables. Symbols: P positions, D head size."""

from __future__ import annotations

import math

import torch

from dspark_core.target.config import RopeConfig


def rope_tables(rope: RopeConfig, head_dim: int, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 tables (cos [P, D], signed sin [P, D]).

    A head x is rotated as ``x * cos + swap_halves(x) * signed_sin``: the minus sign of the usual ``rotate_half``
    sits in the table.
    """
    frequencies = _frequencies(rope, head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "llama3":
        return _stretch_low_frequencies(frequencies, rope)
    return frequencies / rope.factor  # 1 but for linear scaling


def _stretch_low_frequencies(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Llama 3's rule: wavelengths beyond the original context are slowed by ``factor``, with a smooth transition."""
    wavelengths = 2 * math.pi / frequencies
    smooth = (rope.original_context / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    smooth = smooth.clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / rope.factor + smooth * frequencies
