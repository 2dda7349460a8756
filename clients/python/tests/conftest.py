"""What the tests share: a cluster that no test breaks."""

import os
from collections.abc import Iterator

import pytest
from cluster import Cluster

import berth_client


def pytest_configure(config: pytest.Config) -> None:
    if "BERTH_BIN" not in os.environ:
        raise pytest.UsageError("BERTH_BIN names no directory with the programs of Berth")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with flavors. Its parts stay as they are."""
    with Cluster() as cluster:
        with cluster.client() as client:
            client.flavors.create("small", vcpus=1, memory_mib=256)
            client.flavors.create("big", vcpus=64, memory_mib=256)
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[berth_client.Client]:
    with cluster.client() as client:
        yield client
