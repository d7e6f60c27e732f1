"""Benchmarks as pods of a Kubernetes cluster: its API, its inventory, and the programs that run inside the pods.

api, gang, node, ssh, worker and what they use run inside pods with the standard library alone; the rest is for the side
that starts them. Manifests are in plumbline.execution.pods.
"""
