"""Confidences that mean what they say: Sequential Temperature Scaling, its figures, and `calibration.json`.

Symbols in this package: n rounds, γ draft positions, k = 1 … γ, c_k confidence (conditional), a_k = c_1 · … · c_k
survival, T_k the temperature that divides c_k's logit.
"""
