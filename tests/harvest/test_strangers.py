"""Who does not know a harvest's key is no carrier, and gives carriers no orders: these are run."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from bftrainer.harvest import carrier_hub
from bftrainer.harvest.agent import KEY, proof
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.harvest.harvest_events import CarrierLeaving, CarrierLost, CarrierUp
from bftrainer.harvest.local_engine import LocalCarriers, LogPool
from tests.waiting import until


@pytest.fixture
def hub(tmp_path):
    """A hub on this machine."""
    hub = CarrierHub(tmp_path)
    yield hub
    hub.close()


def greet(hub, hello):
    """What a hub answers to who says that, given its challenge, and what it makes of it."""

    def visit():
        with socket.create_connection(("127.0.0.1", hub.port)) as link, link.makefile("rw") as stream:
            said = hello(stream.readline().strip())
            print(said if isinstance(said, str) else json.dumps(said), file=stream, flush=True)
            return stream.readline().strip()

    events = []
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(visit)
        until(lambda: events.extend(hub.poll(0.01)) or answer.done())
    return answer.result(), events[:1]


def hello_to(hub):
    """What a carrier that knows the key says to a challenge."""
    return lambda asked: ["hello", "n1", "c1", proof(hub.key, "carrier", asked, "c1"), "mine"]


def test_who_knows_the_key_is_a_carrier(hub):
    """Both sides show that they know it."""
    said, events = greet(hub, hello_to(hub))
    assert said == proof(hub.key, "hub", "mine", "c1")
    assert events == [CarrierUp("n1", "c1", "127.0.0.1")]


def test_a_word_of_another_version_is_ignored(hub, monkeypatch):
    """The carrier stays, and what it says next is heard."""
    told, said = [], (["news", 1], ["leaving", True])
    monkeypatch.setattr(hub, "_tell", told.append)
    greet(hub, lambda asked: "\n".join(map(json.dumps, (hello_to(hub)(asked), *said))))
    until(lambda: CarrierLeaving("n1", "c1", is_over=True) in told)


@pytest.mark.parametrize(
    "hello",
    [
        lambda asked: ["hello", "n1", "c1", proof("guessed", "carrier", asked, "c1"), "mine"],
        lambda asked: ["hello", "n1", "c1", proof("guessed", "hub", asked, "c1"), "mine"],
        lambda _: ["hello"],
        lambda _: {"do": "start"},
        lambda _: "x" * 5000,
        lambda _: "[" * 5000,
        lambda _: '[1, 2, 3, "\\ud800", 5]',
    ],
)
def test_a_stranger_is_sent_away(hub, hello):
    """Whatever it says, nothing comes of it, and it is told nothing."""
    assert greet(hub, hello) == ("", [])


def test_strangers_that_are_silent_are_sent_away(hub, monkeypatch):
    """They have some seconds to say who they are; who knows the key is heard as ever."""
    monkeypatch.setattr(carrier_hub, "_PATIENCE_S", 1.0)
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", hub.port), timeout=60)) for _ in range(50)
        ]
        said, events = greet(hub, hello_to(hub))
        assert said
        assert events
        with ThreadPoolExecutor(1) as pool:
            heard = pool.submit(lambda: [len(link.makefile().readlines()) for link in silent])
            until(lambda: hub.poll(0.01) or heard.done())
        assert heard.result() == [1] * 50  # the challenge


def test_a_carrier_that_has_ended_when_it_is_heard_of_is_lost(tmp_path, monkeypatch):
    """It came up and died since the last poll."""
    engine = LocalCarriers(tmp_path, LogPool(None, nodes=1))
    with closing(engine):
        engine.request(("n1",))
        (carrier,) = engine._carriers
        poll = engine._hub.poll

        def late(_):
            until(lambda: any(isinstance(each, CarrierUp) for each in poll(0.01)))
            engine._carriers[carrier].process.kill()
            until(lambda: poll(0.01) or engine._lost)
            return [CarrierUp("n1", carrier)]

        monkeypatch.setattr(engine._hub, "poll", late)
        events = engine.poll(0.0)
    assert CarrierUp("n1", carrier) in events
    assert CarrierLost("n1", carrier) in events


@pytest.mark.parametrize("said", ['["exited", "a"]', "[" * 5000, '{"exited": 1', "null"])
def test_a_carrier_that_talks_nonsense_is_lost(hub, said):
    """Its connection is closed, and the harvest goes on."""
    with socket.create_connection(("127.0.0.1", hub.port)) as link, link.makefile("rw") as stream:
        hub.poll(0.1)
        hello = hello_to(hub)(stream.readline().strip())
        print(json.dumps(hello), said, sep="\n", file=stream, flush=True)
        events = []
        until(lambda: events.extend(hub.poll(0.01)) or len(events) > 1)
    assert events == [CarrierUp("n1", "c1"), CarrierLost("n1", "c1")]


def test_a_carrier_takes_no_orders_from_strangers(tmp_path):
    """Who took the controller's port when it was gone cannot have carriers run anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = ["127.0.0.1", str(server.getsockname()[1]), "n1", "c1", "60"]
        agent = subprocess.Popen(
            [sys.executable, "-m", "bftrainer.harvest.agent", *words],
            env=os.environ | {KEY: "secret"},
            stderr=subprocess.PIPE,
            text=True,
        )
        with server.accept()[0] as link:
            link.sendall(b"challenge\n")
            _, _, _, shown, challenge = json.loads(link.makefile().readline())
            order = {"do": "start", "command": ["touch", str(tmp_path / "run")], "workdir": "/", "log": "/dev/null"}
            # Best it can do: what carriers themselves show.
            link.sendall(f"{shown}\n{json.dumps(order)}\n".encode())
            said = agent.communicate(timeout=60)[1]
    assert shown == proof("secret", "carrier", "challenge", "c1")
    assert challenge not in ("", "challenge")
    assert said.strip() == f"127.0.0.1:{words[1]} is not the controller."
    assert agent.returncode == 1
    assert not (tmp_path / "run").exists()
