-- Two statements in one text, sent together: the record of migrations has to exist before the first migration. The
-- schema may exist already, created by somebody with the right to do so for a role that lacks it.
create schema if not exists postrider;
create table if not exists postrider.migrations (
  version    integer     primary key,
  name       text        not null,
  sha256     bytea       not null,
  applied_at timestamptz not null default clock_timestamp()
);
