-- Constraints that say the same and cost less. For a list of more than two values SQLite builds a table in memory, each time a
-- row is written: four of them for a delivery that is settled. A chain of comparisons costs next to nothing.
--
-- Nothing that is stored changes, so the tables are not written again: only their text does, which SQLite documents as the
-- way to change a CHECK.
pragma writable_schema = on;

update sqlite_schema
set sql = replace(replace(sql,
  'status in (''pending'', ''failed'', ''delivered'', ''dead'', ''cancelled'')',
  'status = ''delivered'' or status = ''pending'' or status = ''failed'' or status = ''dead'' or status = ''cancelled'''),
  '(status in (''delivered'', ''dead'', ''cancelled''))',
  '(status = ''delivered'' or status = ''dead'' or status = ''cancelled'')')
where type = 'table' and name = 'postrider_deliveries';

update sqlite_schema
set sql = replace(sql,
  'outcome in (''response'', ''timeout'', ''connect'', ''tls'', ''dns'', ''blocked'', ''protocol'')',
  'outcome = ''response'' or outcome = ''timeout'' or outcome = ''connect'' or outcome = ''tls'' or outcome = ''dns''
      or outcome = ''blocked'' or outcome = ''protocol''')
where type = 'table' and name = 'postrider_attempts';

update sqlite_schema
set sql = replace(sql,
  'fact in (
    ''delivery.delivered'', ''delivery.failed'', ''delivery.dead'', ''delivery.cancelled'', ''endpoint.disabled'')',
  'fact = ''delivery.delivered'' or fact = ''delivery.failed'' or fact = ''delivery.dead'' or fact = ''delivery.cancelled''
      or fact = ''endpoint.disabled''')
where type = 'table' and name = 'postrider_announcements';

-- A change of the ordinary kind, so that other connections know that the schema is another.
create table postrider_changed (placeholder integer) strict;
drop table postrider_changed;
pragma writable_schema = reset;
