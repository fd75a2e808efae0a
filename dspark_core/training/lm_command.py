"""`train lm`: its own options, and the run."""

from __future__ import annotations

import argparse

from dspark_core.errors import ParameterError
from dspark_core.training.lm_pipeline import LmPipeline
from dspark_core.training.lm_settings import LmSettings
from dspark_core.training.pipeline import Pipeline

_SHOWN = LmSettings()


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """The options that no other step reads."""
    sizes = {
        "hidden": "width",
        "layers": "layers",
        "heads": "attention heads",
        "kv-heads": "key/value heads",
        "mlp": "inner width of an MLP",
    }
    for name, meaning in sizes.items():
        default = getattr(_SHOWN, name.replace("-", "_"))
        group.add_argument(f"--lm-{name}", type=int, default=default, help=f"{meaning} (default: %(default)s)")
    group.add_argument(
        "--lm-predictions",
        type=int,
        default=_SHOWN.predictions,
        help="answer tokens to train on, each as often as it is seen (default: %(default)s)",
    )
    group.add_argument(
        "--lm-rate", type=float, default=_SHOWN.rate, help="first learning rate, falling to 0 (default: %(default)s)"
    )


def run(args: argparse.Namespace, drafters: Pipeline) -> None:
    """Train the model on the features of `drafters`. Raises the DSparkError family."""
    if args.start_from is not None:
        raise ParameterError("The step 'lm' starts from the target's embedding. Leave --start-from out.")
    LmPipeline(drafters, _settings(args)).fit()


def _settings(args: argparse.Namespace) -> LmSettings:
    return LmSettings(
        hidden=args.lm_hidden,
        layers=args.lm_layers,
        heads=args.lm_heads,
        kv_heads=args.lm_kv_heads,
        mlp=args.lm_mlp,
        predictions=args.lm_predictions,
        hours=args.hours,
        seed=args.seed,
        workers=args.threads,
        common_tokens=args.common_tokens,
        step_tokens=args.step_tokens,
        cool_weight=args.cool_weight,
        rate=args.lm_rate,
    )
