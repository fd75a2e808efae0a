"""Matrix products with frozen weights: packed once by oneDNN where that works, plain elsewhere.

On a CPU, one token's pass costs what reading the weights costs. A weight in oneDNN's blocked layout is read at memory
speed for one row and for nine alike, which is what makes verifying a draft block cost about as much as one token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional

Linear = Callable[[torch.Tensor], torch.Tensor]
ModuleType = TypeVar("ModuleType", bound=nn.Module)

_ROWS_TO_PACK_FOR = 8  # oneDNN picks the layout by the number of rows; this one serves 1 to ~16 rows equally well


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """The function x [n, in] → x · weightᵀ + bias [n, out] for a frozen ``weight`` [out, in] and ``bias`` [out].

    The weight is copied into oneDNN's layout where this machine supports that for the weight's type; the caller may
    drop its own copy.
    """
    if weight.device.type == "cpu" and packing_works(weight.dtype):
        return _packed(weight, bias)
    frozen = weight.contiguous()
    return lambda x: functional.linear(x, frozen, bias)


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether packed products of this type exist here and agree with plain ones (tried once on a small example)."""
    if dtype is not torch.bfloat16:
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
    return bool(torch.allclose(packed.float(), functional.linear(x, weight).float(), rtol=0.02, atol=0.02))


def _packed(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    ops: Any = torch.ops.mkldnn
    with torch.inference_mode():
        packed = ops._reorder_linear_weight(weight.contiguous(), _ROWS_TO_PACK_FOR)
    product = ops._linear_pointwise.default

    def linear(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = product(x, packed, bias, "none", [], "")
        return result

    return linear


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` (without bias) whose product is `make_linear`'s."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self._product = make_linear(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] → [..., out]."""
        return self._product(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


def pack_linears(module: ModuleType, skip: tuple[str, ...] = ()) -> ModuleType:
    """Put packed products in the place of the module's bias-free linear layers, for inference; returns the module.

    Children named in ``skip`` are left as they are.
    """
    for name, child in module.named_children():
        if name in skip:
            continue
        if isinstance(child, nn.Linear):
            if child.bias is None and packing_works(child.weight.dtype):
                setattr(module, name, PackedLinear(child.weight.detach()))
        else:
            pack_linears(child)
    return module
