"""The receivers of docs/receiving.md get what was sent, exactly, and refuse what was not.

Between Postrider and a receiver stands a relay, which keeps what came by and can lose the receiver's answer.
"""

import base64
import hashlib
import hmac
import http.server
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests
from conftest import BINARY, PATIENCE, Lines, eventually

RECEIVERS = pathlib.Path(__file__).parent.parent.parent / "docs/receivers"
LANGUAGES = ["python", "javascript", "rust", "go", "ruby", "php"]
SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

# Bytes that every parser writes differently again: key order, duplicate keys, numbers, escapes, spaces.
ODD = '{"z":1,"a" : [1.0, 1e400, -0],"a":"\\u00e9\\ud83d\\ude00","s":"\\/", "\u00e9": "\U0001f600"}'


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """How each is started. Go is compiled once."""
    folder = tmp_path_factory.mktemp("go")
    variables = {**os.environ, "GOCACHE": str(folder / "cache"), "GO111MODULE": "off", "GOFLAGS": ""}
    subprocess.run(["go", "build", "-o", folder / "receiver", RECEIVERS / "go/receiver.go"], check=True, env=variables)
    return {
        "python": [sys.executable, "receiver.py"],
        "javascript": ["node", "receiver.js"],
        "rust": [str(pathlib.Path(BINARY).resolve().parent / "docs-receiver")],
        "go": [str(folder / "receiver")],
        "ruby": ["ruby", "receiver.rb"],
        "php": ["php", "-q", "-S", "127.0.0.1:{port}", "receiver.php"],
    }


class Receiver:
    """One receiver, as a process that prints a line per event."""

    def __init__(self, language, commands, folder, secret):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        variables = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port), "SEEN": str(folder / secrets.token_hex(4))}
        command = [part.format(port=port) for part in commands[language]]
        where = RECEIVERS / language
        self.process = subprocess.Popen(command, cwd=where, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.lines = Lines(self.process.stdout)
        eventually(f"the receiver in {language} listens", lambda: self.status({}, b"") == 401)

    def status(self, headers, body):
        assert self.process.poll() is None, "".join(self.lines.all)
        try:
            return requests.post(self.url, data=body, headers=headers, timeout=10).status_code
        except requests.ConnectionError:
            return None

    def told(self):
        return [line.rstrip("\n") for line in self.lines.all if not line.startswith("listening on ")]

    def tells(self, *lines):
        eventually(f"{lines} are told", lambda: len(self.told()) >= len(lines))
        assert self.told() == list(lines)


class Relay(http.server.ThreadingHTTPServer):
    """Hands requests on to a receiver, and says 502 instead of the receiver's answer as often as it is told to."""

    def __init__(self, receiver):
        super().__init__(("127.0.0.1", 0), RelayHandler)
        self.receiver = receiver
        self.lose = 0
        self.seen = []
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def next(self, count):
        eventually(f"{count} requests have come", lambda: len(self.seen) >= count)
        assert len(self.seen) == count
        return self.seen[-1]


class RelayHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")}
        status = self.server.receiver.status(headers, body)
        is_lost, self.server.lose = self.server.lose > 0, self.server.lose - 1
        self.server.seen.append((headers, body, status))
        self.send_response(502 if is_lost else status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receive(commands, tmp_path):
    """Starts receivers with a relay before each, and ends them with the test."""
    started = []

    def start(language, secret=SECRET):
        relay = Relay(Receiver(language, commands, tmp_path, secret))
        started.append(relay)
        return relay

    yield start
    for relay in started:
        relay.shutdown()
        relay.server_close()
        relay.receiver.process.kill()
        relay.receiver.process.wait(PATIENCE)


def send(server, payload, event_type="invoice.paid"):
    body = f'{{"type":"{event_type}","payload":{payload}}}'.encode()
    return server.call("POST", "/v1/events", 202, data=body, headers={"content-type": "application/json"}).json()


def add(server, url, **settings):
    endpoint = {"url": url, "event_types": ["invoice.*"], "secret": SECRET, **settings}
    return server.call("POST", "/v1/endpoints", 201, json=endpoint).json()


def delivered(server, sent):
    """Waits until every delivery of an event is delivered."""

    def look():
        event = server.call("GET", f"/v1/events/{sent['id']}", 200).json()
        return event["deliveries"] and all(delivery["status"] == "delivered" for delivery in event["deliveries"])

    eventually("it is delivered", look)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_receiver_takes_each_event_once_in_its_exact_bytes(serve, receive, language):
    server = serve("--dev")
    relay = receive(language)
    add(server, relay.url, retry_schedule=["100ms"])
    # The receiver has taken the first, but its answer is lost on the way: it gets the same event again.
    relay.lose = 1
    first = send(server, ODD)
    delivered(server, first)
    second = send(server, "[2]", "invoice.sent")
    delivered(server, second)
    attempts = [(headers["webhook-id"], headers["postrider-attempt"], body, status) for headers, body, status in relay.seen]
    once, again = (first["id"], "1", ODD.encode(), 204), (first["id"], "2", ODD.encode(), 204)
    assert attempts == [once, again, (second["id"], "1", b"[2]", 204)]
    relay.receiver.tells(f"invoice.paid {first['id']} {ODD}", f"seen before {first['id']}", f"invoice.sent {second['id']} [2]")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_receiver_verifies_with_the_old_and_the_new_secret_while_a_rotation_overlaps(serve, receive, language):
    server = serve("--dev")
    old = receive(language)
    endpoint = add(server, old.url)
    path = f"/v1/endpoints/{endpoint['id']}"
    rotated = server.call("POST", f"{path}/rotate-secret", 200).json()
    assert rotated["secret"].startswith("whsec_") and rotated["secret"] != SECRET
    send(server, "1")
    headers, _, status = old.next(1)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert status == 204, "the old secret still signs"

    new = receive(language, rotated["secret"])
    server.call("PATCH", path, 200, json={"url": new.url})
    send(server, "2")
    assert new.next(1)[2] == 204, "and so does the new one"

    newest = server.call("POST", f"{path}/rotate-secret", 200, json={"overlap": "0s"}).json()
    send(server, "3")
    assert new.next(2)[2] == 401, "without an overlap the replaced secret is gone"
    last = receive(language, newest["secret"])
    server.call("PATCH", path, 200, json={"url": last.url})
    send(server, "4")
    assert last.next(1)[2] == 204


def sign(secret, event_id, timestamp, body):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def forgeries(headers, body, other):
    """What is not genuine, made from a genuine request and another one."""
    event_id, timestamp, signature = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    now = int(time.time())

    def changed(**changes):
        names = {f"webhook-{name}": value for name, value in changes.items()}
        return {name: value for name, value in {**headers, **names}.items() if value is not None}

    def signed_at(instant):
        return changed(timestamp=str(instant), signature=sign(SECRET, event_id, instant, body)), body

    yield "a changed body", headers, body.replace(b"1", b"2", 1)
    yield "a body with a byte more", headers, body + b"\n"
    yield "a body with a byte less", headers, body[:-1]
    yield "no body", headers, b""
    yield "the body of another", headers, other[1]
    yield "a body that is no text", headers, b"\xff\xfe" + body
    for name in ("id", "timestamp", "signature"):
        yield f"no {name}", changed(**{name: None}), body
        yield f"an empty {name}", changed(**{name: ""}), body
        yield f"the {name} of another message", changed(**{name: other[0][f"webhook-{name}"] if name != "timestamp" else str(now - 7)}), body
    wrong = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
    yield "a wrong secret", changed(signature=sign(wrong, event_id, timestamp, body)), body
    yield "the secret's text as its bytes", changed(signature=sign("whsec_" + base64.b64encode(SECRET.encode()).decode(), event_id, timestamp, body)), body
    yield "an old timestamp", *signed_at(now - 330)
    yield "a future timestamp", *signed_at(now + 330)
    yield "a timestamp in milliseconds", *signed_at(now * 1000)
    yield "the beginning of time", *signed_at(0)
    yield "before the beginning of time", *signed_at(-now)
    yield "a timestamp that is no number", changed(timestamp="yesterday", signature=sign(SECRET, event_id, "yesterday", body)), body
    yield "an old timestamp made new", changed(timestamp=str(now), signature=sign(SECRET, event_id, now - 3600, body)), body
    yield "v1a only", changed(signature=signature.replace("v1,", "v1a,")), body
    yield "an unknown version", changed(signature=signature.replace("v1,", "v2,")), body
    yield "no version", changed(signature=signature.removeprefix("v1,")), body
    yield "a version alone", changed(signature="v1,"), body
    yield "a truncated signature", changed(signature=signature[:-8]), body
    yield "no base64", changed(signature="v1,!!!"), body
    yield "hexadecimal", changed(signature="v1," + base64.b64decode(signature.removeprefix("v1,")).hex()), body
    yield "zeroes", changed(signature="v1," + base64.b64encode(bytes(32)).decode()), body
    yield "commas", changed(signature=",,, v1,,"), body
    yield "many wrong ones", changed(signature=" ".join("v1," + base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(30))), body


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_receiver_refuses_forgeries_and_takes_every_form_of_what_is_genuine(serve, receive, language):
    server = serve("--dev")
    relay = receive(language)
    add(server, relay.url)
    for payload in ('{"amount":1}', '{"amount":"another"}'):
        delivered(server, send(server, payload))
    (genuine, body, _), (other, other_body, _) = relay.seen
    receiver = relay.receiver
    told = receiver.told()
    count = 0
    for name, headers, forged in forgeries(genuine, body, (other, other_body)):
        assert receiver.status(headers, forged) == 401, name
        count += 1
    assert count > 30
    assert requests.get(receiver.url, timeout=10).status_code in (401, 404, 405, 501), "nothing is done for a GET"
    assert receiver.told() == told, "of a forgery nothing is told"

    signature = genuine["webhook-signature"]
    id_and_type = f"seen before {genuine['webhook-id']}"
    for form in (
        signature,
        "v1,AAAA " + signature,
        signature + " v1,AAAA",
        "v1a,AAAA " + signature,
        sign("whsec_" + base64.b64encode(secrets.token_bytes(24)).decode(), "evt_1", 1, b"") + " " + signature,
    ):
        assert receiver.status({**genuine, "webhook-signature": form}, body) == 204, form
    for lag in (-240, 240):
        instant = int(time.time()) + lag
        headers = {**genuine, "webhook-timestamp": str(instant)}
        headers["webhook-signature"] = sign(SECRET, genuine["webhook-id"], instant, body)
        assert receiver.status(headers, body) == 204, f"{lag} s is within what clocks may differ"
    receiver.tells(*told, *[id_and_type] * 7)
