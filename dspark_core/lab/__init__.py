"""The losslessness lab: do sampled texts follow the target's law? Plain values; needs no torch."""
