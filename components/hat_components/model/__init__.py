"""The small model that learns the task on two CPU cores: tokenizer, network, optimiser,
generation and supervised training.

Importing this package loads nothing heavy; its modules import torch and transformers.
"""
