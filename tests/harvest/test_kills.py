"""kill -9 of what a harvest consists of, and strangers at its port."""

from __future__ import annotations

import json
import socket

import pytest

from benchmarks.harvest.kills import KINDS, killed
from bftrainer.harvest.agent import proof
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.harvest.harvest_events import CarrierLost, CarrierUp


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_killed_goes_on(tmp_path, kind):
    """Three kills of one kind: tasks go on from their checkpoints, nothing is left, the journal replays."""
    assert killed(tmp_path, 5, 3, work=8_000.0, kinds=[kind]) == [kind] * 3


def hello(hub, answer):
    """Connect, answer the challenge, and see what becomes of it: the events, and whether the connection stays."""
    with socket.create_connection(("127.0.0.1", hub.port)) as stranger:
        stranger.settimeout(5.0)
        hub.poll(1.0)
        challenge = stranger.makefile().readline().strip()
        stranger.sendall(answer(challenge))
        events = hub.poll(1.0)
        if not events:
            assert stranger.recv(1) == b""
    return events


def test_only_who_knows_the_key_is_a_carrier(tmp_path):
    """Strangers are sent away: without the key, with nonsense, or with more than a greeting."""
    hub = CarrierHub(tmp_path)

    def greeting(key):
        return lambda challenge: json.dumps(["hello", "n1", "c1", proof(key, challenge, "c1")]).encode() + b"\n"

    assert hello(hub, greeting("guessed")) == []
    assert hello(hub, lambda _: b'{"do": "what I say"}\n') == []
    assert hello(hub, lambda _: b"x" * 5000) == []
    assert hello(hub, greeting(hub.key)) == [CarrierUp("n1", "c1", "127.0.0.1")]
    assert hub.poll(1.0) == [CarrierLost("n1", "c1")]
    hub.close()
