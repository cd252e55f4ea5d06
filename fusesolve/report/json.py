"""JSON as fusesolve writes it: deterministic, strict, one final newline."""

import json
from collections.abc import Mapping
from typing import Any

from fusesolve.errors import InternalError


def format_json(document: Mapping[str, Any]) -> str:
    """`document` as indented JSON text that ends with a newline; keys keep their order, every character is ASCII.

    Raises InternalError where a number is not finite (NaN and Infinity are not JSON) or a value is not plain data.
    """
    try:
        return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    except (ValueError, TypeError) as error:
        raise InternalError(f"a result cannot be written as JSON: {error}") from error
