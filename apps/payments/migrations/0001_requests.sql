-- Payment requests as they were before webhooks.

create table payments.requests (
  id uuid primary key default gen_random_uuid(),
  -- An address takes one request, ever: the balance on it says whether that one was paid.
  address text not null unique,
  amount_wei numeric(39, 0) not null,
  status text not null default 'pending',
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  -- When a reconciler should look at it next, and which one is looking now.
  look_at timestamptz not null default clock_timestamp(),
  lease_owner text,
  lease_token uuid,
  lease_until timestamptz,
  constraint status_is_known check (status in ('pending', 'detected', 'confirmed', 'expired')),
  constraint amount_is_positive check (amount_wei > 0),
  constraint address_is_canonical check (address ~ '^0x[0-9a-f]{40}$'),
  constraint lease_has_owner_token_and_end check (num_nonnulls(lease_owner, lease_token, lease_until) in (0, 3)),
  constraint closed_requests_are_not_leased check (status in ('pending', 'detected') or lease_token is null)
);

create index open_requests on payments.requests (look_at) where status in ('pending', 'detected');
