select id, address, amount_wei::text, status, webhook_url, created_at, updated_at, expires_at
from payments.requests
where id = $1
