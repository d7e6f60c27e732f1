"""Plumbline's own trainer: GPT-3 and BERT architectures at any size, on synthetic text, writing real MLLOG.

It measures a cluster (step time, throughput, checkpoint, time to a target), not a model. Whatever size it runs at, its
data is synthetic: everything that it writes calls itself a proxy, and nothing here is an MLPerf result.

    python -m plumbline_bench.trainer --benchmark gpt3 --mode fixed_steps --nodes 2
"""
