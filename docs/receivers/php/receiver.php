<?php
// php -S 127.0.0.1:9400 receiver.php

const TOLERANCE = 5 * 60;

/** Whether the body and the headers are what the holder of the key has signed, not long ago. */
function is_verified(string $key, array $server, string $body, int $now): bool
{
    $id = $server['HTTP_WEBHOOK_ID'] ?? '';
    $timestamp = $server['HTTP_WEBHOOK_TIMESTAMP'] ?? '';
    if ($id === '' || preg_match('/^\d{1,12}$/D', $timestamp) !== 1) {
        return false;
    }
    if (abs($now - (int) $timestamp) > TOLERANCE) {
        return false;
    }
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
    // Several while a secret rotates, and possibly of other versions: one that fits is enough.
    foreach (explode(' ', $server['HTTP_WEBHOOK_SIGNATURE'] ?? '') as $signature) {
        if (hash_equals($expected, $signature)) {
            return true;
        }
    }
    return false;
}

$key = base64_decode(preg_replace('/^whsec_/', '', getenv('WEBHOOK_SECRET') ?: ''), true);
if ($key === false || $key === '') {
    http_response_code(500);
    error_log('WEBHOOK_SECRET is not a secret like whsec_…');
    return;
}

// The bytes as they came: JSON that was read and written again is other bytes.
$body = file_get_contents('php://input', length: 1_000_001);
if (strlen($body) > 1_000_000) {
    http_response_code(413);
    return;
}
if ($_SERVER['REQUEST_METHOD'] !== 'POST' || !is_verified($key, $_SERVER, $body, time())) {
    http_response_code(401);
    return;
}

// Each request is a process of its own, as far as PHP is concerned: what was seen is a file that can be made once.
$id = $_SERVER['HTTP_WEBHOOK_ID'];
$folder = getenv('SEEN') ?: sys_get_temp_dir() . '/webhooks-seen';
if (!is_dir($folder)) {
    mkdir($folder, 0700, true);
}
$is_new = @fopen($folder . '/' . hash('sha256', $id), 'x') !== false;
$type = $_SERVER['HTTP_POSTRIDER_EVENT_TYPE'] ?? '';
file_put_contents('php://stdout', $is_new ? "$type $id $body\n" : "seen before $id\n");
http_response_code(204);
