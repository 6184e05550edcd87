-- Leases that nobody has settled, renewed or taken back for a while: no dispatcher is at work.
select count(*) as count from postrider.leases l
where l.lease_until < coalesce($1::timestamptz, statement_timestamp()) - interval '1 minute'
