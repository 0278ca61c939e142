"""Settings of shared memory that could not work."""

from __future__ import annotations

import pytest

from verifier.config import load_settings
from verifier.errors import ConfigError


@pytest.mark.parametrize("listen", ["127.0.0.1:50053", "/run/verifier/memory.sock", ""])
def test_regions_are_registered_on_a_unix_socket_alone(listen):
    with pytest.raises(ConfigError, match=r"shared_memory\.listen"):
        load_settings(None, {"shared_memory": {"listen": listen}})


def test_a_front_end_has_room_for_two_largest_batches():
    with pytest.raises(ConfigError, match=r"server\.region_bytes must be twice server\.max_batch_bytes"):
        load_settings(None, {"server": {"region_bytes": 1 << 20}})
