-- Plans, their tasks and the runs of those. What is told of them is in Postrider's own schema, in the same database.
create schema if not exists rollouts;

create table if not exists rollouts.plans (
  id bigint generated always as identity primary key,
  title text not null,
  webhook_url text not null,
  -- Of the subject `plan/<id>`: in each generation, one notification at most.
  generation bigint not null default 1
);

create table if not exists rollouts.tasks (
  plan_id bigint not null references rollouts.plans,
  name text not null,
  position bigint not null,
  script jsonb not null,
  skipped boolean not null default false,
  primary key (plan_id, name)
);

create table if not exists rollouts.task_runs (
  id bigint generated always as identity primary key,
  plan_id bigint not null,
  task text not null,
  -- The first run of a task is attempt 0.
  attempt integer not null,
  status text not null default 'pending',
  owner text,
  token uuid,
  lease_until timestamptz,
  foreign key (plan_id, task) references rollouts.tasks,
  unique (plan_id, task, attempt),
  constraint status_is_known check (status in ('pending', 'running', 'done', 'failed', 'cancelled')),
  constraint running_means_leased
    check ((status = 'running') = (token is not null) and (status = 'running') = (lease_until is not null))
);

create unique index if not exists one_open_run_per_task on rollouts.task_runs (plan_id, task)
  where status in ('pending', 'running');
create index if not exists open_runs on rollouts.task_runs (id) where status in ('pending', 'running');
