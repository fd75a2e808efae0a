"""Evaluation: the walked rounds equal a step-by-step greedy decoder, and the law's figures are the laws'."""

import pytest
import torch

from dspark_core.modules.config import HEAD_TYPES
from dspark_core.modules.drafter import Drafter
from dspark_core.training.cache import build_cache
from dspark_core.training.data import Conversation
from dspark_core.training.evaluate import Evaluator, walk
from dspark_core.training.start import draft_config, smart_start
from tests.training.setup import HIDDEN, TAPS, tiny_cache, tiny_source, tiny_weights

TABLES = (tiny_weights().embedding, tiny_weights().lm_head)


def test_walk_counts_rounds_by_hand():
    hits = [[True, True, False], [False] * 3, [False] * 3, [True, False, True], [False] * 3, [True, True, True]]
    result = walk(hits)  # commits 2+1, then 1+1, then the last token alone: 0 left to draft beyond it
    assert (result.tokens, result.rounds) == (6, 3)
    assert result.reached == (3, 2, 1)
    assert result.accepted == (3, 1, 0)
    assert result.tau == 2.0


def test_walk_never_counts_beyond_the_end():
    assert walk([[True, True]]).to_dict() == {"tau": 1.0, "tokens": 1, "rounds": 1, "by_position": [1.0, None]}


def greedy_text(source, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        ((_, final),) = source([ids])
        ids.append(int((final[-1] @ tiny_weights().lm_head.T).argmax()))
    return tuple(ids[len(prompt) :])


def drafted(drafter, source, ids):
    """Greedy drafts after the last of `ids`, one token after the other, from the text before it."""
    ((taps, _),) = source([ids])
    weights = tiny_weights()
    anchor = len(ids) - 1
    context = drafter.context_keys_values(taps[:anchor].bfloat16().float(), torch.arange(anchor))
    block = torch.tensor([ids[-1]] + [drafter.config.mask_token_id] * (drafter.config.block_size - 1))
    positions = torch.arange(anchor, anchor + len(block))
    hidden = drafter.forward_block(weights.embedding[block], positions, context)
    head, state, tokens, previous = drafter.markov_head, None, [], ids[-1]
    for k in range(len(block)):
        mixed, state = head.mix(state, head.embed(torch.tensor(previous)), hidden[k])
        logits = hidden[k] @ weights.lm_head.T + head.scores(mixed)
        previous = int(logits.argmax())
        tokens.append(previous)
    return tokens


@pytest.mark.parametrize("kind", HEAD_TYPES)
def test_walked_rounds_are_those_of_a_real_greedy_decoder(tmp_path, kind):
    source = tiny_source()
    prompt, length = (5, 6, 7), 24
    answer = greedy_text(source, prompt, length)
    cache = build_cache(tmp_path, source, TAPS, HIDDEN, [], [Conversation(prompt, answer, 0.0)])
    config = draft_config(
        tiny_weights().config, TAPS, layers=2, block_size=4, markov_rank=5, mask_token_id=3, head_type=kind
    )
    torch.manual_seed(0)
    drafter = Drafter(config)
    smart_start(drafter, tiny_weights(), cache.rows(cache.sequences("validation")[0])[0].float())
    torch.nn.init.normal_(drafter.markov_head.markov_w2.weight, std=0.1)
    drafter.requires_grad_(False)

    ids, rounds = list(prompt), 0
    while len(ids) < len(prompt) + length:
        wanted = answer[len(ids) - len(prompt) :]
        draft = drafted(drafter, source, ids)
        taken = next((k for k, token in enumerate(draft) if k >= len(wanted) or token != wanted[k]), len(draft))
        ids += wanted[: taken + 1]
        rounds += 1
    result = Evaluator(cache, TABLES, autocast=False).greedy(drafter, cache.sequences("validation"))
    assert (result.tokens, result.rounds) == (length, rounds)


def test_law_figures_lie_within_their_bounds(tmp_path):
    cache = tiny_cache(tmp_path)
    drafter = Drafter(draft_config(tiny_weights().config, TAPS, layers=2, block_size=4, markov_rank=5, mask_token_id=3))
    figures = Evaluator(cache, TABLES, autocast=False).law(drafter, cache.sequences("validation"), stride=1)
    assert 1 <= figures["expected_tau"] <= 5
    assert all(0 <= a <= 1 for a in figures["acceptance"])


def test_a_draft_vocabulary_of_all_tokens_changes_nothing_and_a_smaller_one_only_what_is_drafted(tmp_path):
    cache = tiny_cache(tmp_path)
    torch.manual_seed(0)
    drafter = Drafter(draft_config(tiny_weights().config, TAPS, layers=2, block_size=4, markov_rank=5, mask_token_id=3))
    held_out, tables = cache.sequences("validation"), TABLES

    def law(draft_ids):
        return Evaluator(cache, tables, draft_ids=draft_ids, autocast=False).law(drafter, held_out, stride=1)

    assert law(None) == law(torch.arange(len(TABLES[1])))
    single = Evaluator(cache, tables, draft_ids=torch.tensor([2]), autocast=False).greedy(drafter, held_out)
    ends = sum(int(cache.tokens(s)[-1] == 2) for s in held_out)
    assert sum(single.accepted) <= ends  # token 2 is all it drafts, and it stands at the end alone
