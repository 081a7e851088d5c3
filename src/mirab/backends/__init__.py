"""Engines that execute: this machine, later Slurm and Kubernetes."""
