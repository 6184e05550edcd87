"""Receivers that verify with the official Standard Webhooks libraries get what was sent, signed."""

import sys

import pytest

COMMANDS = {"python": [sys.executable, "receiver.py"], "javascript": ["node", "receiver.js"]}

# Bytes that every parser writes differently again: key order, duplicate keys, numbers, escapes, spaces.
ODD = '{"z":1,"a" : [1.0, 1e400, -0],"a":"\\u00e9\\ud83d\\ude00","s":"\\/"}'


@pytest.mark.parametrize("language", COMMANDS)
def test_an_endpoint_gets_the_exact_bytes_and_a_signature_that_verifies(serve, receive, language):
    server = serve("--dev")
    # The receiver must know the secret before the endpoint exists: it is given with the endpoint.
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    receiver = receive(COMMANDS[language], WEBHOOK_SECRET=secret)
    endpoint = {"url": receiver.url, "event_types": ["invoice.*"], "secret": secret}
    server.call("POST", "/v1/endpoints", 201, json=endpoint)
    body = '{"type":"invoice.paid","payload":' + ODD + "}"
    sent = server.call("POST", "/v1/events", 202, data=body, headers={"content-type": "application/json"}).json()
    got = receiver.next()
    assert got == {"verified": True, "body": ODD, "id": sent["id"], "attempt": "1"}


@pytest.mark.parametrize("language", COMMANDS)
def test_a_receiver_with_the_old_secret_verifies_while_a_rotation_overlaps(serve, receive, language):
    server = serve("--dev")
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    old = receive(COMMANDS[language], WEBHOOK_SECRET=secret)
    endpoint = server.call(
        "POST", "/v1/endpoints", 201, json={"url": old.url, "event_types": ["*"], "secret": secret}
    ).json()
    rotated = server.call("POST", f"/v1/endpoints/{endpoint['id']}/rotate-secret", 200).json()
    assert rotated["secret"].startswith("whsec_") and rotated["secret"] != secret
    server.call("POST", "/v1/events", 202, json={"type": "a.b", "payload": 1})
    assert old.next()["verified"], "the old secret still signs"

    new = receive(COMMANDS[language], WEBHOOK_SECRET=rotated["secret"])
    server.call("PATCH", f"/v1/endpoints/{endpoint['id']}", 200, json={"url": new.url})
    server.call("POST", "/v1/events", 202, json={"type": "a.b", "payload": 2})
    assert new.next()["verified"], "and so does the new one"

    without_overlap = server.call(
        "POST", f"/v1/endpoints/{endpoint['id']}/rotate-secret", 200, json={"overlap": "0s"}
    ).json()
    server.call("POST", "/v1/events", 202, json={"type": "a.b", "payload": 3})
    assert not new.next()["verified"], "without an overlap the replaced secret is gone"
    newest = receive(COMMANDS[language], WEBHOOK_SECRET=without_overlap["secret"])
    server.call("PATCH", f"/v1/endpoints/{endpoint['id']}", 200, json={"url": newest.url})
    server.call("POST", "/v1/events", 202, json={"type": "a.b", "payload": 4})
    assert newest.next()["verified"]
