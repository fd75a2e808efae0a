"""The frozen model whose law the output has."""
