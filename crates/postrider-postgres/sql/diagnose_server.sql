-- What the server is and how it is set, without a look at any table of Postrider's. Sessions of other roles tell their times
-- only to members of pg_monitor; what is hidden is not counted.
select current_setting('server_version') as version,
       current_setting('server_version_num')::int as version_number,
       current_setting('transaction_read_only') = 'on' as is_read_only,
       current_setting('fsync') = 'on' as fsyncs,
       current_setting('full_page_writes') = 'on' as writes_full_pages,
       current_setting('synchronous_commit') <> 'off' as commits_synchronously,
       current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as autovacuums,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections_allowed,
       (select count(*) from pg_catalog.pg_stat_activity a where a.backend_type = 'client backend') as connections_used,
       (select age(d.datfrozenxid)::bigint from pg_catalog.pg_database d where d.datname = current_database())
         as transaction_id_age,
       (select extract(epoch from clock_timestamp() - min(a.xact_start))::bigint from pg_catalog.pg_stat_activity a
        where (a.backend_xmin is not null or a.backend_xid is not null) and a.backend_type = 'client backend'
          and a.pid <> pg_backend_pid()) as oldest_transaction_s,
       (select extract(epoch from clock_timestamp() - min(p.prepared))::bigint from pg_catalog.pg_prepared_xacts p)
         as oldest_prepared_s,
       array (select s.slot_name::text from pg_catalog.pg_replication_slots s
              where not s.active and (s.xmin is not null or s.restart_lsn is not null) order by 1) as idle_slots,
       clock_timestamp() as at
