"""What the tests of packages have in common: the binary as it is in a container, alone with a network of its own."""

import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

import psycopg
import psycopg.conninfo
from conftest import BINARY, PATIENCE, Lines, eventually

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ROOT / "packages"
SECRET_KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
# What a dispatcher may take after its drain: twice the patience that it has with its store.
GIVING_BACK_S = 4

ASK = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


def clean(**variables):
    """The environment of a container: nothing of ours but what is given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("POSTRIDER_")}
    return {**inherited, **variables}


def postrider(*arguments, **variables):
    """One command, to its end."""
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=clean(**variables))


def known_variables():
    """Every variable that the binary reads, with the values that hold if nothing is set."""
    shown = json.loads(postrider("config", "--json").stdout)["data"]
    return {f"POSTRIDER_{one['key'].upper()}": one["value"] for one in shown}


def assert_accepted(arguments):
    """The binary knows this command and each of its flags: it gets as far as its help."""
    done = postrider(*arguments, "--help")
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    assert not done.stderr, done.stderr


def seconds(text):
    """A duration in seconds: `30s`, `1m`, `45`."""
    number, unit = re.fullmatch(r"(\d+)(s|m|h)?", str(text)).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600, None: 1}[unit]


class Database:
    """An empty database, reached by the server's Unix socket, since that is open to every network."""

    def __init__(self):
        self.server = os.environ["POSTRIDER_TEST_POSTGRES"]
        self.name = f"postrider_packages_{uuid.uuid4().hex}"
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"create database {self.name}")
            socket = connection.execute("show unix_socket_directories").fetchone()[0].split(",")[0].strip()
        parts = psycopg.conninfo.conninfo_to_dict(self.server)
        self.url = f"postgres://{parts['user']}@localhost:{parts.get('port', 5432)}/{self.name}?host={socket}"

    def drop(self):
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"drop database {self.name} with (force)")


class Pod:
    """A process of the binary with these arguments, in a network of its own, where its ports are free."""

    def __init__(self, arguments, **variables):
        self.user = [] if os.geteuid() == 0 else ["--map-root-user"]
        alone = ["unshare", "--net", *self.user, "--", "sh", "-ec", 'ip link set lo up; exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*alone, BINARY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean(**variables)
        )
        self.lines = Lines(self.process.stdout)
        self.beside = []
        network = f"/proc/{self.process.pid}/ns/net"
        outside = os.readlink("/proc/self/ns/net")
        eventually("a network of its own", lambda: self.process.poll() is not None or os.readlink(network) != outside)

    def inside(self, command):
        user = ["--user", "--preserve-credentials"] if self.user else []
        return ["nsenter", "--target", str(self.process.pid), "--net", *user, "--", *command]

    def run(self, *command, **variables):
        """A command in the pod's network, such as a health check."""
        return subprocess.run(self.inside(command), capture_output=True, text=True, timeout=PATIENCE, env=clean(**variables))

    def start_beside(self, *arguments):
        """Another process of the binary in the pod's network."""
        process = subprocess.Popen(self.inside([BINARY, *arguments]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean())
        self.beside.append(process)
        return Lines(process.stdout)

    def ask(self, path, port):
        """The status and the body of a GET, or nothing if nobody listens yet."""
        done = self.run(sys.executable, "-c", ASK, f"http://127.0.0.1:{port}{path}")
        status, _, body = done.stdout.partition(" ")
        return (int(status), body) if done.returncode == 0 else None

    def answers(self, path, port):
        answer = self.ask(path, port)
        return answer if answer and answer[0] == 200 else None

    def stop(self):
        """Ends it as an orchestrator does, and gives its exit status."""
        for process in self.beside:
            process.kill()
            process.wait(PATIENCE)
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)
