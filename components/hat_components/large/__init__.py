"""Training of models that are given, with transformers, TRL, PEFT and accelerate: what profile h20 uses.

The steps sft, opd, rl and mtp come here where their config has a section `large`. Importing this loads nothing heavy.
"""
