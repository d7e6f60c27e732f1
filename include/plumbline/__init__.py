"""Plumbline: nightly baselines and acceptance of GPU clusters.

The core knows benchmarks, readers, indicators and verdicts. It never imports Airflow or Kubernetes.
"""

__version__ = "0.1.0"
