"""The nearest launch flags of other engines for a setting: where to start there, not what was measured here.

Sources (September to November 2026): vLLM's ``--speculative-config`` (docs.vllm.ai, features/speculative_decoding, and
``SpeculativeConfig``), SGLang's ``--speculative-…`` (docs.sglang.io, advanced_features/speculative_decoding, and its
handling of DSPARK: γ is the block size, and γ + 1 tokens are verified with the anchor).
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from dspark_core.sweep.grid import Point

_PREFIXES = (("ngram", "ngram"), ("dflash", "dflash"), ("lm", "lm"), ("eagle3", "eagle3"), ("medusa", "medusa"))
_VLLM = {"dspark": "dspark", "dflash": "dflash", "lm": "draft_model", "eagle3": "eagle3", "medusa": "medusa"}
_VLLM_SERVE, _SGLANG_SERVE = "vllm serve TARGET", "python -m sglang.launch_server --model-path TARGET"
_WEIGHED = ("prefix", "delayed")


def launch(point: Point) -> dict[str, Any]:
    """Keys ``vllm`` and ``sglang``: command lines with TARGET and DRAFTER to fill in ('' where there is none);
    ``notes``: what has no counterpart, or another one."""
    if point.l_max == 0:
        return {"vllm": _VLLM_SERVE, "sglang": _SGLANG_SERVE, "notes": []}
    method = next((method for prefix, method in _PREFIXES if point.drafter.startswith(prefix)), "dspark")
    return {"vllm": _vllm(point, method), "sglang": _sglang(point, method), "notes": _notes(point, method)}


def _vllm(point: Point, method: str) -> str:
    config: dict[str, Any]
    if method == "ngram":
        config = {"method": "ngram", "num_speculative_tokens": point.l_max, "prompt_lookup_max": 3}
    else:
        config = {"method": _VLLM[method], "model": "DRAFTER", "num_speculative_tokens": point.l_max}
    if method == "dspark" and point.policy in _WEIGHED:
        config["enable_adaptive_verification"] = True
    return f"{_VLLM_SERVE} --speculative-config {shlex.quote(json.dumps(config))}"


def _sglang(point: Point, method: str) -> str:
    drafts = point.l_max
    with_anchor = f"--speculative-num-draft-tokens {drafts + 1}"
    chain = f"--speculative-num-steps {drafts} --speculative-eagle-topk 1 {with_anchor}"
    model = "--speculative-draft-model-path DRAFTER"
    flags = {
        "dspark": f"--speculative-algorithm DSPARK {model} --speculative-dspark-block-size {drafts}",
        "dflash": f"--speculative-algorithm DFLASH {model} {with_anchor}",
        "lm": f"--speculative-algorithm STANDALONE {model} {chain}",
        "eagle3": f"--speculative-algorithm EAGLE3 {model} {chain}",
        "ngram": f"--speculative-algorithm NGRAM {with_anchor}",
    }
    return f"{_SGLANG_SERVE} {flags[method]}" if method in flags else ""


def _notes(point: Point, method: str) -> list[str]:
    notes = []
    if method == "dspark" and not point.drafter.startswith("dspark"):
        notes.append("The drafter's name does not tell its kind: a DSpark checkpoint is assumed.")
    if "l_min" in point.heeded and point.l_min > 0:
        notes.append("L_min has no counterpart in either.")
    if point.policy == "threshold":
        notes.append("A threshold on the confidence has no counterpart: both then verify all drafts.")
    if point.policy == "banded":
        notes.append("The bands and their load signal have no counterpart: both then verify all drafts.")
    if point.policy in _WEIGHED and method == "dspark":
        notes.append(
            "vLLM's enable_adaptive_verification and SGLang's --speculative-dspark-sps-table-path weigh drafts by step "
            "times too, by other rules, and measure or need a table of their own machine."
        )
    elif point.policy in _WEIGHED:
        notes.append("Weighing drafts by step times has no counterpart for this drafter.")
    if method == "medusa":
        notes.append("SGLang has no Medusa.")
    notes.append("The temperature is each request's, not the server's.")
    return notes
