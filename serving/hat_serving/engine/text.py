"""Text to tokens and back: tokenizer.json, the chat template, and decoding token by token.

Always holds: pieces that `Decoder.push` gives, joined with what `finish` gives, are the decoding of all tokens; a piece
never ends inside a character (SGLang's detokenizer holds such text back too). Templates run in Jinja's sandbox with
the helpers that transformers gives them. Not here: tool calls and reasoning in the text (toolcalls, reasoning).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from hat_serving.engine.errors import CallError, ModelError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class _Generation(Extension):
    """transformers' `{% generation %}` block marks what the model wrote; for rendering it is transparent."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The body of the block, unchanged."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TextCodec:
    """One model folder's tokenizer and template."""

    def __init__(self, path: Path) -> None:
        if not (path / "tokenizer.json").is_file():
            raise ModelError("there is no tokenizer.json", place=str(path), cure="save the tokenizer with the model")
        try:
            self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        except Exception as error:  # the tokenizers library raises bare Exception on a broken file
            raise ModelError(f"the tokenizer cannot be read: {error}", place=str(path / "tokenizer.json")) from None
        self.settings = _settings(path)
        self.template_text = _template(path, self.settings)
        self._template = _environment().from_string(self.template_text) if self.template_text else None
        added = self.tokenizer.get_added_tokens_decoder()
        self.special = frozenset(token for token, entry in added.items() if entry.special)
        self._pieces = _byte_pieces(self.tokenizer, {token: entry.content for token, entry in added.items()})
        self._raw_bytes = _taken_for_byte_level(self.tokenizer)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def token_text(self, token: int) -> str:
        """One token as text; U+FFFD where it is no whole character."""
        piece = self._pieces.get(token) if self._pieces else None
        return (
            piece.decode("utf-8", errors="replace")
            if piece is not None
            else self.decode([token], skip_special_tokens=False)
        )

    def token_bytes(self, token: int) -> list[int]:
        """One token's bytes as OpenAI's `logprobs` have them: raw where SGLang takes the tokenizer for byte-level."""
        piece = self._pieces.get(token) if self._pieces and self._raw_bytes else None
        return list(piece if piece is not None else self.token_text(token).encode())

    def decoder(self, *, skip_special_tokens: bool) -> Decoder:
        """A decoder for one generation."""
        return Decoder(self, self._pieces, self.special if skip_special_tokens else frozenset())

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, extra: Mapping[str, Any]
    ) -> str:
        """The conversation as the model reads it, up to where the assistant begins. CallError for a template's refusal."""
        if self._template is None:
            raise CallError("this model has no chat template; use /v1/completions or /generate")
        names = {
            name: value for name, value in self.settings.items() if name.endswith("_token") and isinstance(value, str)
        }
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=True, **{**names, **extra}
            )
        except (TemplateError, SecurityError, TypeError, ValueError, KeyError) as error:
            raise CallError(str(error) or type(error).__name__, type_name="BadRequest") from None


class Decoder:
    """Turns a growing list of tokens into text."""

    __slots__ = ("_codec", "_held", "_ids", "_pieces", "_shown", "_skipped", "text")

    def __init__(self, codec: TextCodec, pieces: Mapping[int, bytes] | None, skipped: frozenset[int]) -> None:
        self._codec = codec
        self._pieces = pieces
        self._skipped = skipped
        self._held = b""
        self._ids: list[int] = []
        self._shown = 0
        self.text = ""
        """All text so far that is certain."""

    def push(self, token: int) -> None:
        """Take the next token; `text` grows once its characters are whole."""
        if token in self._skipped:
            return
        if self._pieces is None:
            self._ids.append(token)
            whole = self._codec.decode(self._ids[self._shown :], skip_special_tokens=False)
            if whole and not whole.endswith(REPLACEMENT):
                self.text = self._codec.decode(self._ids, skip_special_tokens=False)
            return
        self._held += self._pieces.get(token, b"")
        found = self._held.decode("utf-8", errors="replace")
        if found and not found.endswith(REPLACEMENT):
            self.text += found
            self._held = b""

    def whole(self) -> str:
        """All text, U+FFFD for what is not whole: the text if nothing more comes."""
        if self._pieces is None:
            return self._codec.decode(self._ids, skip_special_tokens=False)
        return self.text + self._held.decode("utf-8", errors="replace")


def _settings(path: Path) -> dict[str, Any]:
    file = path / "tokenizer_config.json"
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"it is no JSON: {error}", place=str(file)) from None
    for name, value in list(found.items()):
        if isinstance(value, dict) and "content" in value:
            found[name] = value["content"]
    return dict(found)


def _template(path: Path, settings: Mapping[str, Any]) -> str:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = settings.get("chat_template") or ""
    return found if isinstance(found, str) else ""


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().astimezone().strftime(pattern)
    return environment


def _byte_pieces(tokenizer: Tokenizer, added: Mapping[int, str]) -> dict[int, bytes] | None:
    """The bytes of every token where the tokenizer is byte-level BPE; None for other kinds."""
    described = json.loads(tokenizer.to_str()).get("decoder") or {}
    if described.get("type") != "ByteLevel":
        return None
    alphabet = _byte_alphabet()
    pieces = {token: content.encode() for token, content in added.items()}
    for text, token in tokenizer.get_vocab(with_added_tokens=False).items():
        if token in pieces:
            continue
        if any(letter not in alphabet for letter in text):
            pieces[token] = text.encode()
        else:
            pieces[token] = bytes(alphabet[letter] for letter in text)
    return pieces


def _taken_for_byte_level(tokenizer: Tokenizer) -> bool:
    """SGLang's guess, from six entries: whether all their letters stand for bytes."""
    size = tokenizer.get_vocab_size()
    alphabet = _byte_alphabet()
    pieces = [tokenizer.id_to_token(token) for token in (0, 1, 2, 3, size // 2, size - 2) if 0 <= token < size]
    return all(letter in alphabet for piece in pieces if piece for letter in piece)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 stands for itself, the rest is shifted behind U+0100."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in set(plain)]
    letters.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return letters
