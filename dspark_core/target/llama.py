"""A frozen model, Llama or one of its relatives, whose one pass serves several requests, ragged and without padding.

Which relatives: `dspark_core.target.family`. All go through the one pass here; a layer that lacks a part skips it.

Symbols: n tokens of one request, N tokens of all requests in the pass, H hidden size, V vocabulary, D head size, m
tapped layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional

from dspark_core.errors import ParameterError, ResourceError
from dspark_core.target.attention import Attend, RaggedAttention
from dspark_core.target.base import KVSlot, TargetOutput
from dspark_core.target.config import LlamaConfig
from dspark_core.target.kv_cache import LlamaSlot
from dspark_core.target.layer import Layer, Weights, scaled_embedding
from dspark_core.target.linear import Linear, make_linear
from dspark_core.target.rope import rope_tables
from dspark_core.target.weights import load_tensors

MAX_ROWS = 512  # longer inputs go through in several passes, so that attention scores stay small
FIRST_POSITIONS = 8192  # of the rotary tables; a slot that is larger makes them longer


_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
}


class LlamaTarget:
    """Implements `dspark_core.target.base.Target` for Llama and its relatives. Not thread-safe: one pass at a time."""

    def __init__(
        self,
        config: LlamaConfig,
        state: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype,
        device: torch.device,
        name: str = "llama",
        stop_token_ids: frozenset[int] | None = None,
        poison: bool = False,
    ) -> None:
        """Prepare the weights (fused and packed).

        Args:
            config: shapes.
            state: tensors under their Hugging Face names.
            dtype: type to compute in.
            device: where to compute; only the CPU is tested.
            name: name to show.
            stop_token_ids: ids that end a text; the config's end-of-sequence ids when left out.
            poison: fill unused cache memory with NaN (for tests).

        Raises:
            ModelUnavailableError: a tensor is missing or has another shape than the config says.
        """
        self.config = config
        self.name = name
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self.num_layers = config.num_layers
        self.max_context = config.max_context
        self.stop_token_ids = frozenset(config.eos_token_ids) if stop_token_ids is None else stop_token_ids
        self.device = device
        self.dtype = dtype
        self._poison = poison
        with torch.inference_mode():
            self._prepare(Weights(config, state, dtype, device))

    @classmethod
    def from_state(
        cls,
        config: LlamaConfig | Mapping[str, object],
        state_dict: Mapping[str, torch.Tensor],
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        *,
        poison: bool = False,
    ) -> LlamaTarget:
        """A target from tensors in memory (tests, experiments); ``config`` may be a Hugging Face dictionary."""
        parsed = config if isinstance(config, LlamaConfig) else LlamaConfig.from_dict(config)
        return cls(parsed, state_dict, dtype=dtype, device=torch.device(device), poison=poison)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        dtype: torch.dtype,
        device: str | torch.device = "cpu",
        name: str | None = None,
        stop_token_ids: frozenset[int] | None = None,
        poison: bool = False,
    ) -> LlamaTarget:
        """A target from a Hugging Face folder (``config.json`` and ``*.safetensors``).

        Raises:
            ModelUnavailableError: a file is missing or broken, or the model is not one that we compute.
        """
        config = LlamaConfig.from_json(folder / "config.json")
        return cls(
            config,
            load_tensors(folder),
            dtype=dtype,
            device=torch.device(device),
            name=name or folder.name,
            stop_token_ids=stop_token_ids,
            poison=poison,
        )

    def _prepare(self, weights: Weights) -> None:
        config = self.config
        self._embedding = weights.embedding()
        self._head = make_linear(self._embedding if config.tie_word_embeddings else weights.head())
        self._norm = weights.norm()
        self._activation = _ACTIVATIONS[config.family.activation]
        self._layers = [weights.layer(index) for index in range(config.num_layers)]
        # On a CPU attention runs in float32: its small products are faster than oneDNN's bf16 ones, and more exact.
        self._attention_dtype = self.dtype
        if self.device.type == "cpu" and self.dtype in (torch.bfloat16, torch.float16):
            self._attention_dtype = torch.float32
        self._rotary: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.rotary_tables(min(config.max_context, FIRST_POSITIONS))

    def rotary_tables(self, positions: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(cos, signed sin), each [P, D] with P ≥ ``positions``, in the type that attention is computed in.

        One pair, or two where the layers with a window have one of their own, which is the second.
        """
        if not self._rotary or positions > len(self._rotary[0][0]):
            config = self.config
            ropes = [config.rope] if config.local_rope is None else [config.rope, config.local_rope]
            made = [rope_tables(rope, config.head_dim, positions) for rope in ropes]
            self._rotary = [
                (cos.to(self.device, self._attention_dtype), sin.to(self.device, self._attention_dtype))
                for cos, sin in made
            ]
        return self._rotary

    def open_slot(self, capacity: int) -> LlamaSlot:
        """A slot for ``capacity`` tokens.

        Raises:
            ParameterError: more tokens than the model's context holds.
            ResourceError: memory is short.
        """
        if not 1 <= capacity <= self.max_context:
            raise ParameterError(
                f"A request of {capacity} tokens was asked for; {self.name} holds 1 to {self.max_context}. "
                "Shorten the prompt or ask for fewer new tokens."
            )
        self.rotary_tables(capacity)
        shape = (self.num_layers, 2, self.config.num_kv_heads, capacity, self.config.head_dim)
        return LlamaSlot(shape, self._attention_dtype, self.device, self._poison)

    @torch.inference_mode()
    def forward(
        self,
        slots: Sequence[KVSlot],
        token_ids: Sequence[Sequence[int]],
        *,
        tapped_layers: tuple[int, ...],
        want_logits: bool = True,
    ) -> list[TargetOutput]:
        """Append each request's tokens to its slot and return their logits and features, ragged, no padding.

        Causal within the new tokens. Layer id k taps the output of layer k (transformers' ``hidden_states[k + 1]``);
        the last layer is not to be tapped. The results are inference tensors. When a pass fails, no slot has grown.

        Raises:
            ResourceError: a slot would overflow.
        """
        own = [_own(slot) for slot in slots]
        assert len(own) == len(token_ids) == len({id(slot) for slot in own}), "slots and tokens"  # noqa: S101
        assert all(0 <= layer < self.num_layers - 1 for layer in tapped_layers), tapped_layers  # noqa: S101
        for slot, ids in zip(own, token_ids, strict=True):
            _check_room(slot, len(ids))
        old_lengths = [slot.length for slot in own]
        results: list[list[TargetOutput]] = [[] for _ in own]
        try:
            for work in _passes([len(ids) for ids in token_ids]):
                pieces = [(own[i], token_ids[i][begin:end]) for i, begin, end in work]
                outputs = self._pass(pieces, tapped_layers, want_logits)
                for (i, _, _), output in zip(work, outputs, strict=True):
                    results[i].append(output)
        except BaseException:
            for slot, length in zip(own, old_lengths, strict=True):
                slot.crop(length)
            raise
        return [self._joined(outputs, len(tapped_layers)) for outputs in results]

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Input embeddings [n, H], scaled where the family scales them."""
        return scaled_embedding(self.config, functional.embedding(token_ids, self._embedding))

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [n, V] of final (already normalised) hidden states [n, H], capped where the model caps them."""
        with torch.inference_mode():
            return self._capped(self._head(hidden))

    def narrow_head(self, token_ids: torch.Tensor) -> Linear:
        """`lm_head` for the tokens [C] alone: a function from [n, H] to [n, C], with weights of its own."""
        with torch.inference_mode():
            if self.config.tie_word_embeddings:
                rows = self._embedding[token_ids]
            else:  # the table may be packed; its product with the identity gives the rows back exactly
                identity = torch.eye(self.hidden_size, dtype=self.dtype, device=self.device)
                rows = self._head(identity)[:, token_ids].T
        product = make_linear(rows)
        return lambda hidden: self._capped(product(hidden))

    def run_layers(
        self,
        ids: torch.Tensor,
        rotations: Sequence[tuple[torch.Tensor, torch.Tensor]],
        attend: Attend,
        taps: tuple[int, ...],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All layers over token ids [N] of one pass, whatever kind of attention serves them.

        Args:
            ids: token ids [N].
            rotations: for each pair of `rotary_tables`, its rows [N, 1, D] for the tokens' positions.
            attend: stores and attends.
            taps: layers to tap.

        Returns:
            (final hidden state after the last norm [N, H], tapped outputs [N, m·H]).
        """
        hidden = self.embed(ids)
        width = self.hidden_size
        features = hidden.new_empty(len(ids), len(taps) * width)
        for index, layer in enumerate(self._layers):
            projected = layer.query_key_value(self._normalise(hidden, layer.attention_norm))
            attended = layer.attention_out(self._attend(projected, layer, rotations[layer.rope], index, attend))
            hidden += self._normalise(attended, layer.attention_out_norm)
            gate, up = layer.gate_up(self._normalise(hidden, layer.mlp_norm)).chunk(2, dim=-1)
            hidden += self._normalise(layer.down(self._activation(gate).mul_(up)), layer.mlp_out_norm)
            for place, tapped in enumerate(taps):
                if tapped == index:
                    features[:, place * width : (place + 1) * width] = hidden
        return self._normalise(hidden, self._norm), features

    def _pass(
        self, pieces: list[tuple[LlamaSlot, Sequence[int]]], tapped_layers: tuple[int, ...], want_logits: bool
    ) -> list[TargetOutput]:
        counts = [len(tokens) for _, tokens in pieces]
        groups = self.config.num_heads // self.config.num_kv_heads
        attention = RaggedAttention([slot for slot, _ in pieces], counts, groups, self.config.windows)
        ids = torch.tensor([token for _, tokens in pieces for token in tokens], device=self.device)
        rotations = [(attention.rows_of(cos), attention.rows_of(sin)) for cos, sin in self._rotary]
        hidden, features = self.run_layers(ids, rotations, attention, tapped_layers)
        attention.commit()
        if want_logits:
            logits = torch.split(self._capped(self._head(hidden)), counts)
        else:
            logits = (hidden.new_empty(0, self.vocab_size),) * len(pieces)
        parts = zip(logits, torch.split(features, counts), torch.split(hidden, counts), strict=True)
        return [TargetOutput(*part) for part in parts]

    def _normalise(self, hidden: torch.Tensor, gain: torch.Tensor | None) -> torch.Tensor:
        """RMS norm over H; the input itself where the layer has no such norm."""
        if gain is None:
            return hidden
        if gain.dtype == hidden.dtype:  # one fused kernel
            return functional.rms_norm(hidden, (self.hidden_size,), gain, self.config.rms_norm_eps)
        return functional.rms_norm(hidden.float(), (self.hidden_size,), gain, self.config.rms_norm_eps).to(hidden.dtype)

    def _capped(self, logits: torch.Tensor) -> torch.Tensor:
        cap = self.config.final_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _attend(
        self,
        projected: torch.Tensor,
        layer: Layer,
        rotation: tuple[torch.Tensor, torch.Tensor],
        index: int,
        attend: Attend,
    ) -> torch.Tensor:
        """Rotate, then store and attend: [N, (heads + 2·kv_heads)·D] → [N, heads·D]."""
        config = self.config
        heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
        cos, sin = rotation
        by_head = projected.to(self._attention_dtype).view(-1, heads + 2 * kv_heads, size)
        rotated = by_head[:, : heads + kv_heads]
        if layer.query_key_gain is not None:
            rotated.copy_(functional.rms_norm(rotated, (size,), eps=config.rms_norm_eps) * layer.query_key_gain)
        swapped = rotated.roll(size // 2, -1).mul_(sin)
        rotated.mul_(cos).add_(swapped)
        keys_values = by_head[:, heads:].view(-1, 2, kv_heads, size).permute(1, 2, 0, 3)
        return attend(index, by_head[:, :heads], keys_values).to(self.dtype)

    def _joined(self, outputs: list[TargetOutput], taps: int) -> TargetOutput:
        if len(outputs) == 1:
            return outputs[0]
        empty = self._embedding.new_empty
        logits = [empty(0, self.vocab_size), *(output.logits for output in outputs)]
        features = [empty(0, taps * self.hidden_size), *(output.features for output in outputs)]
        hidden = [empty(0, self.hidden_size), *(output.hidden for output in outputs)]
        return TargetOutput(torch.cat(logits), torch.cat(features), torch.cat(hidden))


def _own(slot: KVSlot) -> LlamaSlot:
    assert isinstance(slot, LlamaSlot), "a slot of another target"  # noqa: S101
    return slot


def _check_room(slot: LlamaSlot, count: int) -> None:
    if slot.length + count > slot.capacity:
        raise ResourceError(
            f"The request's cache holds {slot.capacity} tokens and has {slot.length}; {count} more do not fit. "
            "Start the request with a larger limit, or ask for fewer new tokens."
        )


def _passes(counts: list[int]) -> Iterator[list[tuple[int, int, int]]]:
    """Cut the requests' rows into passes of at most MAX_ROWS rows: lists of (request, begin, end)."""
    work: list[tuple[int, int, int]] = []
    room = MAX_ROWS
    for i, count in enumerate(counts):
        begin = 0
        while begin < count:
            end = min(count, begin + room)
            work.append((i, begin, end))
            room -= end - begin
            begin = end
            if room == 0:
                yield work
                work, room = [], MAX_ROWS
    if work:
        yield work
