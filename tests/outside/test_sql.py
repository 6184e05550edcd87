"""Events enqueued by SQL from psql, Python and JavaScript, each in the caller's own transaction, by a role that may nothing else."""

import base64
import concurrent.futures
import json
import os
import secrets
import subprocess
import sys
import uuid

import psycopg
import psycopg.conninfo
import pytest
import requests
from conftest import BINARY, HERE, eventually

sys.path.insert(0, str(HERE / "sql"))
from shop import Shop  # noqa: E402


class Database:
    """A migrated database with a table of the application's own, and a role for the application."""

    def __init__(self, server, made_as="", settings=(), is_owners_own=False):
        """`made_as` goes behind `create database`; the owner is an ordinary role, or the server's superuser."""
        self.server = server
        self.name = f"postrider_outside_{uuid.uuid4().hex}"
        self.role = f"{self.name}_app"
        self.owning_role = f"{self.name}_owner" if is_owners_own else None
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"create database {self.name} {made_as}")
            connection.execute(f"create role {self.role} login")
            for setting in settings:
                connection.execute(f"alter database {self.name} set {setting}")
            if self.owning_role:
                connection.execute(f"create role {self.owning_role} login")
                connection.execute(f"alter database {self.name} owner to {self.owning_role}")
        parts = psycopg.conninfo.conninfo_to_dict(server)
        place = f"{parts.get('host', '127.0.0.1')}:{parts.get('port', 5432)}/{self.name}"
        password = f":{parts['password']}" if parts.get("password") else ""
        self.owner = f"postgres://{self.owning_role or parts['user'] + password}@{place}"
        self.app = f"postgres://{self.role}@{place}"
        subprocess.run([BINARY, "migrate", "--database", self.owner], check=True, capture_output=True)
        self.run("create table public.orders (number integer primary key)")
        self.run(f"grant select, insert on public.orders to {self.role}")
        self.run(f"call postrider.grant_to('{self.role}')")

    def run(self, statement, *arguments):
        with psycopg.connect(self.owner) as connection:
            cursor = connection.execute(statement, arguments)
            return cursor.fetchall() if cursor.description else None

    def counts(self):
        return self.run("select (select count(*) from orders), (select count(*) from postrider.events)")[0]

    def payload(self, event):
        return bytes(self.run("select payload from postrider.events where id = %s", event)[0][0]).decode()

    def drop(self):
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"drop database {self.name} with (force)")
            connection.execute(f"drop role {self.role}")
            if self.owning_role:
                connection.execute(f"drop role {self.owning_role}")


@pytest.fixture
def database():
    made = Database(os.environ["POSTRIDER_TEST_POSTGRES"])
    yield made
    made.drop()


def psql(url, script):
    command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1", url]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)


def node(database, orders):
    lines = "".join(json.dumps(order) + "\n" for order in orders)
    environment = {**os.environ, "SHOP_DATABASE": database.app}
    done = subprocess.run(["node", "sql/shop.js"], input=lines, capture_output=True, text=True, timeout=60, cwd=HERE, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


ODD = '{"z":1,"a" : [1.0, 1e400, -0],"a":"\\u00e9\\ud83d\\ude00","s":"\\/", "\u00e9": "\U0001f600"}'


def test_psql_commits_and_rolls_back(database):
    done = psql(
        database.app,
        f"begin; insert into orders values (1); select postrider.enqueue('order.placed', $x${ODD}$x$); commit;\n"
        "begin; insert into orders values (2); select postrider.enqueue('order.placed', '{}'); rollback;\n",
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    assert database.counts() == (1, 1)
    assert database.payload(first) == ODD
    assert not database.run("select from postrider.events where id = %s", second)


def test_psql_shows_state_message_and_hint(database):
    done = psql(database.app, "begin; insert into orders values (1); select postrider.enqueue('order placed', '{}'); commit;")
    assert done.returncode == 3
    assert "ERROR:  PR001: event_type_invalid: `order placed`" in done.stderr
    assert "HINT:  use letters" in done.stderr
    assert database.counts() == (0, 0)
    done = psql(database.app, "select * from postrider.events")
    assert "ERROR:  42501: permission denied for table events" in done.stderr


def test_a_claim_race_from_psql_has_one_winner(database):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        script = "select coalesce(postrider.enqueue_once('plan/1', 'plan.done', '{}')::text, 'lost');"
        shown = [done.stdout.strip() for done in pool.map(lambda _: psql(database.app, script), range(24))]
    assert shown.count("lost") == 23, shown
    assert psql(database.app, "select postrider.reset_once('plan/1');").stdout.strip() == "2"
    assert psql(database.app, script).stdout.strip() != "lost"


def test_python_commits_and_rolls_back(database):
    shop = Shop(database.app)
    event = shop.place_order(1)
    assert json.loads(database.payload(event)) == {"order": 1}
    with pytest.raises(RuntimeError):
        shop.place_order(2, fail=True)
    assert database.counts() == (1, 1)
    assert database.payload(shop.place_order(3, payload=ODD)) == ODD, "a text is taken as it is"


def test_python_sees_state_code_and_hint(database):
    shop = Shop(database.app)
    shop.place_order(1)
    with pytest.raises(psycopg.DatabaseError) as refused:
        shop.place_order(2, payload="{'order': 2}")
    diagnosis = refused.value.diag
    assert refused.value.sqlstate == "PR012"
    assert (diagnosis.constraint_name, diagnosis.column_name) == ("payload_not_json", "payload")
    assert diagnosis.message_hint and "order" not in diagnosis.message_primary
    with pytest.raises(psycopg.DatabaseError) as refused:
        shop.place_order(2, url="http://169.254.169.254/latest")
    assert refused.value.sqlstate == "PR021"
    assert refused.value.diag.constraint_name == "destination_metadata_address"
    assert database.counts() == (1, 1), "nothing of the order was written"


def test_python_claims_once(database):
    shop = Shop(database.app)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(shop.close_plan, ["plan/1"] * 24)) == [False] * 23 + [True]


def test_javascript_commits_rolls_back_and_sees_errors(database):
    placed, declined, refused, repeated = node(
        database,
        [
            {"number": 1, "payload": ODD},
            {"number": 2, "payload": "{}", "fail": True},
            {"number": 3, "payload": "{", "url": "https://hooks.example.com/"},
            {"number": 1, "payload": "{}"},
        ],
    )
    assert database.payload(placed["event"]) == ODD
    assert database.run("select metadata from postrider.events") == [({"order": 1},)]
    assert declined["message"] == "the card was declined"
    assert (refused["code"], refused["constraint"], refused["column"]) == ("PR012", "payload_not_json", "payload")
    assert refused["hint"]
    assert repeated["code"] == "23505", "the application's own errors are its own"
    assert database.counts() == (1, 1)


def test_what_was_committed_arrives_and_what_was_rolled_back_does_not(database, serve, receive):
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    serve("--dev", "--database", database.owner, POSTRIDER_SECRET_KEY=key)
    secret = "whsec_" + base64.b64encode(b"a secret of sixteen bytes and more").decode()
    receiver = receive([sys.executable, "receiver.py"], WEBHOOK_SECRET=secret)
    shop = Shop(database.app)
    with pytest.raises(RuntimeError):
        shop.place_order(1, url=receiver.url, fail=True)
    shop.place_order(2, url=receiver.url, payload=ODD)
    got = receiver.next()
    assert (got["verified"], got["body"]) == (True, ODD), "the server's rules let the functions name its networks"
    node(database, [{"number": 3, "payload": "[3]", "url": receiver.url}])
    assert receiver.next()["body"] == "[3]"
    delivered = "select delivered from postrider.overview"
    eventually("both are delivered", lambda: database.run(delivered) == [(2,)])


SECRET_KEY = base64.b64encode(secrets.token_bytes(32)).decode()
SIGNING_SECRET = "a secret of sixteen bytes and more"
RECEIVERS_SECRET = "whsec_" + base64.b64encode(SIGNING_SECRET.encode()).decode()


def postrider(database, *arguments, **variables):
    """A command on the database, with nothing of this machine's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTRIDER_")}
    environment.update(POSTRIDER_DATABASE=database.owner, **variables)
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def dispatch(database, **variables):
    """`postrider dispatch`, until nothing is left to do."""
    settings = {"POSTRIDER_SECRET_KEY": SECRET_KEY, "POSTRIDER_SIGNING_SECRET": SIGNING_SECRET, **variables}
    return postrider(database, "dispatch", "--until-idle", **settings)


def test_a_web_application_needs_a_dispatcher_and_nothing_else(database, receive):
    dispatch(database, POSTRIDER_ALLOWED_NETWORKS="127.0.0.0/8")  # leaves its rules
    receiver = receive([sys.executable, "receiver.py"], WEBHOOK_SECRET=RECEIVERS_SECRET)
    shop = receive([sys.executable, "sql/web.py"], SHOP_DATABASE=database.app)

    def order(number, **more):
        answer = requests.post(shop.url, json={"number": number, "url": receiver.url, **more}, timeout=60)
        return answer.status_code, answer.json()

    placed = [order(1), order(2, with_a_gift=True), order(3, isolation="serializable"), order(4, isolation="repeatable read")]
    assert [status for status, _ in placed] == [201] * 4, placed
    assert order(5, declined=True)[0] == 402
    status, refused = order(6, url="http://10.0.0.1/")
    assert (status, refused["state"], refused["code"]) == (400, "PR021", "destination_private_address")
    assert refused["hint"]
    assert order(1) == (400, {"state": "23505", "code": "orders_pkey", "hint": None})
    assert order(7)[0] == 201, "a connection is as good as new after a refusal"
    assert database.counts() == (5, 5)

    dispatch(database, POSTRIDER_ALLOWED_NETWORKS="127.0.0.0/8")
    got = [receiver.next() for _ in range(5)]
    assert all(one["verified"] for one in got)
    assert sorted(one["body"] for one in got) == [f'{{"order": {number}}}' for number in (1, 2, 3, 4, 7)]
    assert database.run("select delivered from postrider.overview") == [(5,)]


def test_the_rules_are_those_of_who_dispatches_and_not_of_who_sends_once(database):
    rules = "select bare_destinations, allowed_networks::text[] from postrider.admission"
    assert database.run(rules) == [(True, [])], "the defaults, since migrating leaves nothing"
    dispatch(database, POSTRIDER_ALLOWED_NETWORKS="127.0.0.0/8")
    postrider(database, "send", "a.b", "--data", "{}", "--migrate")
    assert database.run(rules) == [(True, ["127.0.0.0/8"])]
    postrider(database, "dispatch", "--until-idle", POSTRIDER_SECRET_KEY=SECRET_KEY)
    assert database.run(rules) == [(False, [])], "nobody would sign"


def test_the_killed_winner_of_a_race_is_replaced_by_another(database):
    """Of those who wait for a claim that is never committed, one wins; and who comes from an earlier generation gets nothing."""
    claim = "select coalesce(postrider.enqueue_once('plan/1', '{}', '[]')::text, 'lost');"
    types = ["plan.failed", "plan.completed"]
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    for generation, end in [(1, "terminate"), (2, "rollback")]:
        winner = psycopg.connect(database.app)
        assert winner.execute("select postrider.enqueue_once('plan/1', 'plan.failed', '{}') is not null").fetchone()[0]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            racers = [pool.submit(psql, database.app, claim.format(types[number % 2])) for number in range(16)]
            eventually("all wait for the winner", lambda: database.run(waiting) == [(16,)])
            if end == "terminate":
                database.run("select pg_terminate_backend(%s)", winner.info.backend_pid)
            else:
                winner.rollback()
            shown = [racer.result() for racer in racers]
        assert [done.stderr for done in shown] == [""] * 16
        won = [done.stdout.strip() for done in shown if done.stdout.strip() != "lost"]
        assert len(won) == 1, shown
        seen = database.run("select generation, event_id::text, event_type = any(%s) from postrider.once('plan/1')", types)
        assert seen == [(generation, won[0], True)], "who has won can be seen"
        assert database.run("select count(*) from postrider.events") == [(generation,)], "a claim and its event, or neither"
        assert database.run("select postrider.reset_once('plan/1')") == [(generation + 1,)]
        straggler = f"select coalesce(postrider.enqueue_once('plan/1', 'plan.failed', '[]', generation => {generation})::text, 'lost');"
        assert psql(database.app, straggler).stdout.strip() == "lost"
