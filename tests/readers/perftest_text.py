"""Writes what perftest prints and reports, from values that the tests choose."""

from __future__ import annotations

import json

LINE = "-" * 87 + "\n"


def banner(title="RDMA_Write BW Test", device="mlx5_0", qps=1, local="0x01", remote="0x02"):
    return (
        LINE + f"                    {title}\n"
        f" Dual-port       : OFF\t\tDevice         : {device}\n"
        f" Number of qps   : {qps}\t\tTransport type : IB\n"
        " Connection type : RC\t\tUsing SRQ      : OFF\n"
        " PCIe relax order: ON\t\tLock-free      : OFF\n"
        " ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : OFF\n"
        " CQ Moderation   : 1\n Mtu             : 4096[B]\n Link type       : IB\n Max inline data : 0[B]\n"
        " rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n" + LINE
        + f" local address: LID {local} QPN 0x0107 PSN {local}b264f8 RKey 0x1 VAddr 0x007f\n"
        f" remote address: LID {remote} QPN 0x0107 PSN {remote}b264f8 RKey 0x1 VAddr 0x007f\n" + LINE
    )  # fmt: skip


def bw_header(unit="MiB/sec", cpu=False):
    head = f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
    return head + ("    CPU_Util[%]\n" if cpu else "\n")


def bw_row(size, average, peak=None, iterations=5000, unit=1 << 20, cpu=None):
    rate = average * unit / size / 1e6
    fmt = " %-7d    %-10d       %-7.2f            %-7.2f\t\t     %-7.6f"
    row = fmt % (size, iterations, average + 0.5 if peak is None else peak, average, rate)
    return row + ("\n" if cpu is None else f"\t    {cpu:<3.2f}\n")


def lat_header():
    return (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
        "   99% percentile[usec]   99.9% percentile[usec] \n"
    )


def lat_row(size, cells=(1.42, 1.93, 1.47, 1.48, 0.02, 1.57, 1.93)):
    fmt = " %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n"
    return fmt % (size, 1000, *cells)


def one(average=24056.72, unit="MiB/sec", **head):
    return banner(**head) + bw_header(unit) + bw_row(65536, average) + LINE


def report(average=2229.27, rate=0.035668, size=65536, test="RDMA_Write_BW_Test"):
    return json.dumps(
        {
            "test_info": {
                "test": test, "Dual_port": "OFF", "Device": "mlx5_11", "Number_of_qps": 1, "Transport_type": "IB",
                "Connection_type": "RC", "Using_SRQ": "OFF", "Mtu": 1024, "Link_type": "Ethernet",
            },
            "results": {
                "MsgSize": size, "n_iterations": 5000, "BW_peak": 5293.52, "BW_average": average, "MsgRate": rate,
            },
        },
        indent=1,
    )  # fmt: skip


def invalid(text: str) -> str:
    """As until 2022: keys and words without quotes, commas before closing braces."""
    return text.replace('"', "").replace("}", "},").replace("\n },\n}", "\n },\n}\n")
