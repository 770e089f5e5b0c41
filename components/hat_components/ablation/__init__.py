"""The training ablation: which policies are compared (policies), and the rows that finished evaluations make (rows)."""
