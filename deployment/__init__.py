"""Plumbline on one machine: what `make baseline`, `make up` and `make down` run."""
