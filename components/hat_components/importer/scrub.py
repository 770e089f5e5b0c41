"""Takes personal data out of comments: e-mail addresses, phone numbers, identity, card and order numbers, viewer ids.

Always holds: scrubbing twice changes nothing more; prices, sizes, dates and model numbers with fewer than nine digits
stay. Pseudonyms are HMAC-SHA-256 under a key that is never written, so that the key's holder can link them and nobody
else (NIST SP 800-188, keyed pseudonymisation). Not here: names of people in free text, which no pattern finds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from hat_components.step import InputError

ENVIRONMENT_KEY = "HATSTACK_PSEUDONYM_KEY"
_EMAIL = re.compile(r"[A-Za-z0-9_.+%-]{1,64}\s?[@＠]\s?(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}")
_SUSPECT = re.compile(r"[@＠]|\d{3}|[+＋]\d")
"""What every e-mail address, phone or id number holds; most comments do not."""
_PHONE = re.compile(
    r"""(?<![A-Za-z0-9_.+-])(?:
        [+＋](?=(?:[\s()-]*\d){7})\d{1,3}(?:[\s-]?\(?\d{1,4}\)?){2,5}       # +44 20 7946 0958
      | \(\d{2,4}\)\s?\d{3,4}[\s-]?\d{3,4}             # (020) 7946 0958
      | \d{3,4}-\d{3,4}-\d{3,4}                        # 138-1234-5678
      | \d{3,4}-\d{7,8}                                # 0571-88157838
      | 1[3-9]\d\s\d{4}\s\d{4} | \d{3}\s\d{3}\s\d{4}   # 138 1234 5678, 555 010 9999
      | (?:86)?1[3-9]\d{9}                             # 13812345678
    )(?!\d|-\d)""",
    re.VERBOSE,
)
_ID = re.compile(r"(?<!\d)\d{17}[\dXx](?![\dA-Za-z])|(?<![\d.])\d{9,}(?!\d)")


class Scrubber:
    """Replaces what it finds and counts it by kind in `found`."""

    def __init__(self, viewers: dict[str, str] | None = None) -> None:
        """`viewers`: raw viewer id → pseudonym, replaced wherever it stands as a word."""
        self.found: Counter[str] = Counter()
        self._viewers = {raw: alias for raw, alias in (viewers or {}).items() if len(raw) > 2}

    def text(self, text: str) -> str:
        """`text` with personal data replaced by `<email>`, `<phone>`, `<id>` or a viewer's pseudonym."""
        for raw, alias in self._viewers.items():
            if raw not in text:
                continue
            pieces = re.split(rf"(?<![A-Za-z0-9_]){re.escape(raw)}(?![A-Za-z0-9_])", text)
            text = alias.join(pieces)
            self.found["viewer"] += len(pieces) - 1
        if not _SUSPECT.search(text):
            return text
        text = self._replace(_EMAIL, "email", text)
        text = self._replace(_PHONE, "phone", text)
        return self._replace(_ID, "id", text)

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it scrubbed and every whole number of nine digits or more set to 0."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.value(entry) for entry in value]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**8:
            self.found["id"] += 1
            return 0
        return value

    def _replace(self, pattern: re.Pattern[str], kind: str, text: str) -> str:
        text, count = pattern.subn(f"<{kind}>", text)
        self.found[kind] += count
        return text


def pseudonym(key: bytes, viewer: str) -> str:
    """Keyed pseudonym of a viewer id: `viewer_` + 16 characters (80 bits), the same for the same key and id."""
    return _name(hmac.new(key, viewer.encode(), hashlib.sha256).digest())


def of_unit(unit: str) -> str:
    """The pseudonym here of what the gateway calls a viewer (24 hex digits under the same key).

    Both write the same HMAC, at different lengths; "" for what is no such name.
    """
    try:
        digest = bytes.fromhex(unit)
    except ValueError:
        return ""
    return _name(digest) if len(digest) >= 10 else ""


def _name(digest: bytes) -> str:
    return "viewer_" + base64.b32encode(digest[:10]).decode().lower()


def load_key(key_file: str) -> bytes:
    """The pseudonym key from a file, else from the environment; `InputError` when there is none or it is short."""
    if key_file:
        path = Path(key_file)
        if not path.is_file():
            raise InputError("the pseudonym key file does not exist", place=key_file, cure="check key_file")
        key, place = path.read_bytes().strip(), key_file
    else:
        key, place = os.environ.get(ENVIRONMENT_KEY, "").encode(), ENVIRONMENT_KEY
    if not key:
        raise InputError(
            "the conversations name viewers and there is no key for their pseudonyms",
            place=place,
            cure=f"set {ENVIRONMENT_KEY} or key_file to a secret of 16 bytes or more, and keep it",
        )
    if len(key) < 16:
        raise InputError("the pseudonym key is shorter than 16 bytes", place=place, cure="use a longer secret")
    return key
