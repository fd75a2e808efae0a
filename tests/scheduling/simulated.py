"""Simulated batches, no model and no clock: users who ask one question after the other, and a machine made of curves.

A draft is accepted with exactly its confidence, and each round takes what the curves say.
"""

import random

from dspark_core.events import LoadSample
from dspark_core.scheduling import DraftView, policy_named
from dspark_core.scheduling.drafting_curve import DraftingCurve
from dspark_core.scheduling.planner import Planner
from dspark_core.scheduling.step_curve import StepCurve

LOAD = LoadSample("none", "none")


class Request:
    def __init__(self, tokens):
        self.left = tokens


def machine(a_pass, a_token, drafting, a_request, *, gamma=8):
    """Seconds: of a pass, of each token in it; of a drafting, of each request in it."""
    counts = (1, 2, 8, 32, 128, 32 * (1 + gamma))
    steps = StepCurve.of(counts, [a_pass + a_token * tokens for tokens in counts], source="simulated")
    probes = [(gamma, requests, drafting + a_request * requests) for requests in (1, 8, 32)]
    return steps.with_drafting({"d": DraftingCurve.of(probes, source="simulated")})


def drawn(dice, chance, spread, count, schedule, around):
    """What drafting leaves: drafts, and the known confidences around ``chance``, each before its token."""
    goes_on, known = policy_named(schedule.policy).goes_on, []
    for k in range(count):
        known.append(min(1.0, max(0.0, chance + dice.choice((-spread, 0.0, spread)))))
        if not goes_on(known, schedule, around):
            return k, tuple(known)
    return count, tuple(known)


def tokens_per_s(
    curve, users, chance, schedule, seed, *, gamma=8, tokens=128, rounds=None, spread=0.0, stretch=1.0, shaken=0.0
):
    """Of so many users until one has all its tokens, or for so many rounds, each answer followed by the next one.

    Rounds with drafts take ``stretch`` times what the curves say, and every round up to ``shaken`` of it more.
    """
    dice, planner = random.Random(seed), Planner(curve)
    clock = random.Random(seed + 1)
    requests, seconds, committed = [Request(tokens) for _ in range(users)], 0.0, 0
    while rounds != 0 and (rounds or all(request.left > 0 for request in requests)):
        rounds = None if rounds is None else rounds - 1
        requests = [request if request.left > 0 else Request(tokens) for request in requests]
        wanted = [min(gamma, schedule.l_max, request.left - 1) for request in requests]
        judged = planner.judge(requests, [("d", count, schedule) for count in wanted])
        counts = [
            0 if judgement.rest else count if judgement.most is None else min(count, judgement.most)
            for judgement, count in zip(judged, wanted, strict=True)
        ]
        asked = [("d", count, schedule, judgement.expected) for count, judgement in zip(counts, judged, strict=True)]
        around = planner.around(LOAD, asked)
        blocks = [drawn(dice, chance, spread, count, schedule, around) for count in counts]
        views = [
            DraftView(*block, schedule, request.left - 1, resting=judgement.reason)
            for block, request, judgement in zip(blocks, requests, judged, strict=True)
        ]
        plans = planner.plan(requests, views, around)
        for request, count, view, plan in zip(requests, counts, views, plans, strict=True):
            accepted = 0
            while accepted < plan.verify_len and dice.random() < view.confidences[accepted]:
                accepted += 1
            if count:
                planner.learn(request, plan.verify_len, accepted)
            request.left -= 1 + accepted
            committed += 1 + accepted
        drew = [max(1, view.num_drafted) if count else 0 for view, count in zip(views, counts, strict=True)]
        took = curve.among(users).seconds(users + sum(plan.verify_len for plan in plans))
        took += curve.drafting_s({"d": [drafts for drafts in drew if drafts]})
        took *= (stretch if any(drew) else 1.0) * (1 + shaken * clock.random())
        planner.took(took, [("d", drafts, plan.verify_len) for drafts, plan in zip(drew, plans, strict=True)])
        seconds += took
    return committed / seconds
