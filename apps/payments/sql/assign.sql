-- A destination that was accepted when the request was made is its client's, and is not replaced.
update payments.requests r
set webhook_url = $2
where r.id = $1
  and (r.webhook_url is null or exists (select from payments.held_changes h where h.request_id = r.id))
returning r.id
