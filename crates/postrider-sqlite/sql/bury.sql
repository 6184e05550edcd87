-- A table of its own, so that dead letters are listed without searching the history.
insert into postrider_dead_letters (delivery_id, reason, died_at)
values (?1, ?2, ?3)
