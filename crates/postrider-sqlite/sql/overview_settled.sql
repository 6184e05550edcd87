-- Counting all deliveries reads the narrow index on the tenant, not the deliveries themselves. Counters would be
-- faster here, and a row that every settle writes.
select (select count(*) from postrider_dead_letters l
        cross join postrider_deliveries d on d.id = l.delivery_id
        where ?1 is null or d.tenant = ?1) as dead,
       (select count(*) from postrider_deliveries d
        where d.status = 'cancelled' and (?1 is null or d.tenant = ?1)) as cancelled,
       (select count(*) from postrider_deliveries d
        where ?1 is null or d.tenant = ?1) as deliveries
