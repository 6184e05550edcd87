-- Asks the catalog rather than the table, so that an empty database is an answer and not an error.
select exists (
  select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'postrider' and c.relname = 'migrations')
