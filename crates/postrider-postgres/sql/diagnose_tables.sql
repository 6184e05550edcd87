-- How Postrider's tables are: whether somebody has switched their autovacuum off, and what vacuum has left behind.
select c.relname::text as name,
       coalesce('autovacuum_enabled=false' = any (c.reloptions) or 'autovacuum_enabled=off' = any (c.reloptions), false)
         as is_never_vacuumed,
       coalesce(s.n_live_tup, 0) as live, coalesce(s.n_dead_tup, 0) as dead,
       pg_catalog.pg_table_size(c.oid) as bytes
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join pg_catalog.pg_stat_user_tables s on s.relid = c.oid
where n.nspname = 'postrider' and c.relkind = 'r'
order by c.relname
