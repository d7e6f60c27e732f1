"""What other DAGs can be scheduled on."""

from __future__ import annotations

from airflow.sdk import Asset

JUDGED_RUN = Asset("plumbline_judged_run", uri="plumbline://runs/judged", group="plumbline")
"""Updated whenever a run was judged and reported, whatever its verdict; `extra` holds run_id and run_dir."""
