"""The image, Compose, systemd and Kubernetes: what can be held against the real binary and against schemas of others."""

import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tomllib

import dockerfile_parse
import kubernetes_validate
import pytest
import requests
import yaml
from conftest import BINARY, PATIENCE, Lines, eventually
from packages import (
    GIVING_BACK_S,
    PACKAGES,
    ROOT,
    SECRET_KEY,
    Database,
    Pod,
    assert_accepted,
    clean,
    known_variables,
    postrider,
    seconds,
)

WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
# The oldest one that has a sleep before the stop, and the newest one whose schemas we have.
KUBERNETES_VERSIONS = ["1.30", "1.37"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}: {done.stdout}{done.stderr}"
    return done.stdout


# --- The image --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dockerfile():
    """The instructions of the last stage, and of all of them."""
    with (ROOT / "Dockerfile").open("rb") as file:
        parser = dockerfile_parse.DockerfileParser(fileobj=file)
        every = [(one["instruction"], one["value"]) for one in parser.structure if one["instruction"] != "COMMENT"]
    start = max(index for index, (name, _) in enumerate(every) if name == "FROM")
    return every[start:], every


def values(instructions, name):
    return [value for found, value in instructions if found == name]


def image_variables(last):
    return dict(re.findall(r"(POSTRIDER_\w+)=(\S+)", " ".join(values(last, "ENV"))))


def test_a_linter_of_others_finds_nothing_in_the_dockerfile():
    run("hadolint", ROOT / "Dockerfile")


def test_the_image_is_nobodys_and_has_what_it_needs(dockerfile):
    last, _ = dockerfile
    assert values(last, "FROM") == ["scratch"]
    assert values(last, "USER") == ["65532:65532"], "Kubernetes can only see that a number is not root"
    assert values(last, "STOPSIGNAL") == ["SIGTERM"]
    folder, *more = values(last, "VOLUME")
    assert not more and values(last, "WORKDIR") == [folder]
    copies = values(last, "COPY")
    assert any("--chown=65532:65532" in copy and copy.endswith(f" {folder}") for copy in copies)
    assert any(copy.endswith(" /etc/ssl/certs/ca-certificates.crt") for copy in copies)
    variables = image_variables(last)
    assert variables["POSTRIDER_DATABASE"].startswith(f"sqlite://{folder}/")
    assert set(variables) <= set(known_variables())
    assert postrider("config", **variables).returncode == 0, "every value can hold"
    assert values(last, "EXPOSE") == [variables["POSTRIDER_LISTEN"].rpartition(":")[2]]


def test_the_commands_of_the_image_are_commands_of_the_binary(dockerfile):
    last, every = dockerfile
    entrypoint, command = (json.loads(values(last, name)[0]) for name in ("ENTRYPOINT", "CMD"))
    health = json.loads(values(last, "HEALTHCHECK")[0].partition(" CMD ")[2])
    assert any(copy.endswith(f" {entrypoint[0]}") for copy in values(last, "COPY"))
    assert health[0] == entrypoint[0]
    assert_accepted(entrypoint[1:] + command)
    assert_accepted(health[1:])
    build = " ".join(values(every, "RUN"))
    package = re.search(r"--package (\S+)", build)[1]
    binary = re.search(r"target/release/(\S+)", build)[1]
    manifest = tomllib.loads((ROOT / "crates" / package / "Cargo.toml").read_text())
    assert [one["name"] for one in manifest["bin"]] == [binary]


def test_the_image_says_which_version_it_is(dockerfile):
    last, every = dockerfile
    assert f"VERSION={WORKSPACE['package']['version']}" in values(last, "ARG")
    assert f"RUST_VERSION={WORKSPACE['package']['rust-version']}" in values(every, "ARG")
    labels = " ".join(values(last, "LABEL"))
    assert f'image.licenses="{WORKSPACE["package"]["license"]}"' in labels
    assert f'image.source="{WORKSPACE["package"]["repository"]}"' in labels


def in_context(path):
    """Whether .dockerignore lets a path through; the last rule that matches decides."""
    kept = True
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!")
        if pattern.startswith("**/"):
            matches = any(fnmatch.fnmatch(part, pattern[3:]) for part in path.parts)
        else:
            depth = pattern.count("/") + 1
            matches = len(path.parts) >= depth and fnmatch.fnmatch("/".join(path.parts[:depth]), pattern)
        kept = rule.startswith("!") if matches else kept
    return kept


def test_the_workspace_is_whole_within_the_image(dockerfile, tmp_path):
    last, every = dockerfile
    copies = [copy.split() for copy in values(every, "COPY") if "--from=" not in copy]
    assert [".", "."] in copies
    files = [ROOT / name for name in run("git", "ls-files", cwd=ROOT).splitlines()]
    context = [file.relative_to(ROOT) for file in files if file.is_file() and in_context(file.relative_to(ROOT))]
    for *sources, _ in copies:
        assert all(source == "." or any(path.as_posix().startswith(source) for path in context) for source in sources)
    for path in context:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    for path in ("target/debug/postrider", "crates/x/target/y", "apps/postrider.db", "tests/a.db-wal", ".env", ".git/config", "docs/a.md"):
        assert not in_context(pathlib.Path(path)), path
    platform = re.search(r"^host: (\S+)$", run("rustc", "-vV"), re.MULTILINE)[1]
    resolve = ["cargo", "metadata", "--locked", "--offline", f"--filter-platform={platform}", "--format-version=1"]
    metadata = json.loads(run(*resolve, cwd=tmp_path))
    there = {package["name"] for package in metadata["packages"] if package["id"] in metadata["workspace_members"]}
    here = json.loads(run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version=1", cwd=ROOT))
    assert there == {package["name"] for package in here["packages"]}
    # What is compiled in from other folders must be there as well.
    for source in tmp_path.glob("crates/*/src/**/*.rs"):
        if source.name != "tests.rs":
            for included in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text()):
                assert (source.parent / included).exists(), f"{source}: {included}"


def test_the_crate_can_be_installed():
    metadata = json.loads(run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version=1", cwd=ROOT))
    (package,) = [one for one in metadata["packages"] if one["name"] == "postrider-cli"]
    assert [target["name"] for target in package["targets"] if target["kind"] == ["bin"]] == ["postrider"]
    assert package["license"] and package["repository"] and package["description"] and package["rust_version"]
    assert "default" not in package["features"], "what tests need is not in what is installed"
    listed = run("cargo", "package", "--list", "--allow-dirty", "--offline", "--package", "postrider-cli", cwd=ROOT).split()
    assert {"Cargo.toml", "Cargo.lock", "src/main.rs"} <= set(listed)


# --- Compose ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def test_the_compose_file_is_one():
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / "compose.yaml")


def test_the_compose_file_asks_for_what_its_example_explains():
    asked = set(re.findall(r"\$\{(\w+):\?", (ROOT / "compose.yaml").read_text()))
    example = (PACKAGES / "compose/env.example").read_text()
    assert asked == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    # A variable that is empty is refused by the binary; one that is absent is not.
    for name in re.findall(r"^#(\w+)=$", example, re.MULTILINE):
        assert f"{name}:\n" in (ROOT / "compose.yaml").read_text()
    run("git", "check-ignore", "--quiet", ".env", cwd=ROOT)


def test_the_services_of_compose_fit_together(compose, dockerfile):
    ours = {name: one for name, one in compose.items() if one["image"] == "postrider"}
    assert set(ours) == {"migrate", "serve", "dispatch"}
    assert ours["dispatch"]["deploy"]["replicas"] == 2
    health = json.loads(values(dockerfile[0], "HEALTHCHECK")[0].partition(" CMD ")[2])
    for name, service in ours.items():
        assert_accepted(service["command"])
        assert set(service["environment"]) <= set(known_variables())
        drain = seconds(service["environment"]["POSTRIDER_DRAIN_TIMEOUT"])
        assert seconds(service["stop_grace_period"]) > drain + GIVING_BACK_S
        if name != "migrate":
            assert service["healthcheck"]["test"] == ["CMD", *health]
            assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert ours["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    password = "${POSTGRES_PASSWORD:?see packages/compose/env.example}"
    owner = compose["postgres"]["environment"]
    expected = f"postgres://{owner['POSTGRES_USER']}:{password}@postgres:5432/{owner['POSTGRES_DB']}"
    assert ours["serve"]["environment"]["POSTRIDER_DATABASE"] == expected


# --- systemd ----------------------------------------------------------------------------------------------------------

UNITS = ["postrider.service", "postrider-dispatch@.service"]


def settings(unit):
    """The settings of a unit, each with all of its values."""
    found = {}
    for line in (PACKAGES / "systemd" / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit_and_finds_it_closed(unit, tmp_path):
    copy = tmp_path / unit
    copy.write_text((PACKAGES / "systemd" / unit).read_text().replace("/usr/bin/postrider", BINARY))
    run("systemd-analyze", "verify", "--man=no", copy)
    # In tenths; what is left is the network, without which there is nothing to do.
    run("systemd-analyze", "security", "--offline=yes", "--threshold=15", copy)


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_starts_a_command_of_the_binary_and_lets_it_end(unit):
    service = settings(unit)
    binary, *arguments = service["ExecStart"][0].replace("%i", "8401").split()
    assert binary == "/usr/bin/postrider"
    assert_accepted(arguments)
    assert {one.partition("=")[0] for one in service["Environment"]} <= set(known_variables())
    drain = seconds(known_variables()["POSTRIDER_DRAIN_TIMEOUT"])
    assert seconds(service["TimeoutStopSec"][0]) > drain + GIVING_BACK_S
    in_example = re.findall(r"^#?(POSTRIDER_\w+)=", (PACKAGES / "systemd/postrider.env").read_text(), re.MULTILINE)
    assert in_example and set(in_example) <= set(known_variables())
    # A wrong configuration is not tried again and again; a database that is away is.
    never_again = service["RestartPreventExitStatus"][0].split()
    assert str(postrider("config", POSTRIDER_LEASE="nonsense").returncode) in never_again
    assert str(postrider("serve", "--nonsense").returncode) in never_again
    gone = postrider("dispatch", POSTRIDER_DATABASE="postgres://127.0.0.1:1/none", POSTRIDER_SECRET_KEY=SECRET_KEY)
    assert gone.returncode not in (0, 1) and str(gone.returncode) not in never_again


def test_the_user_of_the_units_can_be_made(tmp_path):
    (tmp_path / "etc").mkdir()
    run("systemd-sysusers", f"--root={tmp_path}", PACKAGES / "systemd/postrider.sysusers")
    (account,) = [line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines() if "ostrider" in line]
    assert account[0] == "postrider" and account[-1].endswith("nologin")
    assert all(settings(unit)["User"] == [account[0]] for unit in UNITS)


def system_calls(filters):
    """What a SystemCallFilter allows, by systemd's own sets."""
    sets, name = {}, None
    for line in run("systemd-analyze", "syscall-filter", "--no-pager").splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = set()
        elif name and line.startswith("    ") and not line.strip().startswith("#"):
            sets[name].add(line.strip())

    def expand(one):
        return set().union(*map(expand, sets[one])) if one.startswith("@") else {one}

    allowed = set()
    for line in filters:
        listed = set().union(*map(expand, line.removeprefix("~").split()))
        allowed = allowed - listed if line.startswith("~") else allowed | listed
    return allowed


@pytest.mark.parametrize("unit", UNITS)
def test_the_process_asks_for_nothing_that_the_unit_forbids(unit, tmp_path, receive, request):
    """Everything that a process asks of the kernel while it delivers, from its start to its end: on SQLite, and on Postgres."""
    variables = {"POSTRIDER_ALLOWED_NETWORKS": "127.0.0.0/8", "POSTRIDER_SIGNING_SECRET": "a secret of sixteen bytes and more"}
    variables["POSTRIDER_DATABASE"] = f"sqlite://{tmp_path}/postrider.db"
    if "dispatch" in unit:
        database = Database()
        request.addfinalizer(database.drop)
        variables.update(POSTRIDER_DATABASE=database.url, POSTRIDER_SECRET_KEY=SECRET_KEY)
        assert postrider("migrate", **variables).returncode == 0
    started = settings(unit)["ExecStart"][0].replace("127.0.0.1:%i", "127.0.0.1:0").split()[1:]
    log = tmp_path / "calls"
    command = ["strace", "--follow-forks", "--quiet=all", "--output", log, BINARY, *started]
    process = subprocess.Popen(
        command, env=clean(POSTRIDER_LISTEN="127.0.0.1:0", **variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    url = Lines(process.stdout).find(r"(http://127\.0\.0\.1:\d+)").group(1)
    receiver = receive([BINARY, "listen", "--port", "0"])
    sent = postrider("send", "package.sent", "--data", "{}", "--to", receiver.url, **variables)
    assert sent.returncode == 0, sent.stderr
    delivered = 'postrider_settled_total{verdict="delivered"} 1\n'
    eventually("delivered", lambda: delivered in requests.get(f"{url}/metrics", timeout=30).text)
    # The tracer passes signals on to nobody; the process is its child.
    (child,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    lines = log.read_text()
    allowed = system_calls(settings(unit)["SystemCallFilter"])
    made = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", lines, re.MULTILINE))
    assert "sendto" in made and "clone3" in made, "the trace is one"
    # SQLite gives its log to the owner of its file, but only if it is root, which the unit is not.
    made -= {"fchown"} if os.geteuid() == 0 else set()
    assert sorted(made - allowed) == []
    families = set(re.findall(r"socket\((AF_\w+)", lines))
    assert families and families <= set(settings(unit)["RestrictAddressFamilies"][0].split())
    assert not re.findall(r"^.*PROT_WRITE\|PROT_EXEC.*$", lines, re.MULTILINE), "MemoryDenyWriteExecute"


# --- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manifests():
    """The objects of the example, as kustomize makes them."""
    return list(yaml.safe_load_all(run("kustomize", "build", PACKAGES / "kubernetes/example")))


def those(manifests, kind):
    return [one for one in manifests if one["kind"] == kind]


def pods(manifests):
    return [one for one in manifests if one["kind"] in ("Deployment", "Job")]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_manifests_are_what_kubernetes_knows(manifests, version):
    assert len(manifests) == 10
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_selectors_ports_and_secrets_lead_somewhere(manifests):
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in pods(manifests)}

    def selected(selector):
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    for deployment in those(manifests, "Deployment"):
        name = deployment["metadata"]["name"]
        assert selected(deployment["spec"]["selector"]["matchLabels"]) == {name}
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        listens_on = int(container["args"][container["args"].index("--listen") + 1].rpartition(":")[2])
        assert set(ports.values()) == {listens_on}
        assert deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(listens_on)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            assert container[probe]["httpGet"]["port"] in ports
        (policy,) = those(manifests, "NetworkPolicy")
        assert selected(policy["spec"]["podSelector"]["matchLabels"]) >= {name}
        assert policy["spec"]["ingress"][0]["ports"][0]["port"] == listens_on
    (service,) = those(manifests, "Service")
    assert selected(service["spec"]["selector"]) == {"postrider-serve"}
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    budgets = {one["metadata"]["name"]: selected(one["spec"]["selector"]["matchLabels"]) for one in those(manifests, "PodDisruptionBudget")}
    assert budgets == {name: {name} for name in ("postrider-serve", "postrider-dispatch")}
    (secret,), (account,) = those(manifests, "Secret"), those(manifests, "ServiceAccount")
    assert {"POSTRIDER_DATABASE", "POSTRIDER_SECRET_KEY"} <= set(secret["stringData"]) <= set(known_variables())
    for pod in pods(manifests):
        spec = pod["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == account["metadata"]["name"]
        assert spec["containers"][0]["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
        assert {one["name"] for one in spec["containers"][0].get("env", [])} <= set(known_variables())


def test_the_pods_are_restricted(manifests):
    (namespace,) = those(manifests, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods(manifests):
        spec = pod["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert_accepted(container["args"])
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["image"] == f"registry.example.com/postrider:{WORKSPACE['package']['version']}"
        assert {"cpu", "memory"} <= set(container["resources"]["requests"]) and "memory" in container["resources"]["limits"]


def test_pods_are_given_the_time_that_they_take_to_stop(manifests):
    for deployment in those(manifests, "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        drain = seconds(next(one["value"] for one in container["env"] if one["name"] == "POSTRIDER_DRAIN_TIMEOUT"))
        before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert spec["terminationGracePeriodSeconds"] > before + drain + GIVING_BACK_S


# --- All of it together -----------------------------------------------------------------------------------------------


def commands_of(source, compose, manifests):
    """What the packages start, by their role, with the variables that stand in the file."""
    if source == "compose":
        roles = {"migrate": "migrate", "serve": "serve", "dispatch": "dispatch"}
        # What is asked for of .env, or taken over from it, is not in the file.
        return {
            role: (compose[name]["command"], {key: value for key, value in compose[name]["environment"].items() if value and "$" not in value})
            for role, name in roles.items()
        }
    containers = {one["metadata"]["name"].removeprefix("postrider-"): one["spec"]["template"]["spec"]["containers"][0] for one in pods(manifests)}
    return {
        role: (container["args"], {one["name"]: one["value"] for one in container.get("env", [])})
        for role, container in containers.items()
    }


@pytest.mark.parametrize("source", ["compose", "kubernetes"])
def test_what_is_started_answers_its_probes_and_delivers(source, compose, manifests, dockerfile):
    commands = commands_of(source, compose, manifests)
    assert set(commands) == {"migrate", "serve", "dispatch"}
    database = Database()
    secrets = {"POSTRIDER_DATABASE": database.url, "POSTRIDER_SECRET_KEY": SECRET_KEY}
    # What this test adds, since its receiver is on loopback.
    receiver = {"POSTRIDER_ALLOWED_NETWORKS": "127.0.0.0/8", "POSTRIDER_SIGNING_SECRET": "a secret of sixteen bytes and more"}
    image = image_variables(dockerfile[0])
    started = []

    def start(role):
        arguments, variables = commands[role]
        started.append(Pod(arguments, **{**image, **secrets, **receiver, **variables}))
        return started[-1]

    try:
        for role in ("serve", "dispatch"):
            early = start(role)
            assert early.process.wait(PATIENCE) == 1, "nothing starts on a database that was not migrated"
        assert start("migrate").process.wait(PATIENCE) == 0
        serve, dispatch = start("serve"), start("dispatch")
        again = start("dispatch")
        port = image["POSTRIDER_LISTEN"].rpartition(":")[2]
        health = json.loads(values(dockerfile[0], "HEALTHCHECK")[0].partition(" CMD ")[2])
        for pod in (serve, dispatch, again):
            eventually("ready", lambda pod=pod: pod.answers("/readyz", port))
            assert pod.answers("/healthz", port) and pod.answers("/metrics", port)
            done = pod.run(BINARY, *health[1:], **{**image, **secrets})
            assert done.returncode == 0, f"the health check of a process that is well: {done.stdout}{done.stderr}"
        again.stop()
        key = serve.lines.find(r"(prk_\S+)").group(1)
        heard = dispatch.start_beside("listen", "--port", "9400")
        arguments = ["send", "package.sent", "--data", "{}", "--to", "http://127.0.0.1:9400/", "--server", f"http://127.0.0.1:{port}"]
        sent = serve.run(BINARY, *arguments, POSTRIDER_API_KEY=key)
        assert sent.returncode == 0, sent.stderr
        heard.find("package.sent")
        settled = r'^postrider_settled_total\{verdict="delivered"\} 1$'
        eventually("delivered", lambda: re.search(settled, dispatch.ask("/metrics", port)[1], re.MULTILINE))
        gone = dispatch.run(BINARY, *health[1:], "http://127.0.0.1:1", **{**image, **secrets})
        assert gone.returncode == 1, f"the health check of what does not answer: {gone.stdout}{gone.stderr}"
        assert [pod.stop() for pod in (serve, dispatch, again)] == [0, 0, 0]
    finally:
        for pod in started:
            pod.stop()
        database.drop()
