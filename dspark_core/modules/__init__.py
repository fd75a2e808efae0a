"""Networks of the drafters: backbone, sequential heads, confidence head. `nn.Module` only, no files and no sampling."""
