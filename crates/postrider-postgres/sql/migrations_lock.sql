-- One process migrates at a time; the lock ends with the transaction. The number is arbitrary, and Postrider's own.
select pg_advisory_xact_lock(7238416590214001)
