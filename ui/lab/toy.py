"""What the page is told of appendix A's toy: its exact laws, and samples that converge to them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

from dspark_core.lab import appendix_a
from dspark_core.lab.appendix_a import SCHEDULES, Branch, branches, exact_law, sampled
from dspark_core.scheduling import POLICIES
from ui.trace import to_json

TEXTS, STEPS = 4000, 32
_REST_S = 0.15  # between two messages


def exact_json() -> str:
    """The toy and the exact law under each of its policies."""
    return to_json({"kind": "toy", **_exact(), "counts": None})


def toy_messages() -> Iterator[str]:
    """Samples of all policies, growing."""
    seed = secrets.randbits(32)
    growing = [sampled(policy, TEXTS, seed + at, TEXTS // STEPS) for at, policy in enumerate(SCHEDULES)]
    for counts in zip(*growing, strict=True):
        yield to_json({"kind": "toy", **_exact(), "counts": dict(zip(SCHEDULES, counts, strict=True))})
        time.sleep(_REST_S)


def _exact() -> dict[str, Any]:
    return {
        "tokens": appendix_a.TOKENS,
        "target": appendix_a.TARGET,
        "draft": appendix_a.DRAFT,
        "steps_per_s": appendix_a.STEPS_PER_S,
        "policies": {
            policy: {
                "lossless": policy in POLICIES,
                "law": exact_law(policy),
                "branches": [_branch(branch) for branch in branches(policy)],
            }
            for policy in SCHEDULES
        },
    }


def _branch(branch: Branch) -> list[Any]:
    return [
        branch.first, branch.probability, branch.confidences, branch.survivals, branch.throughputs, branch.verify_len,
        branch.reason, branch.accept_prob, branch.law,
    ]  # fmt: skip
