-- Says that this process need not be woken for now: it looks by itself.
update postrider.listeners set until = clock_timestamp() where id = $1 and channel = $2
