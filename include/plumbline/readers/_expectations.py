"""What a plan expects of an output, read from the values that `--expect key=value` brings."""

from __future__ import annotations

from collections.abc import Mapping

from plumbline.errors import ConfigError
from plumbline.model import Scalar

_DIGITS = 1000
"""Python converts some thousands of digits at most."""


def expected_count(expect: Mapping[str, Scalar], key: str) -> int | None:
    """Give a whole number that is expected, or None when nothing is. Raises ConfigError for anything else."""
    value = expect.get(key)
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < _DIGITS:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"expectation {key}: a whole number such as {key}=8, not {value!r}")
    return value


def expected_words(expect: Mapping[str, Scalar], key: str) -> list[str]:
    """Give the words of a comma-separated expectation, none when nothing is expected."""
    return [word.strip() for word in str(expect.get(key) or "").split(",") if word.strip()]


def expected_flag(expect: Mapping[str, Scalar], key: str) -> bool:
    """Say whether a yes-or-no expectation is set. Raises ConfigError for anything but yes or no."""
    value = str(expect.get(key, "")).strip().lower()
    if value in ("", "0", "false", "no", "none"):
        return False
    if value in ("1", "true", "yes"):
        return True
    raise ConfigError(f"expectation {key}: true or false, not {expect[key]!r}")
