"""The lanes of the race. Each answers the same prompt ids and tells what it cost, in telemetry's figures."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from dspark_core.bench.run import Run
from dspark_core.engine import Engine
from dspark_core.errors import DSparkError, ParameterError
from dspark_core.events import Event, Finished
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.telemetry import Summary, fold


class Lane(Protocol):
    """A way to answer prompts."""

    @property
    def name(self) -> str:
        """Key in the report."""

    @property
    def note(self) -> str:
        """What a reader should know about it ('' if nothing)."""

    def run(self, prompt_ids: tuple[int, ...], sampling: SamplingParams) -> Run:
        """Answer one prompt. Raises DSparkError when that fails."""


class EngineLane:
    """The engine with one of its drafters; plain decoding with the drafter ``none``."""

    def __init__(self, name: str, engine: Engine, drafter: str, schedule: ScheduleParams, note: str = "") -> None:
        self.name = name
        self.note = note
        self._engine = engine
        self._drafter = drafter
        self._schedule = schedule

    def run(self, prompt_ids: tuple[int, ...], sampling: SamplingParams) -> Run:
        """Answer one prompt through the engine, alone in its batch."""
        start = time.perf_counter()
        request = GenerationRequest(prompt_ids, sampling, self._schedule, self._drafter)
        events, finished = whole_answer(self._engine, request, f"The lane {self.name}")
        wall_s = time.perf_counter() - start
        return Run(finished.token_ids, fold(events), wall_s)


def whole_answer(engine: Engine, request: GenerationRequest, who: str) -> tuple[list[Event], Finished]:
    """All events of one answer, and the last of them. Raises DSparkError, about ``who``, when it ends with an error."""
    with engine.submit(request) as generation:
        events: list[Event] = list(generation)
    finished = events[-1]
    if not isinstance(finished, Finished) or finished.finish_reason == "error":
        raise DSparkError(f"{who} failed: {getattr(finished, 'detail', 'it has no end')}.")
    return events, finished


class TransformersLane:
    """transformers' own ``generate`` with its key/value cache, on the same weights in the same dtype.

    Its first token comes out of the prefill; so the prefill here ends with that token, and the decoding figures
    count the tokens after it. Every token is one pass: τ is 1.

    Args:
        folder: the model's.
        dtype: what it computes in.
        device: and where.
        stop_token_ids: tokens that end a text.
        call: calls what computes: an engine's `call` has it in the engine's thread, under the same conditions.
    """

    name = "transformers_generate"
    note = "transformers' own generate, same weights and dtype"

    def __init__(
        self,
        folder: Path,
        *,
        dtype: torch.dtype,
        device: torch.device,
        stop_token_ids: frozenset[int],
        call: Callable[[Callable[[], Any]], Any] = lambda work: work(),
    ) -> None:
        transformers: Any = importlib.import_module("transformers")  # slow to import, and its calls are not typed
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self._transformers = transformers
        load = transformers.AutoModelForCausalLM.from_pretrained
        self._model = call(lambda: load(folder, dtype=dtype).to(device).eval())
        self._call = call
        self._device = device
        self._stop_token_ids = sorted(stop_token_ids)

    def run(self, prompt_ids: tuple[int, ...], sampling: SamplingParams) -> Run:
        """Answer one prompt through ``generate``."""
        answered: Run = self._call(lambda: self._answer(prompt_ids, sampling))
        return answered

    def _answer(self, prompt_ids: tuple[int, ...], sampling: SamplingParams) -> Run:
        moments = [self._now()]

        def note_time(input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG001 - its protocol
            moments.append(self._now())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

        if sampling.seed is not None:
            torch.manual_seed(sampling.seed)
        inputs = torch.tensor([prompt_ids], device=self._device)
        with torch.inference_mode():
            output = self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=self._generation_config(sampling),
                stopping_criteria=self._transformers.StoppingCriteriaList([note_time]),
            )
        token_ids = tuple(output[0, len(prompt_ids) :].tolist())
        return Run(token_ids, _summary(len(prompt_ids), moments), self._now() - moments[0])

    def _generation_config(self, sampling: SamplingParams) -> Any:
        if sampling.presence_penalty or sampling.frequency_penalty:
            raise ParameterError(
                f"transformers has no presence or frequency penalty, so the lane {self.name} cannot have the law asked "
                "for. Leave the penalty out, or the lane: --lanes plain,dspark."
            )
        law: dict[str, Any] = {"do_sample": False, "repetition_penalty": sampling.repetition_penalty}
        if sampling.logit_bias:
            law["sequence_bias"] = {(token_id,): float(bias) for token_id, bias in sampling.logit_bias}
        if not sampling.greedy:
            law |= {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p,
            }
        return self._transformers.GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            use_cache=True,
            eos_token_id=self._stop_token_ids,
            pad_token_id=self._stop_token_ids[0] if self._stop_token_ids else 0,
            **law,
        )

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def _summary(prompt_tokens: int, moments: list[float]) -> Summary:
    """Figures of a run that began at the first moment and had a token at each of the others."""
    tokens = len(moments) - 2
    return replace(
        Summary(generations=1, prompt_tokens=prompt_tokens, prefill_s=moments[1] - moments[0]),
        rounds=tokens,
        tokens=tokens,
        verify_s=moments[-1] - moments[1],
        accepted_lengths=(tokens,),
    )
