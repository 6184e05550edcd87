-- Every request gets a destination of its own. Those that are there already have none until somebody gives them one.

alter table payments.requests add column webhook_url text;

-- Changes of status that nobody could be told of, because their request had no usable destination. They wait here, outside
-- of the outbox, so that no dispatcher ever sees them, and are enqueued once the request is given a destination.
create table payments.held_changes (
  event_id uuid primary key,
  request_id uuid not null references payments.requests,
  previous_status text not null,
  new_status text not null,
  occurred_at timestamptz not null,
  reason text not null
);

create index held_changes_of_request on payments.held_changes (request_id);
