"""Runs a judge over subjects: checks, members, votes; counts what it could not judge.

Always holds: judgements come in the order of the subjects and do not depend on how many are judged side by side; every
criterion of every subject has a label or a reason. Not here: what the numbers mean (calibration, step).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field

from hat_components.judge.chat import Budget, Cache, Chat, Usage
from hat_components.judge.checks import CHECKS
from hat_components.judge.evidence import Evidence
from hat_components.judge.members import Asks, EndpointJudge, Opinion, Oracle
from hat_components.judge.rubric import Criterion, Record
from hat_components.judge.spec import Judge, OracleMember, Voting
from hat_components.judge.subject import Subject
from hat_components.judge.verdict import Reason


class Vote(Record):
    """What one member, or one check, said of one criterion."""

    by: str
    """Member, or `check:<name>`."""
    label: str = ""
    """"" where there is none."""
    reason: str = ""
    """Why there is no label."""
    rationale: str = ""


class Ruling(Record):
    """One criterion of one subject."""

    label: str = ""
    score: float | None = None
    """None: could not be judged."""
    reason: str = ""
    """Why there is no label: from the closed list of `verdict.Reason`."""
    votes: tuple[Vote, ...] = ()


class Judgement(Record):
    """One subject, judged. One line of `judgements.jsonl`."""

    subject: str
    item: str
    intent: str = ""
    rulings: dict[str, Ruling]
    """Criterion → ruling; every criterion of the rubric."""
    flags: tuple[str, ...] = ()
    """What members' answers needed: fenced, wrapped, other_words, asked_again, no_structured_output."""
    looked_up: tuple[str, ...] = Field(default=())
    """Evidence tools that members called."""


@dataclass(frozen=True)
class Panel:
    """A judge at work; made by `open_panel`."""

    judge: Judge
    members: tuple[Asks, ...]
    chats: Mapping[str, Chat]
    """Clients by member."""

    @property
    def usage(self) -> dict[str, Usage]:
        """What each member took so far."""
        return {name: chat.usage for name, chat in self.chats.items()}

    def judge_all(self, subjects: Sequence[Subject]) -> Iterator[Judgement]:
        """One judgement per subject, in order. Members with an endpoint work side by side, as many cases as they may."""
        width = max([chat.config.parallel for chat in self.chats.values()], default=1)
        waiting: list[tuple[Subject, list[Opinion | Future[Opinion]], dict[str, Vote]]] = []
        coming = iter(subjects)
        for subject in islice(coming, 2 * width):
            waiting.append(self._begin(subject))
        while waiting:
            subject, opinions, checked = waiting.pop(0)
            yield self._end(subject, [o.result() if isinstance(o, Future) else o for o in opinions], checked)
            waiting.extend(self._begin(one) for one in islice(coming, 1))

    def _begin(self, subject: Subject) -> tuple[Subject, list[Opinion | Future[Opinion]], dict[str, Vote]]:
        evidence = Evidence(subject)
        checked = self._check(evidence)
        open_ = tuple(one for one in self.judge.rubric.criteria if one.name not in checked)
        opinions: list[Opinion | Future[Opinion]] = []
        for member in self.members if open_ else ():
            chat = self.chats.get(member.name)
            ask = member.opinion
            opinions.append(chat.pool.submit(ask, evidence, open_) if chat else ask(evidence, open_))
        return subject, opinions, checked

    def _check(self, evidence: Evidence) -> dict[str, Vote]:
        """Criteria that a check settles; the first that refutes decides, and no model is asked about them."""
        found: dict[str, Vote] = {}
        for use in self.judge.checks:
            wrong = "" if use.criterion in found else CHECKS[use.check](evidence)
            if wrong:
                found[use.criterion] = Vote(by=f"check:{use.check}", label=use.label, rationale=wrong)
        return found

    def _end(self, subject: Subject, opinions: Sequence[Opinion], checked: Mapping[str, Vote]) -> Judgement:
        rulings = {}
        for one in self.judge.rubric.criteria:
            if one.name in checked:
                vote = checked[one.name]
                rulings[one.name] = Ruling(label=vote.label, score=one.score(vote.label), votes=(vote,))
            else:
                rulings[one.name] = _rule(one, [_vote(opinion, one.name) for opinion in opinions], self.judge.voting)
        return Judgement(
            subject=subject.id,
            item=subject.item,
            intent=subject.intent,
            rulings=rulings,
            flags=tuple(dict.fromkeys(flag for opinion in opinions for flag in opinion.flags)),
            looked_up=tuple(name for opinion in opinions for name in opinion.looked_up),
        )


@contextlib.contextmanager
def open_panel(
    judge: Judge,
    *,
    cache: Path | None = None,
    budget: Budget | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Panel]:
    """The judge with its clients open. cache: folder of earlier answers; budget: for all members together."""
    with contextlib.ExitStack() as stack:
        members: list[Asks] = []
        chats: dict[str, Chat] = {}
        shared, salt = budget or Budget(), judge.digest
        for member in judge.members:
            if isinstance(member, OracleMember):
                members.append(Oracle(member))
                continue
            chat = Chat(member.endpoint, cache=Cache(cache), budget=shared, sleep=sleep)
            chats[member.name] = stack.enter_context(chat)
            members.append(EndpointJudge(member, chat, judge.rubric, salt))
        yield Panel(judge, tuple(members), chats)


def counted(judgements: Sequence[Judgement]) -> dict[str, dict[str, int]]:
    """Criterion → reason → how often it could not be judged; and `flags` → flag → how often."""
    found: dict[str, Counter[str]] = {"flags": Counter()}
    for judgement in judgements:
        found["flags"].update(judgement.flags)
        for criterion, ruling in judgement.rulings.items():
            tally = found.setdefault(criterion, Counter())
            if ruling.score is None:
                tally[ruling.reason] += 1
    return {name: dict(sorted(tally.items())) for name, tally in found.items()}


def _vote(opinion: Opinion, criterion: str) -> Vote:
    return Vote(
        by=opinion.member,
        label=opinion.labels.get(criterion, ""),
        reason="" if criterion in opinion.labels else opinion.reasons.get(criterion, "no_answer"),
        rationale=opinion.rationales.get(criterion, opinion.detail),
    )


def _rule(criterion: Criterion, votes: Sequence[Vote], voting: Voting) -> Ruling:
    cast = [vote.label for vote in votes if vote.label]
    if not cast:
        reasons = Counter(vote.reason for vote in votes)
        return Ruling(reason=reasons.most_common(1)[0][0] if reasons else "no_answer", votes=tuple(votes))
    if len(cast) < voting.quorum:
        return Ruling(reason="no_quorum", votes=tuple(votes))
    label, reason = _choose(criterion, cast, voting.rule)
    return Ruling(label=label, score=criterion.score(label) if label else None, reason=reason, votes=tuple(votes))


def _choose(criterion: Criterion, cast: Sequence[str], rule: str) -> tuple[str, Reason | Literal[""]]:
    """The label, or the reason why the votes give none."""
    if rule == "median":
        ordered = sorted(cast, key=criterion.score)
        return ordered[(len(ordered) - 1) // 2], ""
    label, count = Counter(cast).most_common(1)[0]
    if rule == "unanimous":
        return (label, "") if count == len(cast) else ("", "split")
    return (label, "") if 2 * count > len(cast) else ("", "tie")
