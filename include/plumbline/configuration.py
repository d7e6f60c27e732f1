"""YAML at the edge: files and overrides become checked values, or an error naming file, key and near match."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict
from pydantic import ValidationError as PydanticError

from plumbline.errors import ConfigError, near_match

M = TypeVar("M", bound="Document")


class Document(BaseModel):
    """Base of everything that is read from YAML: unknown keys are errors, values are frozen, numbers are finite.

    A limit of nan compares with nothing, so it would never be exceeded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False)


def project_root() -> Path:
    """Give the directory that relative paths in profiles start from: PLUMBLINE_HOME, or this checkout, or the cwd."""
    if home := os.environ.get("PLUMBLINE_HOME"):
        return Path(home)
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "airflow_settings.yaml").exists() else Path.cwd()


def load_yaml(path: Path) -> Any:
    """Read a YAML file. Raises ConfigError naming file and line for what is not YAML, or has a key twice."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read: {error}") from None
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - derived from SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None


class _UniqueKeys(yaml.CSafeLoader):
    """A SafeLoader that refuses a key given twice: the second would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse(model: type[M], data: Any, where: str) -> M:
    """Check data against a model. Raises ConfigError that lists every violation with its key and near match."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: must be a mapping of keys, not {type(data).__name__}")
    try:
        return model.model_validate(data)
    except PydanticError as error:
        lines = [_explain(model, item) for item in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(lines)) from None


def _explain(model: type[BaseModel], item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        known = model.model_fields if len(item["loc"]) == 1 else _fields_below(model, item["loc"][:-1])
        return f"unknown key {key!r}{near_match(str(item['loc'][-1]), known)}"
    if item["type"] == "missing":
        return f"key {key!r} is missing"
    if isinstance(item["input"], Mapping):  # a check of several keys: the whole of them would bury what is wrong
        return f"{key}: {item['msg']}".removeprefix(": ")
    return f"{key}: {item['msg']}, not {item['input']!r}"


def _fields_below(model: type[BaseModel], path: Iterable[Any]) -> Iterable[str]:
    current: Any = model
    for part in path:
        if isinstance(part, int):  # an element of a list: its model was taken from the list's type
            continue
        field = getattr(current, "model_fields", {}).get(part)
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not models:
            return ()
        current = models[0]
    return tuple(getattr(current, "model_fields", ()))


def find_document(kind: str, name: str, folders: Iterable[Path]) -> Path:
    """Find `name` as a path to a YAML file, or as <name>.yaml in one of the folders. Raises ConfigError."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if path.is_file():
            return path
        raise ConfigError(f"no {kind} file {name}")
    known: list[str] = []
    for folder in folders:
        if (candidate := folder / f"{name}.yaml").is_file():
            return candidate
        known.extend(p.stem for p in folder.glob("*.yaml"))
    raise ConfigError(f"no {kind} {name!r}{near_match(name, known)}")


def search_path(variable: str, shipped: Path) -> list[Path]:
    """Give the folders of a kind of document: those in the environment variable (colon-separated), then the shipped."""
    return [*(Path(p) for p in os.environ.get(variable, "").split(":") if p), shipped]
