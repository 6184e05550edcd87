-- A cancelled delivery is not there; then this deletes nothing.
delete from postrider_dead_letters
where delivery_id = ?1
