"""The two Airflow DAGs that the overhead benchmark compares, for the run directory in PLUMBLINE_BENCHMARK_RUN."""

import os
from pathlib import Path

from benchmarks.launch_stage import RUN, bare_dag, through_dag

if RUN in os.environ:
    through = through_dag(Path(os.environ[RUN]))
    bare = bare_dag(Path(os.environ[RUN]))
