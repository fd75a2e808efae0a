"""Training of a drafter on self-written text: data, feature cache, smart start, losses, resumable loop, evaluation.

Order of work: conversations (`data`) → one pass of the target over them (`cache`) → initial weights (`start`) →
stage 1, regress the target's final hidden state, then stage 2, the paper's loss (`losses`, `loop`) → `evaluate`.
"""
