-- How full the places of unsettled deliveries are. More than the limit of each are not counted.
select (select count(*) from (select from postrider.ready limit $1::int) r)
     + (select count(*) from (select from postrider.scheduled limit $1::int) s)
     + (select count(*) from (select from postrider.leases limit $1::int) l) as unsettled
