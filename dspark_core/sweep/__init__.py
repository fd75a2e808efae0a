"""A sweep: settings from a grid, each measured beside plain decoding on the same prompts. No torch here."""
