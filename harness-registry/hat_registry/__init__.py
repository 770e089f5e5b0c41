"""The registry: where harness versions, pointers, proposals, releases and the ledger live.

`store` keeps rows and blobs; `ledger`, `harnesses`, `pointers`, `proposals`, `gates`, `releases`, `accounts` are the
domain; `api` serves it over HTTP; `client` reads it with light imports. Protection lives in the domain, so that page,
command line and token obey one rule. Not here: what a harness is (hat_harness), models (MLflow), pages (hat_console).
"""
