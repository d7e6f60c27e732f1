"""Matrices of `nvidia-smi topo`: how GPUs and NICs are linked (-m), and which pairs can do P2P (-p2p)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from plumbline.readers.reading import Fact

_DEVICE = re.compile(r"(?:GPU|NIC|mlx\d_|mlx5_bond_|hfi1?_?|ib|roce|rdma|rocep|ibp|bnxt_re|qedr|irdma|efa_)\w{0,20}")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|SOC|PSB|NV\d{1,3}|N/A|DIS")
_STATUS = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U|N/A")
_REFUSED = ("CNS", "GNS", "TNS", "NS")
_UNDERLINE = re.compile(r"\[\d{0,2}m")


@dataclass(slots=True)
class Matrix:
    """One matrix: the devices of its header, and the rows that are whole."""

    devices: list[str]
    columns: tuple[str, ...] = ()
    """What stands right of the matrix: CPU Affinity, NUMA Affinity."""
    rows: dict[str, list[str]] = field(default_factory=dict)
    cpus: dict[str, str] = field(default_factory=dict)
    numa: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> list[str]:
        """The GPUs among the devices."""
        return [name for name in self.devices if name.startswith("GPU")]

    @property
    def is_p2p(self) -> bool:
        """Whether the cells are P2P statuses."""
        cells = {cell for row in self.rows.values() for cell in row if cell not in ("X", "N/A")}
        return bool(cells) and all(_STATUS.fullmatch(cell) for cell in cells)

    @property
    def whole(self) -> bool:
        """Whether every device of the header has its row."""
        return not self.damaged and list(self.rows) == self.devices

    @property
    def missing(self) -> list[str]:
        """Devices of the header without a whole row."""
        return [name for name in self.devices if name not in self.rows]

    def take(self, line: str, *, ended: bool) -> bool:
        """Take a row of this matrix; False when the line is none."""
        tokens = _UNDERLINE.sub("", line).split()
        if not tokens or tokens[0] not in self.devices or tokens[0] in self.rows:
            return False
        name, cells, rest = tokens[0], tokens[1 : 1 + len(self.devices)], tokens[1 + len(self.devices) :]
        position = self.devices.index(name)
        kinds = (_LINK, _STATUS)
        right = len(cells) == len(self.devices) and cells[position] == "X"
        right = right and any(all(cell == "X" or kind.fullmatch(cell) for cell in cells) for kind in kinds)
        if not right or (not ended and not rest and cells[-1] != "X"):
            self.damaged.append(name)
            return True
        self.rows[name] = cells
        if ended:
            for column, value in zip(self.columns, rest, strict=False):
                (self.cpus if column == "CPU" else self.numa).setdefault(name, value)
        return True


def matrix_header(line: str) -> Matrix | None:
    """Read the header of a matrix, or give None."""
    if "GPU0" not in line:
        return None
    tokens = _UNDERLINE.sub("", line).split()
    devices = []
    for token in tokens:
        if not _DEVICE.fullmatch(token) or token in devices:
            break
        devices.append(token)
    rest = " ".join(tokens[len(devices) :])
    if not devices or devices[0] != "GPU0" or (rest and not rest.startswith("CPU Affinity")):
        return None
    columns = tuple(word for word in ("CPU", "NUMA") if f"{word} Affinity" in rest)
    return Matrix(devices, columns)


def matrix_facts(matrix: Matrix) -> Iterator[Fact]:
    """Say what a matrix holds."""
    table = {name: dict(zip(matrix.devices, cells, strict=True)) for name, cells in matrix.rows.items()}
    gpus = [name for name in matrix.gpus if name in table]
    pairs = list(combinations(gpus, 2))
    if matrix.is_p2p:
        both = {(a, b): (table[a][b], table[b][a]) for a, b in pairs}
        yield Fact("p2p_matrix", table)
        yield Fact("p2p_ok_pairs", [[_index(a), _index(b)] for (a, b), cells in both.items() if cells == ("OK", "OK")])
        refused = [pair for pair, cells in both.items() if any(cell in _REFUSED for cell in cells)]
        yield Fact("not_supported_pairs", len(refused))
        return
    yield Fact("link_matrix", table)
    yield Fact("link_counts", dict(Counter(table[a][b] for a, b in pairs)))
    if matrix.cpus:
        yield Fact("cpu_affinity", matrix.cpus)
    if matrix.numa:
        yield Fact("numa_affinity", matrix.numa)


def nvlinks(matrix: Matrix) -> Iterator[tuple[str, str, int]]:
    """Give for each pair of GPUs how many NVLinks join them, where NVLinks do."""
    for a, b in combinations([name for name in matrix.gpus if name in matrix.rows], 2):
        cell = matrix.rows[a][matrix.devices.index(b)]
        if cell.startswith("NV"):
            yield _label(a), _label(b), int(cell[2:])


def _index(name: str) -> int | str:
    digits = name.removeprefix("GPU")
    return int(digits) if digits.isascii() and digits.isdigit() else name


def _label(name: str) -> str:
    return name.removeprefix("GPU")
