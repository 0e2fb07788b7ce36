"""A memcached client for the tests: takes a request a line as JSON, answers with a line of JSON.

Usage: peer.py HOST PORT. Keys are text, values are hexadecimal digits. A lost connection is made
again until the server is back.
"""

import json
import re
import sys
import time

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheUnexpectedCloseError

LIMIT_S = 120


class WithFlags:
    """Values as they are, with their flags."""

    def serialize(self, key, value):
        return value, 0

    def deserialize(self, key, value, flags):
        return value, flags


def again(client, operation):
    """Carries out an operation, over a new connection where the old one is lost."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        try:
            return operation()
        except (OSError, MemcacheUnexpectedCloseError):
            client.close()
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def say(answer):
    print(json.dumps(answer), flush=True)


def found(item):
    if item is None:
        return {"found": False}
    value, flags = item
    return {"found": True, "hex": value.hex(), "flags": flags}


def stream(client, request):
    """Sets for ever, and says after each what is stored. Somebody will kill this process."""
    counter = 0
    while True:
        for key, text in request["values"]:
            value = bytes.fromhex(text)
            assert again(client, lambda: client.set(key.encode(), value, noreply=False))
            counter += 1
            say({"stored": counter})


def tour(client):
    """Every command of the client, and what must come of it."""
    client.flush_all(noreply=False)
    binary = bytes(range(256)) * 400
    for key in [b"k", b"\xff\xfe\x80", "k\u00e4se".encode(), b"k" * 250]:
        assert client.get(key) is None
        assert client.set(key, b"one", flags=0xFFFFFFFF, noreply=False)
        assert client.get(key) == (b"one", 0xFFFFFFFF)
        assert not client.add(key, b"two", noreply=False)
        assert client.replace(key, binary, noreply=False)
        assert client.append(key, b"end", noreply=False)
        assert client.prepend(key, b"start", noreply=False)
        assert client.get(key)[0] == b"start" + binary + b"end"
        (_, _), token = client.gets(key)
        assert client.cas(key, b"three", token, noreply=False)
        assert client.cas(key, b"four", token, noreply=False) is False
        assert client.cas(key + b"0" if len(key) < 250 else b"0", b"five", token, noreply=False) is None
        assert client.touch(key, 100, noreply=False)
        assert client.get(key)[0] == b"three"
        assert client.delete(key, noreply=False)
        assert not client.delete(key, noreply=False)
        assert not client.touch(key, 100, noreply=False)
        assert client.incr(key, 1, noreply=False) is None
        assert client.set(key, b"18446744073709551615", noreply=False)
        assert client.incr(key, 2, noreply=False) == 1
        assert client.decr(key, 5, noreply=False) == 0
    many = {b"m%d" % number: b"v%d" % number for number in range(300)}
    assert client.set_many(many, noreply=False) == []
    got = client.get_many([*many, b"none"])
    assert {key: value for key, (value, _) in got.items()} == many
    assert len(client.gets_many(list(many))) == 300
    assert client.delete_many(list(many), noreply=False)
    assert client.get_many(list(many)) == {}
    client.set(b"quiet", b"1")
    client.incr(b"quiet", 5, noreply=True)
    assert client.get(b"quiet")[0] == b"6"
    assert re.fullmatch(rb"\d+\.\d+\.\d+", client.version())
    assert client.stats()[b"threads"] == 2
    assert client.flush_all(noreply=False)
    assert client.get(b"quiet") is None
    client.quit()


def main():
    client = Client(
        (sys.argv[1], int(sys.argv[2])),
        connect_timeout=LIMIT_S,
        timeout=LIMIT_S,
        no_delay=True,
        serde=WithFlags(),
    )
    for line in sys.stdin:
        request = json.loads(line)
        kind = request["op"]
        if kind == "set":
            key, value, flags = request["key"].encode(), bytes.fromhex(request["hex"]), request["flags"]
            say({"stored": again(client, lambda: client.set(key, value, flags=flags, noreply=False))})
        elif kind == "get":
            key = request["key"].encode()
            say(found(again(client, lambda: client.get(key))))
        elif kind == "get_many":
            keys = [key.encode() for key in request["keys"]]
            items = again(client, lambda: client.get_many(keys))
            say([found(items.get(key)) for key in keys])
        elif kind == "stream":
            stream(client, request)
        elif kind == "tour":
            tour(client)
            say({"done": True})
        else:
            raise ValueError(f"{kind} is no request")


main()
