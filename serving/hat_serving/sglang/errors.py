"""Errors of serving profiles.

ServingError
└── SettingsError
    └── ProfileError     a serving profile that cannot be read or cannot work; lists every finding at once
"""

from __future__ import annotations

from collections.abc import Sequence

from hat_serving.errors import SettingsError


class ProfileError(SettingsError):
    """`problems` are (field, what is wrong, cure), in the order of the profile."""

    def __init__(self, place: str, problems: Sequence[tuple[str, str, str]]) -> None:
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the serving profile", place=place)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [f"  {field}: {message}" + (f" ({cure})" if cure else "") for field, message, cure in self.problems]
        return "\n".join([f"{self.place}: {self.message}", *lines])
