"""The move of docs/migrating.md, step by step as it stands there, while applications insert jobs and several cron jobs send them."""

import collections
import http.server
import os
import subprocess
import sys
import threading
import time

import psycopg
import psycopg.conninfo
import pytest
from conftest import BINARY, PATIENCE, Lines, eventually
from pages import ROOT, blocks

BEFORE, DURING = 300, 300


class Counter(http.server.ThreadingHTTPServer):
    """A receiver that counts what arrives, by its body, and by who sent it."""

    daemon_threads = True
    # As many as a dispatcher may open at once; an answer that is lost would be an attempt more.
    request_queue_size = 512

    def __init__(self):
        super().__init__(("127.0.0.1", 0), CounterHandler)
        self.lock = threading.Lock()
        self.arrived = collections.Counter()
        self.senders = collections.Counter()
        self.under_way = 0
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class CounterHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        with self.server.lock:
            self.server.arrived[body] += 1
            sender = "postrider" if "webhook-id" in self.headers else "cron"
            self.server.senders[sender] += 1
            self.server.under_way += sender == "cron"
        if sender == "cron":
            # Meanwhile the cron job holds the lock of its row.
            time.sleep(0.5)
            with self.server.lock:
                self.server.under_way -= 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def block(begin):
    """The one block of the page that begins so."""
    page = "docs/migrating.md"
    found = [block.text for block in blocks(page, (ROOT / page).read_text()) if block.text.startswith(begin)]
    assert found, f"docs/migrating.md has no block that begins with {begin!r}"
    return found[0]


@pytest.fixture
def shop():
    """An empty database, dropped afterwards."""
    server = os.environ["POSTRIDER_TEST_POSTGRES"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database shop")
    yield psycopg.conninfo.make_conninfo(server, dbname="shop")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("drop database shop with (force)")


def test_nothing_is_lost_or_doubled_while_a_jobs_table_is_moved(shop, tmp_path):
    receiver = Counter()
    worker = tmp_path / "worker.py"
    worker.write_text(block("import os"))
    connection = psycopg.connect(shop, autocommit=True)

    def insert(first, count, on):
        job = "insert into webhook_jobs (url, event_type, payload) values (%s, 'order.paid', jsonb_build_object('order', %s::int))"
        for number in range(first, first + count):
            on.execute(job, [receiver.url, number])

    url = os.environ["POSTRIDER_TEST_POSTGRES"].rpartition("/")[0] + "/shop"
    environment = {"PATH": os.environ["PATH"], "POSTRIDER_DATABASE": url, "POSTRIDER_ALLOWED_NETWORKS": "127.0.0.0/8"}
    for name, command in {"SECRET_KEY": ["config", "--new-secret-key"], "SIGNING_SECRET": ["sign", "--new-secret"]}.items():
        made = subprocess.run([BINARY, *command], check=True, capture_output=True, text=True)
        environment[f"POSTRIDER_{name}"] = made.stdout.strip()

    connection.execute(block("create table webhook_jobs"))
    insert(0, BEFORE, connection)

    is_over = threading.Event()
    ended = []

    def cron():
        while not is_over.is_set():
            done = subprocess.run([sys.executable, worker], env={**environment, "DATABASE_URL": shop}, capture_output=True, text=True)
            ended.append(done.stderr)

    def application():
        with psycopg.connect(shop, autocommit=True) as own:
            insert(BEFORE, DURING, own)

    crons = [threading.Thread(target=cron) for _ in range(2)]
    for thread in crons:
        thread.start()
    dispatcher = None
    try:
        eventually("the cron jobs send", lambda: receiver.senders["cron"] >= 4)
        subprocess.run([BINARY, "migrate"], check=True, env=environment, cwd=tmp_path, capture_output=True)
        dispatcher = subprocess.Popen([BINARY, "dispatch"], env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        # `enqueue` refuses loopback until the dispatcher has left its rules in the database.
        Lines(dispatcher.stderr).find("dispatching from")
        inserting = threading.Thread(target=application)
        inserting.start()
        connection.execute(block("begin;\nset local lock_timeout"))
        connection.execute(block("create procedure").removesuffix("call move_webhook_jobs();\n"))
        eventually("both cron jobs are sending", lambda: receiver.under_way == 2)
        connection.execute("call move_webhook_jobs(7)")
        inserting.join(PATIENCE)
        before = len(ended)
        eventually("the cron jobs have had their turns", lambda: len(ended) >= before + 4)
        is_over.set()
        for thread in crons:
            thread.join(PATIENCE)
        connection.execute("call move_webhook_jobs()")
        assert not connection.execute("select from webhook_jobs where status not in ('done', 'moved')").fetchall()
        settled = "select pending + failed = 0 from postrider.overview"
        eventually("all is delivered", lambda: connection.execute(settled).fetchone()[0])
    finally:
        is_over.set()
        for thread in crons:
            thread.join(PATIENCE)
        if dispatcher:
            dispatcher.terminate()
            dispatcher.wait(PATIENCE)
        connection.close()
        receiver.shutdown()
        receiver.server_close()
    assert set(ended) == {""}, "the cron jobs notice nothing"
    expected = {f'{{"order": {number}}}': 1 for number in range(BEFORE + DURING)}
    assert receiver.arrived == expected, "each job has arrived once"
    assert receiver.senders["cron"] >= 4 and receiver.senders["postrider"] > DURING / 2, receiver.senders
