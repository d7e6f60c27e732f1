"""What nvidia-smi prints for people: matrices by their header, tables by their boxes, captures by their commands."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.errors import OutputError
from plumbline.readers import nvidia_smi_text as reader
from plumbline.readers.reading import Status

FOLDER = DATA / "nvidia_smi_text"
TOPO, P2P, TABLE, LIST, NVLINK, CAPTURE = (
    (FOLDER / f"{name}.txt").read_text() for name in ("topo_m", "topo_p2p", "table", "list", "nvlink_s", "capture")
)


def test_the_matrix_of_links():
    read = outcome(reader, TOPO)
    assert read.status is Status.COMPLETE
    assert read.facts["gpus"] == 4
    assert read.facts["link_matrix"]["GPU0"]["NIC0"] == "PIX"
    assert read.facts["link_matrix"]["NIC1"]["GPU3"] == "NODE"
    assert read.facts["link_counts"] == {"NV18": 5, "NV12": 1}
    assert read.facts["cpu_affinity"] == {"GPU0": "0-31,64-95", "GPU1": "0-31,64-95", "GPU2": "32-63,96-127",
                                          "GPU3": "32-63,96-127"}  # fmt: skip
    assert read.facts["numa_affinity"]["GPU3"] == "1"
    assert read.facts["nics"] == {"NIC0": "mlx5_0", "NIC1": "mlx5_3"}
    assert read.value("nvlinks", gpu="2", peer="3") == 12


def test_the_matrix_of_p2p():
    read = outcome(reader, P2P)
    assert read.status is Status.COMPLETE
    assert read.facts["p2p_ok_pairs"] == [[0, 1], [2, 3]]
    assert read.facts["not_supported_pairs"] == 4
    assert read.facts["parts"] == ["p2p"]
    assert "link_matrix" not in read.facts


@pytest.mark.parametrize("text", [TOPO, P2P], ids=["links", "p2p"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.expandtabs(8),
        lambda text: "".join(f"  {line}\n" for line in text.splitlines()),
        lambda text: text.replace("\x1b", ""),
        lambda text: text.split("\nLegend")[0] + "\n",
    ],
)
def test_a_matrix_is_the_same_in_any_spacing(text, change):
    read, plain = outcome(reader, change(text)), outcome(reader, text)
    for name in ("gpus", "link_matrix", "p2p_matrix", "p2p_ok_pairs", "cpu_affinity"):
        assert read.facts.get(name) == plain.facts.get(name)
    assert read.rows() == plain.rows()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("GPU2\tNV18", "GPU2\tNV1 8", 1),
        lambda text: "".join(line + "\n" for line in text.splitlines() if not line.startswith("GPU2")),
        lambda text: text.replace("GPU3\tNV18\tNV18\tNV12\t X ", "GPU3\tNV18\tNV18\t X \tNV12"),
        lambda text: text.replace("PXB", "FOO"),
    ],
)
def test_a_damaged_matrix_is_not_complete(change):
    assert change(TOPO) != TOPO
    assert outcome(reader, change(TOPO)).status is Status.INCOMPLETE


def test_the_boxed_table():
    read = outcome(reader, TABLE)
    assert read.status is Status.COMPLETE
    assert read.value("temperature", gpu="1", bus_id="00000000:1C:00.0") == 64
    assert read.value("power", gpu="0") == 655
    assert read.value("power_limit", gpu="0", limit="enforced") == 700
    assert read.value("fb_memory_used", gpu="1") == 1001
    assert read.value("fb_memory_total", gpu="1") == 81559
    assert read.value("utilization", gpu="1") == 99
    assert read.facts["driver"] == "570.86.15"
    assert read.facts["cuda"] == "12.8"
    assert read.facts["processes"] == 1
    assert read.facts["gpu_list"][0]["mig_mode"] == "Disabled"


def test_an_older_table_without_mig_and_cuda():
    text = (
        "+------------------------------------------------------+\n"
        "| NVIDIA-SMI 352.39     Driver Version: 352.39         |\n"
        "|-------------------------------+----------------------+----------------------+\n"
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |\n"
        "|===============================+======================+======================|\n"
        "|   0  Tesla K80           Off  | 0000:05:00.0     Off |                    0 |\n"
        "| N/A   37C    P0    59W / 149W |     55MiB / 11519MiB |      0%      Default |\n"
        "+-------------------------------+----------------------+----------------------+\n\n"
        "+-----------------------------------------------------------------------------+\n"
        "| Processes:                                                       GPU Memory |\n"
    )
    read = outcome(reader, text)
    assert read.value("power", gpu="0") == 59
    assert read.value("fb_memory_total", gpu="0") == 11519
    assert "cuda" not in read.facts


def test_driver_610_names_its_versions_otherwise():
    lines = TABLE.splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if "Driver Version" in line)
    lines[at] = "| NVIDIA-SMI 611.20.01              KMD Version: 611.20.01     CUDA UMD Version: 13.3     |\n"
    read = outcome(reader, "".join(lines))
    assert (read.facts["driver"], read.facts["cuda"]) == ("611.20.01", "13.3")


@pytest.mark.parametrize("cell", ["ERR!", "[Unknown Error]"])
def test_a_gpu_in_error_is_seen(cell):
    read = outcome(reader, TABLE.replace("64C ", f"{cell} "))
    assert read.values("temperature") == [61]
    assert read.status is Status.INCOMPLETE


def test_lists_and_links():
    read = outcome(reader, LIST)
    assert read.facts["gpus"] == 2
    assert read.facts["gpu_list"][1]["uuid"].endswith("1")
    assert read.status is Status.UNKNOWN
    assert outcome(reader, LIST, {"gpus": 2}).status is Status.COMPLETE
    assert outcome(reader, LIST, {"gpus": 8}).status is Status.INCOMPLETE
    links = outcome(reader, NVLINK)
    assert links.values("nvlink_bandwidth", gpu="0") == [26.562] * 3
    assert links.values("nvlink_bandwidth", gpu="1") == [26.562] * 2
    assert links.facts["nvlink_inactive"] == ["GPU 1 link 2"]


def test_a_capture_of_several_commands():
    read = outcome(reader, CAPTURE)
    assert read.facts["sections"] == 5
    assert read.facts["commands"][2] == "nvidia-smi "
    assert all(len(command) <= 90 for command in read.facts["commands"])
    assert read.facts["parts"] == ["list", "list", "table", "csv", "dmon"]
    assert read.value("temperature", gpu="1", section=2) == 64
    assert read.value("temperature", index=1, section=3) == 62
    assert read.value("temperature", gpu="1", section=4, poll=1) == 62
    assert read.value("power", gpu="0", section=4, poll=1) == 656
    assert read.value("clock_sm", gpu="1", section=4, poll=0) == 1965
    assert read.values("memory_temperature") == []
    assert read.status is Status.UNKNOWN


def test_prompts_name_commands_too():
    text = f"root@node-a:~# nvidia-smi topo -p2p r\n{P2P}\n[me@node-b ~]$ nvidia-smi -L\n{LIST}"
    text += f"+ nvidia-smi nvlink -s\n{NVLINK}"
    read = outcome(reader, text)
    assert read.facts["commands"] == ["nvidia-smi topo -p2p r", "nvidia-smi -L", "nvidia-smi nvlink -s"]
    assert read.facts["p2p_ok_pairs"] == [[0, 1], [2, 3]]
    assert read.status is Status.INCOMPLETE  # 4 GPUs in one output, 2 in the others


def test_windows_line_ends_are_counted():
    assert outcome(reader, LIST.replace("\n", "\r\n")).facts["crlf"] == 2
    assert outcome(reader, LIST).facts["crlf"] == 0


def test_no_driver_is_a_failure():
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n"
    read = outcome(reader, text)
    assert read.status is Status.FAILED
    lost = "Unable to determine the device handle for GPU0000:1C:00.0: GPU is lost.  Reboot the system to recover it\n"
    assert outcome(reader, lost).status is Status.FAILED


@pytest.mark.parametrize("text", ["", "hello\n", "GPU0\n", "| a | b |\n", "\x00" * 100])
def test_anything_else_is_refused(text):
    if text == "GPU0\n":
        assert outcome(reader, text).status is Status.INCOMPLETE
        return
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        (TOPO, {}),
        (P2P, {}),
        (TABLE, {}),
        (NVLINK, {}),
        (LIST, {"gpus": 2}),
        (CAPTURE, {}),
    ],
    ids=["topo", "p2p", "table", "nvlink", "list", "capture"],
)
def test_a_cut_output_is_never_called_complete(text, expect):
    check_cuts(reader, text.encode(), expect, most=300)


@pytest.mark.parametrize(("text", "name"), [(TOPO, "link_matrix"), (P2P, "p2p_matrix")])
def test_no_cell_of_a_cut_matrix_is_wrong(text, name):
    full = outcome(reader, text).facts[name]
    for at in range(len(text)):
        try:
            read = outcome(reader, text[:at])
        except OutputError:
            continue
        table = read.facts.get(name, {})
        assert all(full[row] == cells for row, cells in table.items()), at
        assert (read.status is Status.COMPLETE) <= (len(table) == len(full)), at


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    text = data.draw(st.sampled_from([TOPO, P2P, TABLE, NVLINK, CAPTURE]))
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    junk = data.draw(st.text(alphabet="|+ \n\tGPU0XNV#$-:", max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, text[:at] + junk + text[end:])


def test_sniff():
    for text in (TOPO, P2P, TABLE, LIST, NVLINK, CAPTURE):
        assert reader.sniff(text) >= 0.9
    assert reader.sniff("hello\n") == 0
