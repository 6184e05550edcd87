"""A client that is generated from the OpenAPI document works without a line of its own."""

import importlib
import json
import subprocess
import sys

from conftest import BINARY


def test_a_generated_client_registers_sends_and_looks(serve, tmp_path):
    server = serve("--dev")
    document = tmp_path / "openapi.json"
    printed = subprocess.run([BINARY, "openapi"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    document.write_text(printed)
    assert json.loads(printed) == server.call("GET", "/openapi.json", 200).json()
    generated = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none"]
        + ["--output-path", tmp_path / "generated_client", "--fail-on-warning"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert generated.returncode == 0, generated.stdout + generated.stderr
    sys.path.insert(0, str(tmp_path))
    client = importlib.import_module("generated_client").Client(base_url=server.url)
    call = lambda module: importlib.import_module(f"generated_client.api.{module}")
    model = importlib.import_module("generated_client.models")

    endpoint = call("endpoints.endpoints_create").sync_detailed(
        client=client, body=model.NewEndpoint.from_dict({"url": "http://127.0.0.1:9/", "event_types": ["a.*"]})
    )
    assert endpoint.status_code == 201, endpoint.content
    sent = call("events.events_enqueue").sync_detailed(
        client=client, body=model.EventRequest.from_dict({"type": "a.b", "payload": {"n": 1}})
    )
    assert sent.status_code == 202, sent.content
    listed = call("deliveries.deliveries_list").sync_detailed(client=client)
    assert listed.status_code == 200 and [row.event_id for row in listed.parsed.data] == [sent.parsed.id]
