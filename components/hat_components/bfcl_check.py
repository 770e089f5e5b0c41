"""Whether calls are right by the rules of the Berkeley Function Calling Leaderboard (its AST check, Python categories).

An answer gives for each parameter the values that are accepted; "" among them says that the parameter may be left out.
Rules: as many calls as answers, in any order for parallel ones; no parameter beyond the function's and the answer's; types
as declared, an int for a float, or the type of the first accepted value (a variable); texts without spaces, case and
`,./-_*^`; lists and flat dicts value by value. Always holds: the verdict is BFCL's own (guarded by a test that runs both
on altered calls). Not here: the Java and JavaScript categories, whose values are source literals; the data (bfcl).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Call = tuple[str, Mapping[str, Any]]
"""(name, arguments)."""
_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_PASSED_OVER = re.compile(r"[ ,./\-_*^]")


def verdict(functions: Sequence[Mapping[str, Any]], made: Sequence[Call], answers: Sequence[Mapping[str, Any]]) -> str:
    """ "" when the calls are right, else a short code of the first thing that is wrong. No answers: no call is right."""
    if len(made) != len(answers):
        return "count"
    known = {str(function["name"]): function for function in functions}
    left = list(made)
    for answer in answers:
        name = next(iter(answer))
        codes = [_one(known[name], call, answer[name]) for call in left]
        if "" not in codes:
            return codes[0]
        del left[codes.index("")]
    return ""


def _one(function: Mapping[str, Any], call: Call, accepted: Mapping[str, Sequence[Any]]) -> str:
    name, arguments = call
    # OpenAI takes no dots in names, so BFCL and we ask with underscores.
    if name != str(function["name"]).replace(".", "_"):
        return "tool"
    properties = function["parameters"]["properties"]
    for parameter in function["parameters"].get("required", ()):
        if parameter not in arguments:
            return "missing"
    for parameter, value in arguments.items():
        if parameter not in properties or parameter not in accepted:
            return "unexpected"
        code = _value(properties[parameter], value, accepted[parameter])
        if code:
            return code
    left_out = (values for parameter, values in accepted.items() if parameter not in arguments)
    return "missing" if any("" not in values for values in left_out) else ""


def _value(schema: Mapping[str, Any], value: Any, accepted: Sequence[Any]) -> str:
    kind = _TYPES[schema["type"]]
    inner = _TYPES[schema["items"]["type"]] if schema["type"] in ("array", "tuple") else None
    if kind is float and type(value) is int:
        value = float(value)
    variable = _typed(value, accepted, kind, inner)
    if variable is None:
        return "type"
    if variable:
        right = value in accepted
    elif kind is dict:
        right = any(_flat(value, one) for one in accepted if one != "")
    elif kind is list and inner is dict:
        right = any(_rows(value, one) for one in accepted)
    elif kind is str:
        right = _plain(value) in [_plain(one) for one in accepted if isinstance(one, str)]
    elif kind is list:
        # An accepted value that is a text is compared letter by letter there, as lists are.
        right = [_plain(one) for one in value] in [[_plain(inner) for inner in one] for one in accepted]
    else:
        right = value in accepted
    return "" if right else "value"


def _first_type(accepted: Sequence[Any]) -> type | None:
    return next((type(value) for value in accepted if value != ""), None)


def _typed(value: Any, accepted: Sequence[Any], kind: type, inner: type | None) -> bool | None:
    """None: of a wrong type. Else whether it stands for a variable, so that it is compared as it is."""
    meant = _first_type(accepted)
    items: Any = value
    if type(value) is kind:
        # A single accepted value that is no list takes items of any type.
        if inner is None or any(
            not isinstance(one, list) or all(_typed(item, one, inner, None) is not None for item in items)
            for one in accepted
        ):
            return meant is not None and meant is not kind
        return None
    return True if meant is not None and type(value) is meant else None


def _plain(value: Any) -> Any:
    """A text without what BFCL passes over; anything else as it is."""
    return _PASSED_OVER.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _flat(value: Mapping[str, Any], accepted: Mapping[str, Sequence[Any]]) -> bool:
    """A dict without dicts inside."""
    for key, inner in value.items():
        if key not in accepted or _plain(inner) not in [_plain(one) for one in accepted[key]]:
            return False
    return all(key in value or "" in values for key, values in accepted.items())


def _rows(value: Sequence[Any], accepted: Sequence[Any]) -> bool:
    """A list of dicts, in order."""
    if len(value) != len(accepted):
        return False
    return all(one != "" and _flat(row, one) for row, one in zip(value, accepted, strict=True))
