"""Evaluation of drafters by real decoding: τ, acceptance by position and accepted lengths, by prompt set."""
