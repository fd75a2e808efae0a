"""Matrix products with frozen weights: packed once by oneDNN where that works, plain elsewhere.

On a CPU, one token's pass costs what reading the weights costs. A weight in oneDNN's blocked layout is read at memory
speed for one row and for nine alike, which is what makes verifying a draft block cost about as much as one token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

Linear = Callable[[torch.Tensor], torch.Tensor]

_ROWS_TO_PACK_FOR = 8  # oneDNN picks the layout by the number of rows; this one serves 1 to ~16 rows equally well


def make_linear(weight: torch.Tensor) -> Linear:
    """The function x [n, in] → x · weightᵀ [n, out] for a frozen ``weight`` [out, in].

    The weight is copied into oneDNN's layout where this machine supports that for the weight's type; the caller may
    drop its own copy.
    """
    if weight.device.type == "cpu" and packing_works(weight.dtype):
        return _packed(weight)
    frozen = weight.contiguous()
    return lambda x: F.linear(x, frozen)


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether packed products of this type exist here and agree with plain ones (tried once on a small example)."""
    if dtype is not torch.bfloat16 or not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 32, generator=generator).to(dtype)
    x = torch.randn(3, 32, generator=generator).to(dtype)
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        packed = _packed(weight)(x)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool(torch.allclose(packed.float(), F.linear(x, weight).float(), rtol=0.02, atol=0.02))


def _packed(weight: torch.Tensor) -> Linear:
    ops: Any = torch.ops.mkldnn
    with torch.inference_mode():
        packed = ops._reorder_linear_weight(weight.contiguous(), _ROWS_TO_PACK_FOR)
    product = ops._linear_pointwise.default

    def linear(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = product(x, packed, None, "none", [], "")
        return result

    return linear
