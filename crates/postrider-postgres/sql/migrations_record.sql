-- In the transaction of the migration itself: it is recorded if and only if it was applied.
insert into postrider.migrations (version, name, sha256) values ($1, $2, $3)
