"""DeepSpec's published layout in full, from one of our drafters.

What our files save is written out: the target's embedding and LM head, and all rows of the Markov tables. Everything is
bfloat16, as in the published files. What that layout has no place for is told, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark_core.calibration import file as calibrations
from dspark_core.checkpoint import (
    CONFIG_NAME,
    EMBED_NAME,
    HEAD_NAME,
    WEIGHTS_NAME,
    LoadedDrafter,
    check_tensors,
    expected_shapes,
    load_drafter,
    read_config,
    write_tensors,
)
from dspark_core.drafters import vocabulary
from dspark_core.errors import CheckpointError, ModelUnavailableError
from dspark_core.fields import read_object
from dspark_core.files import new_folder, write_json
from dspark_core.modules.config import DraftConfig
from dspark_core.storage import way_to_repair
from dspark_core.target.config import LlamaConfig
from dspark_core.target.layer import Weights, scaled_embedding
from dspark_core.target.weights import load_tensors

HEADS = ("vanilla", "gated", "rnn")
_DTYPE = "bfloat16"
_OUR_HEADS = ("copy_head.", "law_confidence.")
_NOT_THE_DRAFTERS = (  # keys of the target's config by which a loader would compute something else, or run code
    "attn_logit_softcapping",
    "auto_map",
    "final_logit_softcapping",
    "hidden_activation",
    "max_window_layers",
    "mlp_bias",
    "quantization_config",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "rope_scaling",
    "sliding_window",
    "sliding_window_pattern",
    "text_config",
    "vision_config",
)
_OURS_ALONE = ("embed_tokens_from_target", "lm_head_from_target")


def check_layout(source: Path) -> None:
    """Raise CheckpointError when the drafter in ``source`` has a sequential head that the layout cannot name."""
    config = read_config(source)
    if config.markov_rank and config.markov_head_type not in HEADS:
        raise CheckpointError(
            f"The drafter in {source} has the sequential head {config.markov_head_type!r}, which is this program's "
            f"own: engines that read DeepSpec's layout know {', '.join(HEADS)} only and could not load it. Use it "
            f"here, or train another head on the same layers: python -m dspark_core train --start-from {source} --head "
            "gated (see its --help)."
        )


def write_deepspec(source: Path, target: Path, out: Path) -> list[str]:
    """Write the drafter in ``source`` for the target in the folder ``target``; ``out`` appears whole or not at all.

    Returns:
        What a reader should know: what the layout has no place for, and what was rounded.

    Raises:
        CheckpointError: the drafter is broken, does not fit the target, or cannot be told in this layout.
        ModelUnavailableError: the target's folder is broken.
        ParameterError: ``out`` exists and holds anything, or cannot be made.
        ResourceError: the disk is full or refuses.
    """
    check_layout(source)
    loaded = load_drafter(source, dtype=torch.bfloat16)
    embed_tokens, lm_head = _tables(loaded, target)
    own = {name: value for name, value in loaded.modules.state_dict().items() if not name.startswith(_OUR_HEADS)}
    tensors = {**own, EMBED_NAME: embed_tokens, HEAD_NAME: lm_head}
    whole = replace(loaded.config, embed_tokens_from_target=False, lm_head_from_target=False, dtype=_DTYPE)
    config = replace(whole, copy_longest=0, confidence_reads_law=False)
    check_tensors(tensors, expected_shapes(config), source.name)
    values = read_object(target / CONFIG_NAME, ModelUnavailableError, way_to_repair(target))
    with new_folder(out) as folder:
        # Clones: a safetensors file takes no tensors that share memory, as tied tables do.
        write_tensors(folder / WEIGHTS_NAME, {name: value.contiguous().clone() for name, value in tensors.items()})
        notes = _keep_beside(source, folder, loaded.config)
        write_json(folder / CONFIG_NAME, deepspec_config(values, config), indent=2)
    if loaded.config.copy_longest:
        notes.append(
            "The copy head was left out: it is this program's own, and DeepSpec's layout has no place for it. Drafts "
            "from the exported files are accepted less often where a text repeats itself."
        )
    if loaded.config.confidence_reads_law:
        notes.append(
            "Here the confidences also heed how sure each draft's law is; that is this program's own and was left out. "
            "The exported files have the head's own confidences, which tell good drafts from bad ones less well."
        )
    if loaded.config.dtype != _DTYPE:
        notes.append(f"The weights were {loaded.config.dtype} and are rounded to {_DTYPE}, the published files' type.")
    return notes


def deepspec_config(target: Mapping[str, Any], config: DraftConfig) -> dict[str, Any]:
    """The layout's `config.json`: the target's, with the drafter's keys in place of its own.

    Rotary positions and the type are spelt both ways, as transformers 5 and as older loaders read them.
    """
    inner = target.get("text_config")  # of a model that has other parts too
    base = {**target, **(inner if isinstance(inner, dict) else {})}
    own = {name: value for name, value in config.to_dict().items() if name not in _OURS_ALONE}
    return {
        **{name: value for name, value in base.items() if name not in _NOT_THE_DRAFTERS},
        **own,
        "layer_types": ["full_attention"] * config.num_hidden_layers,
        "use_sliding_window": False,
        "rope_theta": config.rope_theta,
        "torch_dtype": config.dtype,
    }


def _tables(loaded: LoadedDrafter, target: Path) -> tuple[Tensor, Tensor]:
    """The embedding as the drafter reads it and the LM head, [V, H] each: its own, or the target's."""
    config = LlamaConfig.from_json(target / CONFIG_NAME)
    loaded.config.check_fits(hidden_size=config.hidden_size, vocab_size=config.vocab_size, num_layers=config.num_layers)
    weights = Weights(config, load_tensors(target), torch.bfloat16, torch.device("cpu"))
    embed_tokens, lm_head = loaded.embed_tokens, loaded.lm_head
    if embed_tokens is None:
        embed_tokens = scaled_embedding(config, weights.embedding())
    if lm_head is None:
        if config.final_softcap is not None:
            raise CheckpointError(
                f"The target in {target} caps its logits at {config.final_softcap:g}, and so does its drafter, which "
                "borrows its LM head; DeepSpec's layout for this kind of drafter has no place for that. Use it here."
            )
        lm_head = weights.embedding() if config.tie_word_embeddings else weights.head()
    return embed_tokens, lm_head


def _keep_beside(source: Path, folder: Path, config: DraftConfig) -> list[str]:
    """Copy the files that are ours alone, so that this program drafts from ``folder`` as from ``source``."""
    notes = []
    drafted = vocabulary.read_draft_vocabulary(source, config.vocab_size)
    if drafted is not None:
        vocabulary.write_draft_vocabulary(folder, drafted)
        notes.append(
            f"This drafter proposes {len(drafted)} of {config.vocab_size} tokens. DeepSpec's layout has no place for "
            "that: other engines draft over the full vocabulary, so their drafts may differ. "
            f"{vocabulary.FILE_NAME} is kept beside the weights, where this program reads it."
        )
    calibration, fault = calibrations.read_calibration(source, config.block_size)
    if calibration is not None and (config.copy_longest or config.confidence_reads_law):
        notes.append(
            "The calibration was left out: it was fitted with what the layout has no place for (the copy head, or "
            "confidences that heed their draft's law)."
        )
    elif calibration is not None:
        mine = replace(calibration, weights_sha256=calibrations.weights_sha256(folder))
        calibrations.write_calibration(folder / calibrations.FILE_NAME, mine)
        notes.append(
            f"Other engines use the confidences as the head gives them: {calibrations.FILE_NAME} is this program's own "
            "and is kept beside the weights."
        )
    elif fault:
        notes.append(f"The calibration was left out: {fault}")
    return notes
