"""All of a drafter's own networks under DeepSpec's tensor names (frozen embedding and LM head stay with the target)."""

from torch import nn

from dspark_core.modules.backbone import Backbone
from dspark_core.modules.confidence import ConfidenceHead, LawConfidence
from dspark_core.modules.config import DraftConfig
from dspark_core.modules.copy_head import CopyHead
from dspark_core.modules.sequential import HEADS, MarkovHead


class Drafter(Backbone):
    """Backbone plus `markov_head`, `confidence_head`, `law_confidence` and `copy_head` (each may be None).

    Its state dict is the checkpoint's.
    """

    markov_head: MarkovHead | None
    confidence_head: ConfidenceHead | None
    law_confidence: LawConfidence | None
    copy_head: CopyHead | None

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config)
        self.markov_head = None
        self.confidence_head = None
        self.law_confidence = None
        self.copy_head = None
        if config.markov_rank:
            head = HEADS[config.markov_head_type]
            self.markov_head = head(config.vocab_size, config.markov_rank, config.hidden_size)
        if config.enable_confidence_head:
            self.confidence_head = ConfidenceHead(config.confidence_inputs)
        if config.confidence_reads_law:
            self.law_confidence = LawConfidence()
        if config.copy_longest:
            self.copy_head = CopyHead(config.copy_longest, config.hidden_size)

    def heads(self) -> tuple[MarkovHead | None, ConfidenceHead | None]:
        """The two heads, for drafters that hold them apart."""
        return self.markov_head, self.confidence_head


def parameter_count(module: nn.Module) -> int:
    """Number of weights."""
    return sum(parameter.numel() for parameter in module.parameters())
