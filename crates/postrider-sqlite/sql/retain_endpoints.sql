-- A removed endpoint has nothing to say when nobody names it any more.
delete from postrider_endpoints
where status = 'removed' and sweep_from is null
  and not exists (select 1 from postrider_deliveries d where d.endpoint_id = postrider_endpoints.id)
