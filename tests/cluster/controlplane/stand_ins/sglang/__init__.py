"""Stand-in for SGLang where only routing is tested:

The command line of the real server, answers that say who gave them.
"""
