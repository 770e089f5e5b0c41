"""The judge as a versioned object: what it asks, who answers, how votes are counted (`hatstack.judge/1`).

A judge is a folder: `judge.yaml` (this model, without the rubric) and `rubric.md`. Always holds: two judges with one
digest ask the same questions of the same members in the same words; where an endpoint stands (URL, key, parallelism,
prices) is outside the digest, which model answers is inside. Not here: asking (panel).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from hat_components.judge.chat import EndpointConfig
from hat_components.judge.prompt import TEMPLATES_DIGEST
from hat_components.judge.rubric import Record, Rubric, load_rubric
from hat_components.step import InputError
from hat_harness.digest import decimals, digest_json

FORMAT: Literal["hatstack.judge/1"] = "hatstack.judge/1"
BUILT_IN = Path(__file__).parent / "judges"
_PLACE = {"url", "key_variable", "parallel", "attempts", "backoff_s", "timeout_s", "prompt_price", "completion_price"}


class EndpointMember(Record):
    """A model that reads the case."""

    type: Literal["endpoint"] = "endpoint"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    endpoint: EndpointConfig
    evidence: Literal["prompt", "tools"] = "prompt"
    """`prompt`: all evidence stands in the prompt. `tools`: the member looks it up."""
    max_steps: int = Field(default=8, ge=1, le=32)
    """Rounds of tool calls before it has to answer."""
    ask_again: int = Field(default=1, ge=0, le=3)
    """How often an answer that cannot be read is sent back."""


class OracleMember(Record):
    """A simulated judge: knows the truth and errs as its confusion matrix says. For tests and for planning."""

    type: Literal["oracle"] = "oracle"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    confusion: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)
    """Criterion → true label → said label → probability; a criterion or label that is not listed is judged right."""
    missing: float = Field(default=0.0, ge=0, le=1)
    """Share of criteria that it does not answer."""
    seed: int = 1

    @model_validator(mode="after")
    def _rows_sum_to_one(self) -> OracleMember:
        for criterion, rows in self.confusion.items():
            for label, row in rows.items():
                if min(row.values(), default=0.0) < 0 or abs(sum(row.values()) - 1) > 1e-9:
                    raise ValueError(f"{criterion}, {label}: probabilities must add up to 1")
        return self


Member = Annotated[EndpointMember | OracleMember, Field(discriminator="type")]


class CheckUse(Record):
    """A programmatic check and what it decides."""

    check: str
    """Name in hat_components.judge.checks."""
    criterion: str
    label: str
    """The criterion's label where the check fails. A check that passes decides nothing."""


class Voting(Record):
    """How the members' labels become one."""

    rule: Literal["majority", "unanimous", "median"] = "majority"
    """majority: more than half of the votes cast; unanimous: all of them; median: the lower middle by score."""
    quorum: int = Field(default=1, ge=1)
    """Votes that must have been cast."""


class Judge(Record):
    """A whole judge."""

    format: Literal["hatstack.judge/1"] = FORMAT
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    revision: int = Field(default=1, ge=1)
    """Counted up by whoever changes the judge; shown in the history of its agreement."""
    note: str = ""
    """What this revision changed."""
    rubric: Rubric
    members: tuple[Member, ...] = Field(min_length=1)
    voting: Voting = Voting()
    checks: tuple[CheckUse, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Judge:
        from hat_components.judge.checks import CHECKS

        doubled = [name for name, count in Counter(member.name for member in self.members).items() if count > 1]
        if doubled:
            raise ValueError(f"two members are called {doubled[0]}")
        if self.voting.quorum > len(self.members):
            raise ValueError(f"a quorum of {self.voting.quorum} cannot be met by {len(self.members)} members")
        names = {one.name: one for one in self.rubric.criteria}
        for use in self.checks:
            if use.check not in CHECKS:
                raise ValueError(f"there is no check {use.check!r}: {', '.join(CHECKS)}")
            if use.criterion not in names or use.label not in names[use.criterion].labels:
                raise ValueError(f"check {use.check}: the rubric has no {use.criterion}: {use.label}")
        return self

    @property
    def digest(self) -> str:
        """Digest of everything that can change a verdict, the prompt's templates included."""
        data = self.model_dump(mode="json")
        for key in ("name", "revision", "note"):
            data.pop(key)
        for member in data["members"]:
            if member["type"] == "endpoint":
                member["endpoint"] = {k: v for k, v in member["endpoint"].items() if k not in _PLACE}
        return digest_json(decimals({**data, "templates": TEMPLATES_DIGEST}))

    def at(self, url: str, model: str = "") -> Judge:
        """The same judge with every endpoint member asked at `url`, and of `model` where one is given."""
        moved = []
        for member in self.members:
            if isinstance(member, EndpointMember):
                change = {"url": url} | ({"model": model} if model else {})
                member = member.model_copy(update={"endpoint": member.endpoint.model_copy(update=change)})
            moved.append(member)
        return self.model_copy(update={"members": tuple(moved)})


def load_judge(where: str | Path) -> Judge:
    """A judge from its folder, or a built-in one by name; InputError says what is wrong with it."""
    folder = Path(where)
    if not (folder / "judge.yaml").is_file() and (BUILT_IN / str(where) / "judge.yaml").is_file():
        folder = BUILT_IN / str(where)
    file = folder / "judge.yaml"
    if not file.is_file():
        known = ", ".join(sorted(path.parent.name for path in BUILT_IN.glob("*/judge.yaml")))
        raise InputError(f"there is no judge at {str(where)!r}", place="judge", cure=f"a folder, or one of: {known}")
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"not YAML: {str(error).splitlines()[0]}", place=str(file)) from error
    if not isinstance(data, Mapping):
        raise InputError("a judge is a mapping", place=str(file), cure="see hat_components.judge.spec")
    return build_judge({**data, "rubric": load_rubric(folder / "rubric.md")}, str(file))


def build_judge(data: Mapping[str, Any], place: str = "judge") -> Judge:
    """A judge from its fields; InputError names the first field that does not fit."""
    try:
        return Judge.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise InputError(f"{where}: {message}" if where else message, place=place) from error
