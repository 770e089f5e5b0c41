"""Five-field schedules come due when crontab(5) says, and what is not understood is refused with the field's name."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_pipelines.desk.cron import parse
from hat_pipelines.errors import ScheduleError

START = datetime(2026, 1, 31, 14, 5, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("* * * * *", "2026-01-31T14:06"),
        ("5 14 * * *", "2026-02-01T14:05"),
        ("*/20 * * * *", "2026-01-31T14:20"),
        ("30 2 * * *", "2026-02-01T02:30"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 9 * * mon-fri", "2026-02-02T09:00"),
        ("0 9 * * 7", "2026-02-01T09:00"),
        ("0 0 13 * fri", "2026-02-06T00:00"),
        ("15,45 8-10/2 1 mar *", "2026-03-01T08:15"),
        ("@daily", "2026-02-01T00:00"),
    ],
)
def test_the_next_time_is_known(text: str, due: str) -> None:
    assert parse(text).after(START).isoformat(timespec="minutes").removesuffix("+00:00") == due


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "minute: '60'"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day"),
        ("* * * foo *", "month: 'foo'"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("0 0 31 2 *", "never comes due"),
        ("", "has 0 fields"),
        ("٣ * * * *", "minute"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        parse(text)


@given(st.integers(0, 59), st.integers(0, 23), st.integers(0, 6), st.integers(0, 10_000_000))
def test_the_next_time_is_the_first_that_matches(minute: int, hour: int, weekday: int, seconds: int) -> None:
    schedule = parse(f"{minute} {hour} * * {weekday}")
    start = START + timedelta(seconds=seconds)
    due = schedule.after(start)
    assert due > start
    assert due - start <= timedelta(days=8)
    assert (due.minute, due.hour, due.isoweekday() % 7) == (minute, hour, weekday)


@given(st.text(max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    with contextlib.suppress(ScheduleError):
        assert parse(text).after(START) > START
