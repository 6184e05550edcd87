"""A fuzzer that knows only the OpenAPI document finds no server error and no answer that the document does not describe."""

import os
import subprocess
import sys

import pytest

SECONDS = int(os.environ.get("POSTRIDER_FUZZ_SECONDS", "60"))

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "missing_required_header",
    "ignored_auth",
    "use_after_free",
    "ensure_resource_availability",
]


@pytest.mark.parametrize("seed", [20261115])
def test_the_server_answers_as_its_document_says(serve, seed):
    server = serve()
    key = server.lines.all and next(
        (word for line in server.lines.all for word in line.split() if word.startswith("prk_")), None
    )
    assert key, "the first start prints a key"
    command = [
        *[sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json"],
        *["--header", f"Authorization: Bearer {key}"],
        *["--checks", ",".join(CHECKS)],
        # A stream never ends, which is not what this tool expects of an answer.
        *["--exclude-path", "/v1/stream"],
        *["--phases", "examples,coverage,fuzzing,stateful"],
        *["--max-time", str(SECONDS), "--request-timeout", "20", "--workers", "1"],
        *["--seed", str(seed), "--continue-on-failure", "--generation-database", "none", "--no-color"],
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 10 + 300, cwd=server.folder)
    assert ran.returncode == 0, ran.stdout[-20000:] + ran.stderr[-5000:]
    assert server.call("GET", "/readyz").ok, "and the server goes on"
