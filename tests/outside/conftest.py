"""The real binary on a temporary database, and real receivers, for tests that know nothing of its inside."""

import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time

import pytest
import requests

HERE = pathlib.Path(__file__).parent
BINARY = os.environ.get("POSTRIDER_BINARY", str(HERE / "../../target/debug/postrider"))
PATIENCE = 60


def eventually(what, look, patience=PATIENCE):
    """Looks until there is something to see. A condition with a deadline, never a sleep that hopes."""
    deadline = time.monotonic() + patience
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"{what}: not within {patience} s"
        time.sleep(0.05)


class Lines:
    """What a process prints, line by line, without ever blocking the process."""

    def __init__(self, stream):
        self.all = []
        self.new = queue.Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            self.all.append(line)
            self.new.put(line)
        self.new.put(None)

    def find(self, pattern, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self.new.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no line like {pattern!r} in:\n{''.join(self.all)}"
            found = re.search(pattern, line)
            if found:
                return found


class Server:
    """`postrider serve` on a database of its own."""

    def __init__(self, folder, *arguments, **variables):
        self.folder = folder
        self.arguments = arguments
        self.variables = variables
        self.start()

    def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTRIDER_")}
        environment.update(
            POSTRIDER_ALLOWED_NETWORKS="127.0.0.0/8",
            POSTRIDER_SIGNING_SECRET="a secret of sixteen bytes and more",
            POSTRIDER_LOG_FORMAT="json",
            **self.variables,
        )
        self.process = subprocess.Popen(
            [BINARY, "serve", "--listen", "127.0.0.1:0", *self.arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = Lines(self.process.stdout)
        self.url = self.lines.find(r"(http://127\.0\.0\.1:\d+)").group(1)
        eventually("ready", self.is_ready)

    def is_ready(self):
        try:
            return requests.get(self.url + "/readyz", timeout=5).ok
        except requests.ConnectionError:
            return False

    def call(self, method, path, expect=None, **options):
        answer = requests.request(method, self.url + path, timeout=30, **options)
        if expect is not None:
            assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        return self.process.returncode


@pytest.fixture
def serve(tmp_path):
    """Starts servers, and ends them with the test."""
    servers = []

    def start(*arguments, **variables):
        server = Server(tmp_path, *arguments, **variables)
        servers.append(server)
        return server

    yield start
    for server in servers:
        assert server.stop() in (0, -signal.SIGKILL), "".join(server.lines.all)


class Receiver:
    """A receiver in another language: a process that prints one JSON line per request."""

    def __init__(self, command, **variables):
        self.process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, cwd=HERE
        )
        self.lines = Lines(self.process.stdout)
        self.url = self.lines.find(r"(http://127\.0\.0\.1:\d+/)").group(1)

    def next(self):
        return json.loads(self.lines.find(r"^\{.*\}$").group(0))


@pytest.fixture
def receive():
    """Starts receivers, and ends them with the test."""
    receivers = []

    def start(command, **variables):
        receiver = Receiver(command, **variables)
        receivers.append(receiver)
        return receiver

    yield start
    for receiver in receivers:
        receiver.process.kill()
        receiver.process.wait(PATIENCE)
