-- One statement decides and writes. Keys that were revoked count: whoever had the first key has seen it.
insert into postrider_api_keys (id, name, tenant, scope, digest, created_at)
select ?1, ?2, ?3, ?4, ?5, ?6
where not ?7 or not exists (select 1 from postrider_api_keys)
