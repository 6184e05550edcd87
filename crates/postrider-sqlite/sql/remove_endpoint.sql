-- The row stays for the deliveries that name it, without anything secret. From here on the sweep looks for what is left.
update postrider_endpoints
set status = 'removed', status_reason = null, event_types = '[]', settings = '{}', failing_since = null,
    revision = revision + 1, sweep_from = ?2
where id = ?1 and status <> 'removed'
returning tenant
