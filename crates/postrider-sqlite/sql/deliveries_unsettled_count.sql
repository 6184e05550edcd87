-- How full the places of unsettled deliveries are. More than the limit of each are not counted.
select (select count(*) from (select 1 from postrider_ready limit ?1))
     + (select count(*) from (select 1 from postrider_scheduled limit ?1))
     + (select count(*) from (select 1 from postrider_leases limit ?1)) as count
