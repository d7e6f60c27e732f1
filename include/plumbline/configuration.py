"""YAML at the edge: files and overrides become checked values, or an error naming file, key and near match."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic import ValidationError as PydanticError
from pydantic_core import CoreSchema

from plumbline.configuration_errors import explain, lines_of
from plumbline.errors import ConfigError, near_match

M = TypeVar("M", bound="Document")


def _take_numbers_only(part: Any) -> None:
    if isinstance(part, dict):
        if part.get("type") in ("int", "float"):
            part["strict"] = True
        for inner in part.values():
            _take_numbers_only(inner)
    elif isinstance(part, (list, tuple)):
        for inner in part:
            _take_numbers_only(inner)


class Document(BaseModel):
    """Base of everything that is read from YAML: unknown keys are errors, values are frozen, numbers are finite.

    A limit of nan compares with nothing, so it would never be exceeded. A number is a number: neither true, which
    Python counts as 1, nor text of digits. Validators are built when they are first used: most commands read one kind
    of document, and building all of them takes longer than reading it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Have every whole number and number of the model taken as it is, wherever in its keys it stands."""
        schema = handler(source)
        _take_numbers_only(schema)
        return schema


Text = Annotated[str, Field(min_length=1)]
"""Text with something in it: an empty name, path or reason says nothing, and an empty path is another folder."""


def project_root() -> Path:
    """Give the directory that relative paths in profiles start from: PLUMBLINE_HOME, or this checkout, or the cwd."""
    if home := os.environ.get("PLUMBLINE_HOME"):
        return Path(home)
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "airflow_settings.yaml").exists() else Path.cwd()


def load_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises ConfigError naming file and line for what is not YAML, has a key twice, contains itself or is endless.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot read: not UTF-8 text, at byte {error.start}") from None
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - derived from SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(_not_yaml(path, error)) from None


def _not_yaml(path: Path, error: Exception) -> str:
    """Say file, line and what the parser met there."""
    mark = getattr(error, "problem_mark", None)
    place = f"{path}:{mark.line + 1}" if mark else str(path)
    context = getattr(error, "context", None)
    return f"{place}: not valid YAML: {getattr(error, 'problem', None) or error}{f', {context}' if context else ''}"


_MOST_NODES = 1_000_000
"""Keys and values of a document with its aliases written out; the largest inventory has some thousands."""


def _refuse_endless(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Give how many nodes a document has with its aliases written out. `sizes` are those known; None is under way.

    Raises ConstructorError for a node that is inside of itself, and for more than any document has.
    """
    known = sizes.get(id(node), 0)
    if known is None:
        raise yaml.constructor.ConstructorError(None, None, "it contains itself", node.start_mark)
    if known:
        return known
    sizes[id(node)] = None
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    size = 1
    for part in parts:
        size += _refuse_endless(part, sizes)
    if size > _MOST_NODES:
        raise yaml.constructor.ConstructorError(None, None, "aliases make it endless", node.start_mark)
    sizes[id(node)] = size
    return size


class _UniqueKeys(yaml.CSafeLoader):
    """A SafeLoader that refuses a key given twice, of which the second would silently win, and what has no end."""

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if node is not None:
            _refuse_endless(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, f"a key must be one word, not {key!r}", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_date(self, node: yaml.ScalarNode) -> Any:
        """Read a date or time; one that no calendar has is named with its line."""
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value} is no date: {error} (write it as 2026-11-30)", node.start_mark
            ) from None


_UniqueKeys.add_constructor("tag:yaml.org,2002:timestamp", _UniqueKeys.construct_date)


def parse(model: type[M], data: Any, where: str) -> M:
    """Check data against a model; `where` names it: a YAML file, or anything else.

    Raises ConfigError that lists every violation with its key, its near match and, in a file, its line.
    """
    if data is None:
        raise ConfigError(f"{where}: is empty; it must be a mapping of keys: {', '.join(model.model_fields)}")
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{where}: must be a mapping of keys, not {'a list' if isinstance(data, list) else 'a value'}"
        )
    try:
        return model.model_validate(data)
    except PydanticError as error:
        raise ConfigError(f"{where}: {explain(model, data, error, _key_lines(where))}") from None


def at_line(path: Path, *place: Any) -> str:
    """Say the line of a key in a YAML file, such as " (line 7)"; nothing where it isn't there."""
    line = _key_lines(str(path)).get(place)
    return f" (line {line})" if line else ""


def check_name(path: Path, kind: str, name: str) -> None:
    """Refuse a document that is called otherwise than its file: asked for by one name, it would act under another.

    Raises ConfigError.
    """
    if name != path.stem:
        raise ConfigError(
            f"{path}: name: the file is called {path.stem} and the {kind} {name}: one of them is asked for"
            f"{at_line(path, 'name')}"
        )


def _key_lines(where: str) -> dict[tuple[Any, ...], int]:
    """Give the line of every key of a YAML file, by its place; nothing where `where` is no such file."""
    if not where.endswith((".yaml", ".yml")):
        return {}
    try:
        return lines_of(Path(where).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}


def find_document(kind: str, name: str, folders: Sequence[Path]) -> Path:
    """Find `name` as a path to a YAML file, or as <name>.yaml in one of the folders. Raises ConfigError."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if path.is_file():
            return path
        known = document_names(folders)
        hint = f"; did you mean {path.stem!r}?" if path.name == name and path.stem in known else ""
        raise ConfigError(f"no {kind} file {name}{hint}")
    if "/" in name:
        file = f"; did you mean {name}.yaml?" if Path(f"{name}.yaml").is_file() else ""
        raise ConfigError(f"no {kind} {name!r}: a path must be that of a YAML file{file}")
    for folder in folders:
        if (candidate := folder / f"{name}.yaml").is_file():
            return candidate
    raise ConfigError(f"no {kind} {name!r}{near_match(name, document_names(folders))}")


def document_names(folders: Iterable[Path]) -> list[str]:
    """Give the names of the documents in the folders, sorted."""
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml") if path.is_file()})


def search_path(variable: str, shipped: Path) -> list[Path]:
    """Give the folders of a kind of document: those in the environment variable (colon-separated), then the shipped."""
    return [*(Path(p) for p in os.environ.get(variable, "").split(":") if p), shipped]
