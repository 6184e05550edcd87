-- The fact of one settle. Everywhere else an announcement reads its delivery itself.
insert into postrider_announcements
  (tenant, topic, fact, delivery_id, event_id, endpoint_id, attempt_count, metadata, at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
