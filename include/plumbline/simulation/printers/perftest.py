"""ib_write_bw of perftest 6: one line a size. Layout: linux-rdma/perftest, src/perftest_parameters.c."""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.simulation.printers import STAMP

_RULE = "-" * 83


def ib_write_bw(device: str, rows: Sequence[tuple[int, int, float, float]]) -> str:
    """Print a bandwidth test with --report_gbits; rows are (bytes, iterations, peak, average) in Gbit/s."""
    head = f"""{STAMP}
{_RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : {device}
 Number of qps   : 1            Transport type : IB
 Connection type : RC           Using SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs     : OFF
 Data ex. method : Ethernet
{_RULE}
 local address: LID 0x01 QPN 0x0137 PSN 0x8a3ec1 RKey 0x1fff00 VAddr 0x007f3c1d000000
 remote address: LID 0x02 QPN 0x0138 PSN 0x21c4a5 RKey 0x1fff00 VAddr 0x007f1b9e000000
{_RULE}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
"""
    lines = [
        f" {size:<10d} {count:<14d} {peak:<18.2f} {average:<20.2f} {average / 8 / size * 1e3:.6f}"
        for size, count, peak, average in rows
    ]
    return head + "\n".join(lines) + f"\n{_RULE}\n"
