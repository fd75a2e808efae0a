"""A session over the toy target, with the real engine: what the command line opens in tests."""

from dspark_core.decode_loop import DecodeLoop
from dspark_core.drafters.none import NoneDrafter
from dspark_core.engine import Engine
from dspark_core.errors import ModelUnavailableError
from dspark_core.loading import SessionInfo
from dspark_core.params import GenerationRequest, ScheduleParams
from tests.toy import FixedLoad, TableDrafter, ToyTarget, ToyTokenizer

VOCABULARY = 5
PIECES = {0: b"\x1b[2J", 1: " \U0001f600".encode(), 4: b"\n"}


class ToySession:
    default_drafter = "dspark"

    def __init__(self, progress=None):
        if progress:
            progress("opening the toy", 1.0)
        self.target = ToyTarget(VOCABULARY, max_context=10_000)
        self.tokenizer = ToyTokenizer(PIECES)
        drafters = {name: TableDrafter(VOCABULARY, 4, name) for name in ("dspark", "dflash")} | {"none": NoneDrafter()}
        self.drafters = drafters
        self.engine = Engine(DecodeLoop(self.target, self.tokenizer, drafters, FixedLoad()))
        self.info = SessionInfo(
            model="toy",
            device_label="CPU (toy)",
            dtype="float64",
            num_draft_tokens=4,
            drafters={name: f"note on {name}" for name in drafters},
            policies=("threshold", "fixed"),
            max_context=self.target.max_context,
        )
        self.asked = None
        self.closed = False

    def request(self, messages, sampling, schedule=None, drafter=None):
        self.asked = (messages, sampling, schedule, drafter)
        return GenerationRequest((1, 2), sampling, schedule or ScheduleParams(), drafter or self.default_drafter)

    def close(self):
        self.closed = True
        self.engine.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open_session(model="toy", *, draft_model="auto", device="auto", dtype="auto", progress=None):  # noqa: ARG001
    if model == "missing":
        raise ModelUnavailableError("The model 'missing' is unknown.\x1b[2J Choose another.")
    return ToySession(progress)
