"""The documentation runs: every block of code on its pages, in order, as its reader would type it."""

import os
import pathlib
import sys

import psycopg
import pytest
from conftest import BINARY
from pages import ROOT, Reader, Wrong, blocks, is_shown, is_shown_within, transcript

PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]


class Postgres:
    """What a page finds at `postgres://localhost/shop`: an empty database, on the server that the tests have."""

    def __init__(self, server):
        self.server = server
        with psycopg.connect(server, autocommit=True) as connection:
            self.roles = self.all_roles(connection)
            connection.execute("create database shop")
            folder = connection.execute("show unix_socket_directories").fetchone()[0].split(",")[0].strip()
            self.user = connection.info.user
            self.socket = f"{folder}/.s.PGSQL.{connection.info.port}"

    @staticmethod
    def all_roles(connection):
        return {name for (name,) in connection.execute("select rolname from pg_roles")}

    def drop(self):
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute("drop database if exists shop with (force)")
            for role in self.all_roles(connection) - self.roles:
                connection.execute(f'drop owned by "{role}"')
                connection.execute(f'drop role "{role}"')


def environment(folder):
    """What a newcomer's shell has, and nothing of ours."""
    path = [str(pathlib.Path(BINARY).resolve().parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "NODE_PATH") if name in os.environ}
    return {**kept, "PATH": os.pathsep.join(path), "HOME": str(folder), "USER": "you", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def reading(tmp_path):
    """Reads pages, and ends with the test what they have started."""
    readers, databases = [], []

    def read(page, text=None, patience=30):
        text = (ROOT / page).read_text() if text is None else text
        variables = environment(tmp_path)
        if "localhost/shop" in text or "```sql" in text:
            databases.append(Postgres(os.environ["POSTRIDER_TEST_POSTGRES"]))
            variables["PGUSER"] = databases[-1].user
        readers.append(Reader(page, tmp_path, variables, patience))
        if databases:
            readers[-1].forward(5432, databases[-1].socket)
        readers[-1].read(blocks(page, text))
        return readers[-1]

    yield read
    for reader in readers:
        reader.close()
    for database in databases:
        database.drop()


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_tells_to_type_works_and_shows_what_it_shows(reading, page):
    reader = reading(page)
    if page in AFTERWARDS:
        AFTERWARDS[page](reader)


def after_sql(reader):
    with psycopg.connect(os.environ["POSTRIDER_TEST_POSTGRES"], dbname="shop") as connection:

        def rows(query, *arguments):
            return connection.execute(query, arguments).fetchall()

        assert rows("select type, count(*) from postrider.events group by 1 order by 1") == [("invoice.paid", 4), ("plan.done", 1)]
        keys = "select key from postrider.idempotency_keys order by 1"
        assert rows(keys) == [("in_42/paid",), ("in_42/paid",), ("in_43/paid",)]
        granted = "select rolname, has_function_privilege(rolname, 'postrider.retry(uuid)', 'execute') from pg_roles where rolname ~ '^shop_' order by 1"
        assert rows(granted) == [("shop_app", False), ("shop_operator", True), ("shop_reporter", False)]


def after_migrating(reader):
    receiver = reader.terminals["receiver"]
    expected = [f'{{"order": {number}}}' for number in range(1, 9)]

    def arrived():
        return sorted(line[line.index("{") :] for line in receiver.seen.splitlines() if "{" in line)

    with psycopg.connect(os.environ["POSTRIDER_TEST_POSTGRES"], dbname="shop", autocommit=True) as connection:

        def counts():
            return connection.execute("select pending, failed, dead, delivered from postrider.overview").fetchone()

        reader.before_long(lambda: counts() == (0, 0, 0, 6), lambda: f"{counts()} and not all delivered")
    assert arrived() == expected, "each job has arrived once, by the cron job or by Postrider"


# What must be true when a page was read to its end.
AFTERWARDS = {"docs/sql.md": after_sql, "docs/migrating.md": after_migrating}


def test_the_reader_notices_what_is_wrong_on_a_page(reading):
    """Each sample is wrong in one way, and would be right but for that."""
    samples = {
        "a command that fails": ("```sh\ntrue\nfalse\ntrue\n```", "`false` failed with 1"),
        "a pipe of which a part fails": ("```sh\nfalse | true\n```", "failed with 1"),
        "another output": ("```console\n$ echo 12 rounds\n13 rounds\n```", "something else than the page"),
        "an output that is not told": ("```console\n$ echo one; echo two\none\n```", "something else than the page"),
        "an id that nobody has seen": ("```sh\necho dlv_…\n```", "nothing was seen"),
        "a block that is not run": ("```nginx\nlisten 80;\n```", "neither run nor marked"),
        "an output of nothing": ("```text\nhello\n```", "neither run nor marked"),
        "not run without a reason": ("<!-- not run: no -->\n```sh\ntrue\n```", "needs a reason"),
        "a mark too far away": ("<!-- not run: for a good reason -->\ntext\n\n```nginx\nx\n```", "neither run nor marked"),
        "a server that ends": ("<!-- terminal: a, until: ready -->\n```sh\necho steady\n```", "should go on"),
        "a terminal that shows another thing": (
            "<!-- terminal: a, until: one -->\n```sh\necho one; exec sleep 60\n```\n<!-- shown by: a -->\n```text\ntwo\n```",
            "not shown by a within",
        ),
        "a Python script that fails": ("```python\nassert 1 == 2\n```", "failed with 1"),
        "a JavaScript that fails": ("```js\nthrow new Error()\n```", "failed with 1"),
        "what follows it fails": ("<!-- then: two() -->\n```python\ndef one(): pass\n```", "failed with 1"),
        "no configuration": ("```toml\nlaese = '30s'\n```", "failed with"),
        "not the file that it says": ("<!-- same as: README.md -->\n```text\nhello\n```", "differs from README.md"),
        "Rust that is no documentation test": ("```rust\nfn main() {}\n```", "is no documentation test"),
        "a command without an end": ("```sh\ncat <<END\n```", "not complete"),
    }
    for name, (text, complaint) in samples.items():
        with pytest.raises(Wrong) as wrong:
            reading("docs/sample.md", text + "\n", patience=2)
        assert complaint in str(wrong.value), f"{name}: {wrong.value}"


def test_what_is_shown_is_compared_but_for_ids_times_and_spaces():
    assert is_shown("delivery dlv_01m7nyvb92ep6bjw2180ksccy3  pending\n", "delivery  dlv_01m7nz4de5ewks4d5wvtebpe7p pending")
    assert is_shown("due in 8.1s, 1s ago, took 0 ms", "due in 913ms, 1m 20s ago, took 12 ms")
    assert is_shown("at 2026-11-17 23:53:04Z", "at 2027-01-01T00:00:00.123456Z")
    assert is_shown("{…\"status\":\"dead\",…}", '{"id":1,"status":"dead","n":2}')
    assert is_shown("one\n…\nfour", "one\ntwo\nthree\nfour")
    assert is_shown("…", "")
    assert not is_shown("delivery dlv_01m7nyvb92ep6bjw2180ksccy3", "delivery evt_01m7nyvb92ep6bjw2180ksccy3")
    assert not is_shown("schedule 2s,5s", "schedule 2s,6s")
    assert not is_shown("attempts 3", "attempts 4")
    assert not is_shown("one\n…\nfour", "one\ntwo")
    assert not is_shown("one", "one\ntwo")
    assert is_shown_within("two", "one\ntwo\nthree") and not is_shown_within("four", "one\ntwo\nthree")
    assert transcript("$ one \\\n  more\nshown\n$ two\n") == [["one \\\n  more", "shown\n"], ["two", ""]]
