-- Whether the database answers, takes writes, and has the migrations that this program knows.
select coalesce($1::timestamptz, clock_timestamp()) as at,
       current_setting('transaction_read_only') = 'on' as is_read_only,
       array (select m.version from postrider.migrations m order by m.version) as versions
