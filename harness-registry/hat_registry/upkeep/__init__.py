"""Keeping a registry over years: backup and restore of database, blobs and MLflow as one, checks across them, garbage.

Always holds: nothing here trusts what it copies: every file of a backup has a digest, every ledger is verified before and
after. Not here: serving (api), what rows mean (ledger, harnesses, pointers).
"""
