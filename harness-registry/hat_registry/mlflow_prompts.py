"""Prompts of a harness in MLflow's prompt registry, and back.

Each `prompts/<path>.md` becomes the text prompt `<workspace>.<harness>.<path with dots>`: the text below the front matter
is the template, byte for byte; front matter, path and digest of the harness are tags of the version. Every version is
found again by the aliases `p-<digest of the file>` and `h-<digest of the harness>`, so that an export of known content
makes no new version and the prompts of one harness version stay together.

Always holds: a harness that was exported and comes back over the version it came from is the same bytes, unless somebody
edited a prompt in MLflow; what a prompt registry has no place for is named in `not_carried`, never dropped in silence.
Not here: models and their aliases (mlflow_link), pushing what came back (harnesses).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hat_harness.digest import digest_bytes
from hat_registry.archive import safe_path
from hat_registry.errors import InvalidError, NotFoundError
from hat_registry.mlflow_link import Mlflow

FOLDER = "prompts/"
MAX_CHARACTERS = 100_000
"""MLflow keeps a template in a tag of at most so many."""
TAG_FILE, TAG_HEAD, TAG_HARNESS = "hatstack.file", "hatstack.head", "hatstack.harness"
_SLUG = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_HEAD = re.compile(r"---\r?\n.*?\r?\n---\r?\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Carried:
    """One prompt that crossed. `changed` is false where it was there already with the same content."""

    file: str
    prompt: str
    version: str
    changed: bool


@dataclass
class Crossing:
    """What crossed and what did not."""

    carried: list[Carried] = field(default_factory=list)
    not_carried: dict[str, str] = field(default_factory=dict)
    """File or prompt → why it stays behind."""
    harness: str = ""
    """Digest of the harness that the prompts belong to; "" where they are not ours."""


def export(
    mlflow: Mlflow, workspace: str, name: str, digest: str, files: Mapping[str, bytes], *, message: str = ""
) -> Crossing:
    """Register the prompts of a harness version in MLflow; content that is there already is only given its alias."""
    made = Crossing(harness=digest)
    for path, content in sorted(files.items()):
        reason = _reason(path, content)
        if reason:
            made.not_carried[path] = reason
            continue
        prompt = f"{workspace}.{name}.{path[len(FOLDER) : -len('.md')].replace('/', '.')}"
        head, body = _split(content.decode())
        known = _alias("p", digest_bytes(content))
        version, changed = _known(mlflow, prompt, known, body, head), False
        if not version:
            tags = {TAG_FILE: path, TAG_HEAD: head, TAG_HARNESS: digest}
            with mlflow.asked() as client:
                registered = client.register_prompt(prompt, body, commit_message=message or None, tags=tags)
                version, changed = str(registered.version), True
                client.set_prompt_alias(prompt, known, int(version))
        with mlflow.asked() as client:
            client.set_prompt_alias(prompt, _alias("h", digest), int(version))
        made.carried.append(Carried(path, prompt, version, changed))
    return made


def source(mlflow: Mlflow, workspace: str, name: str, *, digest: str = "") -> str:
    """Digest of the harness version that the prompts of a name were exported from, "" where they are not ours."""
    found = {tags.get(TAG_HARNESS, "") for _, _, tags in _prompts(mlflow, workspace, name, digest)}
    return next(iter(found)) if len(found) == 1 else ""


def bring(
    mlflow: Mlflow, workspace: str, name: str, base: Mapping[str, bytes], *, digest: str = ""
) -> tuple[dict[str, bytes], Crossing]:
    """The files of `base` with the prompts that MLflow has for a name put in: (files, what crossed).

    With `digest` the versions that were exported for that harness, else the newest. An empty `base` makes a new harness.
    """
    files, made = dict(base), Crossing()
    for prompt, found, tags in _prompts(mlflow, workspace, name, digest):
        body = _text(found)
        extras = [what for what in ("response_format", "model_config") if getattr(found, what, None)]
        made.not_carried |= {f"{prompt} {what}": "a harness has no place for it" for what in extras}
        if body is None:
            made.not_carried[prompt] = "a chat of several messages; only a text or one system message is a prompt here"
            continue
        path = tags.get(TAG_FILE) or f"{FOLDER}{prompt.removeprefix(f'{workspace}.{name}.').replace('.', '/')}.md"
        content = (tags.get(TAG_HEAD, "---\nsection: rules\n---\n") + body).encode()
        changed = files.get(safe_path(path)) != content
        files[safe_path(path)] = content
        made.carried.append(Carried(path, prompt, str(found.version), changed))
        made.harness = tags.get(TAG_HARNESS, made.harness)
    if not made.carried:
        told = f" for {digest[:19]}" if digest else ""
        cure = (
            "; ".join(f"{what}: {why}" for what, why in made.not_carried.items())
            or "hat harness export puts them there"
        )
        raise NotFoundError(f"MLflow has no prompts {workspace}.{name}.…{told}", place=mlflow.place, cure=cure)
    if "harness.yaml" not in files:
        head = f"format: hatstack.harness/1\nname: {name}\nsections: [rules]\nactivation: {{required: false}}\n"
        files["harness.yaml"] = head.encode()
    return files, made


def _prompts(mlflow: Mlflow, workspace: str, name: str, digest: str) -> list[tuple[str, Any, Mapping[str, str]]]:
    """(prompt, its version, tags of the version) by name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", workspace) or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InvalidError("MLflow has no such names", cure="letters, digits, - and _")
    stem, wanted = f"{workspace}.{name}.", _alias("h", digest) if digest else "latest"
    found: list[tuple[str, Any, Mapping[str, str]]] = []
    with mlflow.asked() as client:
        known, page = [], None
        while True:
            answer = client.search_prompts(f"name LIKE '{stem}%'", page_token=page)
            known += [one.name for one in answer if one.name.startswith(stem)]  # LIKE takes _ for any character
            page = answer.token
            if not page:
                break
        for prompt in sorted(known):
            version = client.load_prompt(f"prompts:/{prompt}@{wanted}", allow_missing=True, cache_ttl_seconds=0)
            if version is not None:
                found.append((prompt, version, dict(version.tags)))
    return found


def _known(mlflow: Mlflow, prompt: str, alias: str, body: str, head: str) -> str:
    """The version with an alias, where it truly holds this content."""
    with mlflow.asked() as client:
        found = client.load_prompt(f"prompts:/{prompt}@{alias}", allow_missing=True, cache_ttl_seconds=0)
    same = found is not None and found.template == body and found.tags.get(TAG_HEAD, "") == head
    return str(found.version) if same else ""


def _reason(path: str, content: bytes) -> str:
    """Why a file does not cross; "" where it does."""
    if not path.startswith(FOLDER) or not path.endswith(".md"):
        return "not a prompt; it stays in the registry"
    if not _SLUG.fullmatch(path[len(FOLDER) : -len(".md")].replace("/", ".")):
        return "MLflow's names have letters, digits, -, _ and . only"
    try:
        head, body = _split(content.decode())
    except UnicodeDecodeError:
        return "not UTF-8"
    if not body or "\0" in body:
        return "MLflow keeps no empty text" if not body else "MLflow keeps no NUL"
    return f"longer than {MAX_CHARACTERS} characters" if max(len(body), len(head)) > MAX_CHARACTERS else ""


def _split(text: str) -> tuple[str, str]:
    """Front matter with its fences, and the text below."""
    found = _HEAD.match(text)
    return (text[: found.end()], text[found.end() :]) if found else ("", text)


def _text(version: Any) -> str | None:
    if isinstance(version.template, str):
        return version.template
    only = version.template[0] if len(version.template) == 1 else {}
    text = only.get("content") if only.get("role") == "system" else None
    return text if isinstance(text, str) else None


def _alias(kind: str, digest: str) -> str:
    return f"{kind}-{digest.removeprefix('sha256:')}"
