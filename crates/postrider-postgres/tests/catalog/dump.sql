-- The schema as the catalog has it, in a form that does not depend on the version of Postgres: no function bodies, no view
-- texts, and NOT NULL as a property of its column. Rights are those of others than the owner.
with tables as (
  select c.oid, c.relname, c.relkind, c.reloptions
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'postrider' and c.relkind in ('r', 'v')
), columns as (
  select a.attrelid, string_agg(concat(
           '  ', a.attname, ' ', format_type(a.atttypid, a.atttypmod),
           case when a.attcollation <> t.typcollation then ' collate "' || l.collname || '"' end,
           case when a.attstorage <> t.typstorage then
             ' storage ' || case a.attstorage when 'e' then 'external' when 'p' then 'plain' when 'm' then 'main' else 'extended' end end,
           case when a.attnotnull then ' not null' end,
           case when a.attidentity = 'a' then ' generated always as identity' end,
           case when a.attgenerated = 's' then ' generated always as (' || pg_get_expr(d.adbin, d.adrelid) || ') stored'
                when d.adbin is not null then ' default ' || pg_get_expr(d.adbin, d.adrelid) end),
           E',\n' order by a.attnum) as lines
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  left join pg_collation l on l.oid = a.attcollation
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  where a.attnum > 0 and not a.attisdropped
  group by a.attrelid
), constraints as (
  select c.conrelid, string_agg(format(E',\n  constraint %s %s', c.conname, pg_get_constraintdef(c.oid)), '' order by c.contype desc, c.conname) as lines
  from pg_constraint c
  where c.contype <> 'n'
  group by c.conrelid
), indexes as (
  select i.indrelid, string_agg(pg_get_indexdef(i.indexrelid) || E';\n', '' order by i.indexrelid::regclass::text) as lines
  from pg_index i
  where not exists (select from pg_constraint c where c.conindid = i.indexrelid)
  group by i.indrelid
)
select case t.relkind when 'v' then 'view' else 'table' end || ' postrider.' || t.relname as name,
       concat(case t.relkind when 'v' then '-- view' else 'create table' end, ' postrider.', t.relname, E' (\n',
              c.lines, k.lines, E'\n)',
              case when t.reloptions is not null then ' with (' || array_to_string(t.reloptions, ', ') || ')' end,
              E';\n', i.lines,
              (select string_agg(format(E'-- granted: %s to %s\n', lower(x.privilege_type), coalesce(r.rolname, 'public')), ''
                                 order by x.privilege_type, r.rolname)
               from pg_class g cross join aclexplode(g.relacl) x left join pg_roles r on r.oid = x.grantee
               where g.oid = t.oid and x.grantee <> g.relowner),
              E'-- comment: ' || obj_description(t.oid, 'pg_class') || E'\n') as text
from tables t
join columns c on c.attrelid = t.oid
left join constraints k on k.conrelid = t.oid
left join indexes i on i.indrelid = t.oid
union all
select case p.prokind when 'p' then 'procedure' else 'function' end || ' postrider.' || p.proname || ' ' || pg_get_function_identity_arguments(p.oid),
       concat('-- ', case p.prokind when 'p' then 'procedure' else 'function' end, ' postrider.', p.proname, '(',
              pg_get_function_arguments(p.oid), ')', ' returns ' || pg_get_function_result(p.oid),
              ', ', case p.provolatile when 'v' then 'volatile' when 's' then 'stable' else 'immutable' end, ', ', l.lanname,
              case when p.prosecdef then ', security definer' end, ', ' || array_to_string(p.proconfig, ', '), E'\n',
              (select string_agg(format(E'-- granted: execute to %s\n', coalesce(r.rolname, 'public')), '' order by r.rolname)
               from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x left join pg_roles r on r.oid = x.grantee
               where x.grantee <> p.proowner),
              E'-- comment: ' || obj_description(p.oid, 'pg_proc') || E'\n')
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
where n.nspname = 'postrider'
order by name
