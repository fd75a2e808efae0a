"""Text to token ids and back, with the model's chat template, from a Hugging Face folder and without transformers.

What a user writes is data: the names of special tokens inside a message are encoded as the ordinary text they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from dspark_core.errors import ModelUnavailableError, ParameterError
from dspark_core.fields import read_object, shown
from dspark_core.storage import way_to_repair
from dspark_core.target.config import end_token_ids

_ROLES = ("system", "user", "assistant")
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
_END_NAMES = (  # those a family has
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "</s>",
    "<end_of_turn>",
)
_SPACE = "\u2581"  # stands for a space in Gemma's tokens
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")  # Gemma's token of a byte that is in no other
_SPACED_DECODER = [
    {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
# Unicode's noncharacters: no text should hold them, so one of them can stand for "a special token's name was here".
_MARKS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
_PROBE = "\ufdef"  # a message that no template has a reason to change
_DEFAULT_CONTEXT = 2**20  # tokens, where the model's own is not known
_REPAIR = "Repair the folder's chat template, or use another model."


class _RefusedError(TemplateError):
    """The template called ``raise_exception``: it knows the conversation and does not take it."""


class ChatTokenizer:
    """A BPE tokenizer with a chat template: byte-level as Llama 3's and Qwen's, or with bytes as a fallback as Gemma's.

    Attributes:
        vocab_size: number of ids that the tokenizer knows (the model may have more).
        special_ids: ids of special tokens: they have no text of their own.
        stop_token_ids: ids that end an answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        special_names: Mapping[str, str],
        eos_token_ids: Sequence[int] = (),
        max_context: int = _DEFAULT_CONTEXT,
    ) -> None:
        """Wrap a `tokenizers` tokenizer.

        Args:
            tokenizer: BPE of one of the two kinds.
            template: Jinja source of the chat template.
            special_names: ``bos_token``, ``eos_token`` … for the template.
            eos_token_ids: the model's end-of-sequence ids, from its configuration.
            max_context: tokens that the model holds; a conversation that cannot fit is refused before it is encoded.

        Raises:
            ModelUnavailableError: a kind of tokenizer that we cannot treat exactly, or a template that is broken or
                leaves the message out.
        """
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # encode() sees user text only: names are text
        self._special_names = dict(special_names)
        self._specials = {
            token.content: index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special
        }
        self._bytes_of = _bytes_reader(tokenizer)
        _refuse_inexact(tokenizer)
        self._special_list = sorted(self._specials, key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, self._special_list)) or r"(?!)")
        self._template = _compile(template)
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.special_ids = frozenset(self._specials.values())
        ends = {self._specials[name] for name in _END_NAMES if name in self._specials}
        self.stop_token_ids = frozenset(ends | set(eos_token_ids))
        added = str.encode if self._bytes_of is _byte_level_bytes else self._bytes_of
        self._added_bytes = {
            index: b"" if token.special else added(token.content)
            for index, token in tokenizer.get_added_tokens_decoder().items()
        }
        self._max_chars = max_context * max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._refuse_broken_template()

    @classmethod
    def load(cls, folder: Path) -> ChatTokenizer:
        """Read ``tokenizer.json``, ``tokenizer_config.json``, ``chat_template.jinja`` and ``config.json``.

        Raises:
            ModelUnavailableError: a file is missing or broken, or the tokenizer is of a kind that we cannot treat.
        """
        try:
            tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
        except Exception as error:  # tokenizers raises bare Exception for a broken file
            raise ModelUnavailableError(
                f"The tokenizer in {folder} cannot be read ({error}). {way_to_repair(folder)}"
            ) from error
        settings = read_object(folder / "tokenizer_config.json", ModelUnavailableError, way_to_repair(folder))
        config = read_object(folder / "config.json", ModelUnavailableError, way_to_repair(folder))
        names = {name: _token_name(name, settings[name]) for name in _SPECIAL_NAMES if settings.get(name)}
        context = config.get("max_position_embeddings")
        return cls(
            tokenizer,
            _template_source(folder, settings),
            names,
            end_token_ids(config),
            context if isinstance(context, int) and context > 0 else _DEFAULT_CONTEXT,
        )

    @property
    def vocabulary(self) -> dict[str, int]:
        """Every token, added ones included, as the tokenizer's file spells it, with its id."""
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """The prompt for an answer to ``messages``, generation prompt included.

        Each message has a ``role`` (system, user or assistant) and a ``content``.

        Raises:
            ParameterError: no messages, another role, content that is no text, an order that the template refuses, or
                more text than the model's context can hold.
            ModelUnavailableError: the template fails on this conversation.
        """
        checked = _checked(messages)
        mark = _unused_mark(message["content"] for message in checked)
        hidden = [{**message, "content": self._hide_specials(message["content"], mark)} for message in checked]
        return tuple(self._encode_rendered(self._render(hidden), mark))

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The template's text, at most as long as the context could hold."""
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.generate(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._special_names
            ):
                pieces.append(piece)
                length += len(piece)
                if length > self._max_chars:  # encoding it would take minutes, and it could not fit
                    break
        except _RefusedError as error:
            raise ParameterError(
                f"The model's chat template refuses this conversation: {error}. Change the order of the messages."
            ) from error
        except Exception as error:  # a template is a program: it can fail in every way that Python knows
            raise ModelUnavailableError(
                f"The model's chat template fails ({type(error).__name__}: {shown(str(error))}), so this conversation "
                f"cannot be put to the model. {_REPAIR}"
            ) from error
        if length > self._max_chars:
            raise ParameterError(
                f"The conversation has more than {self._max_chars} characters with the model's chat template, which is "
                "more than its context can hold. Shorten it."
            )
        return "".join(pieces)

    def _refuse_broken_template(self) -> None:
        try:
            rendered = self._render([{"role": "user", "content": _PROBE}])
        except ParameterError as error:
            if isinstance(error.__cause__, _RefusedError):
                return  # a template that wants another beginning: only the real conversation can tell
            raise ModelUnavailableError(
                f"The model's chat template makes more text out of an empty conversation than its context can hold. "
                f"{_REPAIR}"
            ) from error
        if _PROBE not in rendered:
            raise ModelUnavailableError(
                f"The model's chat template leaves the message out, so the model would never see it. {_REPAIR}"
            )

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; names of special tokens in it are text as well, lone surrogates become U+FFFD."""
        return tuple(self._tokenizer.encode(_valid(text), add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD."""
        if skip_special_tokens:
            return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")
        return "".join(
            self._special_text(run[0]) if special else self.decode(run)
            for special, run in _runs(token_ids, self.special_ids)
        )

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes of a token; special tokens and ids that the tokenizer does not know have none."""
        added = self._added_bytes.get(token_id)
        if added is not None:
            return added
        symbols = self._tokenizer.id_to_token(token_id)
        return b"" if symbols is None else self._bytes_of(symbols)

    def token_text(self, token_id: int) -> str:
        """What to show for one token: its text, a special token's name, U+FFFD for a part of a character."""
        if token_id in self.special_ids:
            return self._special_text(token_id)
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def _special_text(self, token_id: int) -> str:
        return self._tokenizer.id_to_token(token_id) or ""

    def _hide_specials(self, content: str, mark: str) -> str:
        """Replace names of special tokens by ``mark number mark``: only the template's own are left."""
        return self._special_pattern.sub(lambda found: f"{mark}{self._special_list.index(found[0])}{mark}", content)

    def _encode_rendered(self, rendered: str, mark: str) -> list[int]:
        restore = re.compile(f"{mark}([0-9]+){mark}")
        ids: list[int] = []

        def add_text(text: str) -> None:
            plain = restore.sub(lambda found: self._special_list[int(found[1])], text)
            ids.extend(self._tokenizer.encode(plain, add_special_tokens=False).ids)

        end = 0
        for special in self._special_pattern.finditer(rendered):
            add_text(rendered[end : special.start()])
            ids.append(self._specials[special[0]])
            end = special.end()
        add_text(rendered[end:])
        return ids


@cache
def _byte_of_symbol() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters stand for themselves, the others sit at U+0100 and after."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _byte_level_bytes(symbols: str) -> bytes:
    """The bytes of a token in GPT-2's alphabet; of one in plain text as the tokenizer's own decoder gives them."""
    alphabet = _byte_of_symbol()
    if not all(symbol in alphabet for symbol in symbols):
        return symbols.encode()
    return bytes(alphabet[symbol] for symbol in symbols)


def _spaced_bytes(symbols: str) -> bytes:
    """The bytes of a token in plain text with U+2581 for spaces, or of a token that stands for one byte."""
    byte = _BYTE_TOKEN.fullmatch(symbols)
    return bytes([int(byte[1], 16)]) if byte else symbols.replace(_SPACE, " ").encode()


def _bytes_reader(tokenizer: Tokenizer) -> Callable[[str], bytes]:
    """How this tokenizer's tokens are read; refuses a decoder that is neither of the two kinds."""
    decoder = json.loads(tokenizer.to_str())["decoder"] or {}
    if decoder.get("type") == "ByteLevel":
        return _byte_level_bytes
    if decoder.get("type") == "Sequence" and decoder.get("decoders") == _SPACED_DECODER:
        return _spaced_bytes
    raise ModelUnavailableError(
        f"The model's tokenizer has the decoder {shown(decoder)}; byte-level BPE (Llama 3, Qwen) and "
        "Gemma's kind are supported. Use another model, for example smollm2-135m."
    )


def _refuse_inexact(tokenizer: Tokenizer) -> None:
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.special and (token.lstrip or token.rstrip or token.single_word):
            raise ModelUnavailableError(
                f"The special token {token.content!r} eats the text beside it (lstrip, rstrip or single_word), which "
                "is not supported. Use another model, for example smollm2-135m."
            )


def _compile(template: str) -> Any:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_template_error
    try:
        return environment.from_string(template)
    except Exception as error:  # the compiler runs constant parts
        raise ModelUnavailableError(
            f"The model's chat template is broken ({type(error).__name__}: {shown(str(error))}), so no conversation "
            f"can be put to the model. {_REPAIR}"
        ) from error


def _raise_template_error(message: object) -> None:
    raise _RefusedError(str(message))


def _template_source(folder: Path, settings: Mapping[str, Any]) -> str:
    path = folder / "chat_template.jinja"
    try:
        source = path.read_text(encoding="utf-8") if path.exists() else settings.get("chat_template")
    except (OSError, ValueError) as error:
        raise ModelUnavailableError(f"{path} cannot be read ({error}). {way_to_repair(folder)}") from error
    if not isinstance(source, str) or not source:
        raise ModelUnavailableError(f"The model in {folder} has no chat template. Use an instruction-tuned model.")
    return source


def _token_name(name: str, value: Any) -> str:
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise ModelUnavailableError(
            f"The model's tokenizer_config.json: {name} is {shown(value)}; it must be a text, or an object with the "
            "text as its content. Use a complete Hugging Face folder."
        )
    return text


def _checked(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    if not messages:
        raise ParameterError("There are no messages. Write something to answer.")
    return [_checked_message(message) for message in messages]


def _checked_message(message: Mapping[str, str]) -> dict[str, str]:
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        raise ParameterError(f"A message has the role {role!r}; it must be one of {', '.join(_ROLES)}.")
    if not isinstance(content, str):
        raise ParameterError(f"A message's content is of type {type(content).__name__}; it must be text.")
    return {"role": role, "content": _valid(content)}


def _valid(text: str) -> str:
    """Join surrogate pairs and replace lone ones by U+FFFD: they have no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _unused_mark(texts: Any) -> str:
    used = set("".join(texts))
    for mark in _MARKS:
        if mark not in used:
            return mark
    raise ParameterError("The messages hold all of Unicode's noncharacters U+FDD0 to U+FDEF. Remove one of them.")


def _runs(token_ids: Sequence[int], special_ids: frozenset[int]) -> list[tuple[bool, list[int]]]:
    """Cut into single special tokens and runs of ordinary ones."""
    runs: list[tuple[bool, list[int]]] = []
    for token_id in token_ids:
        special = token_id in special_ids
        if special or not runs or runs[-1][0]:
            runs.append((special, []))
        runs[-1][1].append(token_id)
    return runs
