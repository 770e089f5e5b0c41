"""Five-field schedules (minute hour day month weekday) in UTC, as crontab(5) and Kubernetes read them.

Always holds: a schedule that can never come due is refused. Names of months and days, lists, ranges and steps are
understood; `@daily` and its like too. Where day and weekday are both given, either will do. Not here: firing (desk).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hat_pipelines.errors import ScheduleError

SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
HORIZON_DAYS = 366 * 9
"""Far enough for the 29th of February across a century's turn."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed schedule; sets of the values at which each field matches."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either: bool
    """Day and weekday are both restricted, so that one of them is enough."""

    def on(self, moment: datetime) -> bool:
        """Whether the schedule has the day of `moment`."""
        day, weekday = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        return moment.month in self.months and (day or weekday if self.either else day and weekday)

    def after(self, moment: datetime) -> datetime:
        """The first minute strictly after `moment` at which it is due."""
        start = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = start.replace(hour=0, minute=0)
        for _ in range(HORIZON_DAYS):
            if self.on(day):
                found = [
                    due
                    for hour in sorted(self.hours)
                    for minute in sorted(self.minutes)
                    if (due := day.replace(hour=hour, minute=minute)) >= start
                ]
                if found:
                    return found[0]
            day += timedelta(days=1)
        raise ScheduleError(f"{self.text!r} never comes due", place="cron", cure="check day and month")


def parse(text: str) -> Cron:
    """Read a schedule. Raises ScheduleError that names the field."""
    words = SHORT.get(text.strip().lower(), text).split()
    if len(words) != len(FIELDS):
        raise ScheduleError(
            f"{text[:80]!r} has {len(words)} fields", place="cron", cure="minute hour day month weekday: 30 2 * * *"
        )
    minutes, hours, days, months, weekdays = (_field(word, *field) for word, field in zip(words, FIELDS, strict=True))
    either = not words[2].startswith("*") and not words[4].startswith("*")
    folded = frozenset(day % 7 for day in weekdays)
    made = Cron(" ".join(words), minutes, hours, days, months, folded, either)
    made.after(datetime(2000, 1, 1))  # any moment shows whether it comes due at all
    return made


def _field(word: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or int(step) == 0):
            raise _wrong(name, part, "a step is a number above 0")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = _number(first, name, low, high, part)
            end = _number(last, name, low, high, part) if dash else (high if slash else begin)
        if begin > end:
            raise _wrong(name, part, "a range goes upwards")
        found |= set(range(begin, end + 1, int(step) if slash else 1))
    return frozenset(found)


def _number(text: str, name: str, low: int, high: int, part: str) -> int:
    names = {"month": MONTHS, "weekday": DAYS}.get(name, ())
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not (text.isascii() and text.isdecimal()) or not low <= int(text) <= high:
        raise _wrong(name, part, f"{low} to {high}")
    return int(text)


def _wrong(name: str, part: str, cure: str) -> ScheduleError:
    return ScheduleError(f"{name}: {part[:40]!r} is not understood", place="cron", cure=cure)
