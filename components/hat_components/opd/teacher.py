"""A teacher behind SGLang's POST /generate: log-probabilities of given tokens, and nothing sampled.

Always holds: the answer is about exactly the token ids that were asked about, or it is refused; a vocabulary that spells
a token otherwise is refused before the first step; a request is tried a bounded number of times. Not here: losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hat_components.model.codec import Codec
from hat_components.opd.config import TeacherEndpoint
from hat_components.step import InputError, StepError
from hat_harness.errors import Kind

PROBE = 512
"""Tokens of the vocabulary that are compared before training, the last ones and a spread of the others."""


class TeacherError(StepError):
    """The teacher's endpoint does not answer, or not with log-probabilities."""

    kind: Kind = "unavailable"


class ServedTeacher:
    """A client; use as a context manager."""

    def __init__(self, config: TeacherEndpoint) -> None:
        if not config.url.startswith(("http://", "https://")):
            raise InputError("a teacher endpoint needs a URL", place="endpoint.url", cure="http(s)://HOST:PORT")
        import httpx

        self._config = config
        self._url = config.url.rstrip("/") + "/generate"
        self._client = httpx.Client(timeout=config.timeout_s)
        self._pool = ThreadPoolExecutor(config.parallel)

    def __enter__(self) -> ServedTeacher:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def logps(self, rows: Sequence[tuple[Sequence[int], int]]) -> list[list[float]]:
        """For each (ids, start): natural-log probabilities of ids[start:], each given all ids before it; start >= 1."""
        return list(self._pool.map(lambda row: self._score(*row), rows))

    def check_vocabulary(self, codec: Codec) -> None:
        """Raise InputError where the teacher spells a token of ours otherwise: its log-probabilities would be of other
        words. Compares the newest tokens, which the control tokens are among, and a spread of all others."""
        size = len(codec.tokenizer)
        spread = range(0, size, max(1, 2 * size // PROBE))
        probe = sorted({*spread, *range(max(0, size - PROBE // 2), size)})
        for (_, token, text), asked in zip(self._ask(probe, True), probe, strict=True):
            if token != asked or text != codec.text([asked]):
                raise InputError(
                    f"the teacher's vocabulary is another: it reads token {asked} as {text!r}, the student as "
                    f"{codec.text([asked])!r}",
                    place=self._config.url,
                    cure="serve the model that the student comes from",
                )

    def _score(self, ids: Sequence[int], start: int) -> list[float]:
        found = self._ask(list(ids), False)
        if [token for _, token, _ in found] != list(ids):
            raise TeacherError("the teacher answered about other tokens", place=self._config.url)
        wanted = [logp for logp, _, _ in found[start:]]
        if any(not isinstance(logp, int | float) or logp > 1e-3 for logp in wanted):
            raise TeacherError("the teacher's log-probabilities are no log-probabilities", place=self._config.url)
        return [float(logp) for logp in wanted]

    def _ask(self, ids: list[int], texts: bool) -> list[tuple[Any, int, str | None]]:
        body = {
            "input_ids": ids,
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0, "skip_special_tokens": False},
            "return_logprob": True,
            "logprob_start_len": 0,
            "return_text_in_logprobs": texts,
        }
        answer = self._post(body)
        try:
            entries = answer["meta_info"]["input_token_logprobs"]
            return [(entry[0], int(entry[1]), entry[2] if len(entry) > 2 else None) for entry in entries]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise TeacherError(
                f"no log-probabilities of the input in the answer: {type(error).__name__}",
                place=self._config.url,
                cure="serve the teacher with SGLang",
            ) from error

    def _post(self, body: Mapping[str, Any]) -> Any:
        import httpx

        reason = ""
        for _ in range(self._config.attempts):
            try:
                response = self._client.post(self._url, json=body)
                if response.status_code == 200:
                    return response.json()
                reason = f"HTTP {response.status_code}"
                if response.status_code < 500 and response.status_code != 429:
                    break
            except (httpx.HTTPError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"[:200]
        raise TeacherError(f"the teacher does not answer: {reason}", place=self._config.url, cure="start it again")
