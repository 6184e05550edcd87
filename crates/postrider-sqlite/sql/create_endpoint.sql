-- The settings are one text, the same in every dialect: only the engine looks inside.
insert into postrider_endpoints (id, tenant, url, event_types, status, revision, settings, created_at)
values (?1, ?2, ?3, ?4, 'active', 1, ?5, ?6)
