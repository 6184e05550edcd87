"""Runs what a page of the documentation tells its reader to type, and compares what it shows with what is seen.

A page is read from top to bottom by one reader with a folder of their own, and a network of their own, so that the ports on the
page are free whatever else runs on this machine. Each block of code is run by its language:

- `sh` in the page's first terminal, and every command in it must succeed;
- `console` likewise: lines after `$ ` are typed, and what follows them must be what is printed;
- `sql` by psql in the database `shop`; `python` and `js` as a script of their own;
- `toml` is a configuration that `postrider config` accepts, `json` can be parsed;
- `rust` is a documentation test of `tests/src/lib.rs`, and only that is looked at here.

Comments before a block say what the reader cannot see, or need not be told twice:

- `<!-- terminal: NAME, until: WORDS -->` types it into another terminal, and waits for these words there. What still runs
  in that terminal is ended first, as by Ctrl-C.
- `<!-- shown by: NAME -->` says that the block is what that terminal shows, before long.
- `<!-- output -->` says that the block is what the block before printed.
- `<!-- prepared by: COMMANDS -->` is typed before the block: what the reader of that block has already.
- `<!-- then: CODE -->` is run after the block, in its language: a call of the function that it defines.
- `<!-- file: NAME -->` says that the block is a file of that name, which is written.
- `<!-- same as: PATH -->` says that the block is the text of that file of the repository, which another test runs.
- `<!-- not run: REASON -->` says why it is not.

In what is typed, `dlv_…` and the like stand for the first such id in what was printed last, as a reader would copy it. In what is
shown, ids and times stand for any others, spaces and line breaks for each other, and `…` for anything.
"""

import asyncio
import dataclasses
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
PATIENCE = 30

ID = re.compile(r"\b(?:evt|dlv|ep|key)_[0-7][0-9a-z]{25}\b|\bwhsec_[A-Za-z0-9+/]{20,}=*|\bprk_[\w-]{20,}")
PLACEHOLDER = re.compile(r"\b(evt|dlv|ep|key|whsec|prk)_…")
# Commands that change nothing, and may therefore be typed again until they show what the page shows.
LOOKS = re.compile(r"postrider (--\S+ )*(deliveries (list|show)|dead list|why|events|endpoints (list|show)|once show)\b|cat |curl -s ")

LIKES = [
    (ID, lambda found: found[0].split("_")[0] + "_ID"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00)(?!\w)"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d+\b"), "TIME"),
    (re.compile(r"\b(in|took) (\d+(\.\d+)? ?(ms|s|m|h) ?)+\b"), r"\1 DURATION"),
    (re.compile(r"(\b\d+(\.\d+)?(ms|s|m|h) ?)+ago\b"), "DURATION ago"),
    (re.compile(r"\b[\w.]+-[0-9a-f]{12}\b"), "WORKER"),
    (re.compile(r"\bpostrider \d+\.\d+\.\d+"), "postrider VERSION"),
]


class Wrong(AssertionError):
    """The page says something that is not so."""


@dataclasses.dataclass
class Block:
    """One fenced block of a page, with what the comments before it say."""

    page: str
    line: int
    language: str
    text: str
    says: dict

    def __str__(self):
        return f"{self.page}:{self.line} ({self.language})"


def blocks(page, text):
    """The fenced blocks of a page, in order."""
    found, says, lines = [], {}, text.splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("<!--"):
            comment = line
            while "-->" not in comment:
                index += 1
                comment += "\n" + lines[index]
            says.update(directives(comment))
        elif line.lstrip().startswith("```"):
            begin, fence = index, re.match(r"\s*`+", line)[0]
            index += 1
            while lines[index].rstrip() != fence:
                index += 1
            body = "".join(part.removeprefix(fence[: fence.index("`")]) + "\n" for part in lines[begin + 1 : index])
            found.append(Block(page, begin + 1, line.removeprefix(fence).strip(), body, says))
            says = {}
        elif line.strip():
            says = {}
        index += 1
    return found


def directives(comment):
    """What one comment says: `terminal: server, until: serves` is two things."""
    inside = comment.removeprefix("<!--").removesuffix("-->").strip()
    name, _, value = inside.partition(":")
    said = {name.strip(): value.strip()}
    if name == "terminal" and ", until: " in value:
        said["terminal"], said["until"] = (part.strip() for part in value.split(", until: "))
    return said


def likeness(text):
    """What two outputs have in common that differ in ids, times and spaces only."""
    for pattern, like in LIKES:
        text = pattern.sub(like, " ".join(text.split()))
    return text


def pattern_of(shown):
    """What a page shows, as an expression; `…` is anything."""
    parts = [re.escape(part) for part in likeness(shown).split("…")]
    return r"\s*" + ".*?".join(re.sub(r"^(\\ )+|(\\ )+$", r"\\s*", part) for part in parts) + r"\s*"


def is_shown(shown, seen):
    """Whether the whole output is what the page shows."""
    return re.fullmatch(pattern_of(shown), likeness(seen), re.DOTALL) is not None


def is_shown_within(shown, seen):
    """Whether what the page shows is somewhere in the output."""
    return re.search(pattern_of(shown), likeness(seen), re.DOTALL) is not None


def transcript(text):
    """The commands of a `console` block, each with what is shown after it."""
    entries = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines).removeprefix("> ")
            entries.append([command, ""])
        elif not entries:
            raise Wrong(f"a console block begins with a command, not with {line!r}")
        else:
            entries[-1][1] += line + "\n"
    return entries


def commands(text):
    """The commands of a `sh` block, one by one: an id in the output of one may be typed in the next."""
    found = [""]
    for line in text.splitlines(keepends=True):
        found[-1] += line
        is_continued = line.endswith("\\\n")
        # Complete is what bash can parse without a complaint, a here-document that does not end included.
        if not is_continued and not subprocess.run(["bash", "-n"], input=found[-1], capture_output=True, text=True).stderr:
            found.append("")
    if found.pop():
        raise Wrong("the last command is not complete")
    return [command for command in found if command.strip()]


class Network:
    """A network of its own, with nothing in it but loopback."""

    def __init__(self):
        self.user = [] if os.geteuid() == 0 else ["--map-root-user"]
        command = ["unshare", "--net", *self.user, "--", "sh", "-ec", "ip link set lo up; echo up; exec cat"]
        self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "up\n":
            raise Wrong("no network of its own for the page: `unshare --net` and `ip` of iproute2 are needed")

    def inside(self, command):
        user = ["--user", "--preserve-credentials"] if self.user else []
        return ["nsenter", "--target", str(self.holder.pid), "--net", *user, "--", *command]

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(PATIENCE)


class Terminal:
    """A shell that keeps its variables and its folder from one block to the next."""

    def __init__(self, network, folder, environment):
        self.seen = ""
        self.events = queue.Queue()
        self.folder = folder
        self.process = subprocess.Popen(
            network.inside(["bash", "--norc", "--noprofile", "-o", "pipefail"]),
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.count = 0
        self.is_busy = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            done = re.fullmatch(r"\x01(\d+) (\d+)\n", line)
            if done:
                self.events.put((int(done[1]), int(done[2])))
            else:
                self.seen += line
        self.events.put((None, None))

    def start(self, command, output=None):
        """Types a command, without waiting for it."""
        self.count += 1
        script = self.folder / f".typed-{id(self)}-{self.count}"
        script.write_text(command)
        into = f" >'{output}' 2>&1" if output else ""
        self.process.stdin.write(f". '{script}' </dev/null{into}; printf '\\001%s %s\\n' {self.count} $?\n")
        self.process.stdin.flush()
        self.is_busy = True

    def finish(self, patience=PATIENCE):
        """Waits until what was typed is done; gives its status."""
        try:
            count, status = self.events.get(timeout=patience)
        except queue.Empty:
            raise Wrong(f"not done within {patience} s; seen so far:\n{self.seen}") from None
        if count is None:
            raise Wrong(f"the shell has ended:\n{self.seen}")
        assert count == self.count
        self.is_busy = False
        return status

    def interrupt(self):
        """Ctrl-C to what runs in the foreground."""
        if not self.is_busy:
            return
        for child in children(self.process.pid):
            os.kill(child, signal.SIGINT)
        self.finish()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)


def children(parent):
    """The processes that a process has started, and that still run."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


class Reader:
    """Reads one page from top to bottom, and does what it says."""

    def __init__(self, page, folder, environment, patience=PATIENCE):
        self.page = page
        self.folder = folder
        self.environment = environment
        self.patience = patience
        self.network = Network()
        self.forwarder = None
        self.terminals = {}
        self.copied = {}
        self.output = None
        self.counts = {"run": 0, "not run": 0, "elsewhere": 0}

    def forward(self, port, path):
        """Makes a Unix socket outside reachable as a port of loopback inside."""
        command = self.network.inside([sys.executable, str(HERE / "pages.py"), str(port), path])
        self.forwarder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self.forwarder.stdout.readline() != "forwarding\n":
            raise Wrong(f"port {port} cannot be forwarded to {path}")

    def terminal(self, name=""):
        if name not in self.terminals:
            self.terminals[name] = Terminal(self.network, self.folder, self.environment)
        return self.terminals[name]

    def read(self, found):
        for block in found:
            try:
                self.do(block)
            except Wrong as wrong:
                shown = "".join(f"\n--- terminal {name or 'first'!r}:\n{one.seen[-3000:]}" for name, one in self.terminals.items())
                raise Wrong(f"{block}: {wrong}\n{block.text}{shown}") from None

    def do(self, block):
        says = block.says
        if "not run" in says:
            if len(says["not run"].split()) < 3:
                raise Wrong("a block that is not run needs a reason")
            self.counts["not run"] += 1
            self.output = None
            return
        if "same as" in says:
            if (ROOT / says["same as"]).read_text() != block.text:
                raise Wrong(f"differs from {says['same as']}")
            self.counts["elsewhere"] += 1
            if "file" in says:
                (self.folder / says["file"]).write_text(block.text)
            return
        if block.language.split(",")[0] == "rust":
            included = f'include_str!("../../{block.page}")'
            if included not in (ROOT / "tests/src/lib.rs").read_text():
                raise Wrong(f"is no documentation test: tests/src/lib.rs has no {included}")
            self.counts["elsewhere"] += 1
            return
        self.counts["run"] += 1
        for command in commands(says.get("prepared by", "")):
            status, output = self.type(self.terminal(), command + "\n")
            if status:
                raise Wrong(f"the preparation `{command.strip()}` failed with {status}:\n{output}")
        if "file" in says:
            path = self.folder / says["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif "shown by" in says:
            terminal = self.terminals.get(says["shown by"])
            if terminal is None:
                raise Wrong(f"there is no terminal {says['shown by']!r}")
            self.before_long(lambda: is_shown_within(block.text, terminal.seen), lambda: f"not shown by {says['shown by']}")
            self.copy(terminal.seen)
        elif "output" in says:
            if self.output is None or not is_shown(block.text, self.output):
                raise Wrong(f"the page shows something else than what is seen:\n{self.output}")
        else:
            run = {"sh": self.sh, "console": self.console, "sql": self.sql, "python": self.python, "js": self.js}
            run |= {"toml": self.toml, "json": self.json}
            if block.language not in run:
                raise Wrong("is neither run nor marked as not runnable, with a reason")
            run[block.language](block)

    def before_long(self, look, otherwise):
        deadline = time.monotonic() + self.patience
        while not look():
            if time.monotonic() > deadline:
                raise Wrong(f"{otherwise()} within {self.patience} s")
            time.sleep(0.1)

    def typed(self, text):
        """Text as a reader types it: with the ids that were seen instead of the placeholders."""

        def paste(found):
            if found[1] not in self.copied:
                raise Wrong(f"nothing was seen that could be typed for {found[0]}")
            return self.copied[found[1]]

        return PLACEHOLDER.sub(paste, text)

    def copy(self, seen):
        first = {}
        for found in ID.finditer(seen):
            first.setdefault(found[0].split("_")[0], found[0])
        self.copied.update(first)

    def sh(self, block):
        name = block.says.get("terminal", "")
        terminal = self.terminal(name)
        terminal.interrupt()
        *first, last = commands(block.text)
        if "until" not in block.says:
            first.append(last)
        self.output = ""
        for command in first:
            status, output = self.type(terminal, command)
            self.output += output
            if status:
                raise Wrong(f"`{command.strip()}` failed with {status}:\n{output}")
        if "until" in block.says:
            self.go_on(terminal, last, block.says["until"])

    def type(self, terminal, command):
        """Types a command, and waits until it is done."""
        path = self.folder / ".output"
        terminal.start(self.typed(command), path)
        status = terminal.finish(self.patience)
        output = path.read_text()
        self.copy(output)
        return status, output

    def go_on(self, terminal, command, until):
        """Types a command that goes on, and waits for what it says when it does."""
        before = len(terminal.seen)
        terminal.start(self.typed(command))

        def is_ready():
            if terminal.process.poll() is not None or not terminal.events.empty():
                raise Wrong(f"`{command.strip()}` ended, and should go on:\n{terminal.seen[before:]}")
            return until in terminal.seen[before:]

        self.before_long(is_ready, lambda: f"`{command.strip()}` does not show {until!r}")
        self.copy(terminal.seen[before:])

    def console(self, block):
        terminal = self.terminal()
        for command, shown in transcript(block.text):
            deadline = time.monotonic() + self.patience
            while True:
                status, self.output = self.type(terminal, command + "\n")
                if is_shown(shown, self.output):
                    break
                if not LOOKS.match(command) or time.monotonic() > deadline:
                    raise Wrong(f"`{command}` (status {status}) shows something else than the page:\n{self.output}")
                time.sleep(0.2)

    def sql(self, block):
        script = block.text + block.says.get("then", "")
        command = ["psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "postgres://localhost/shop"]
        self.script(command, script)

    def python(self, block):
        self.script([sys.executable, "-"], block.text + "\n" + block.says.get("then", ""))

    def js(self, block):
        self.script(["node", "-"], block.text + "\n" + block.says.get("then", ""))

    def script(self, command, text):
        done = subprocess.run(
            self.network.inside(command),
            input=text,
            capture_output=True,
            text=True,
            timeout=self.patience,
            cwd=self.folder,
            env=self.environment,
        )
        self.output = done.stdout
        if done.returncode:
            raise Wrong(f"failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def toml(self, block):
        tomllib.loads(block.text)
        path = self.folder / ".configuration.toml"
        path.write_text(block.text)
        self.script(["postrider", "config", "--config", str(path)], "")

    def json(self, block):
        json.loads(block.text)

    def close(self):
        for terminal in self.terminals.values():
            terminal.close()
        if self.forwarder:
            self.forwarder.kill()
            self.forwarder.wait(PATIENCE)
        self.network.close()


async def forward(port, path):
    """Hands every connection to a port of loopback on to a Unix socket."""

    async def pump(reader, writer):
        try:
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def accept(reader, writer):
        other_reader, other_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    print("forwarding", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(forward(int(sys.argv[1]), sys.argv[2]))
