-- Sizes before payloads: the length of a blob is in the row's header, so what does not fit into the page is not read.
select e.id, length(e.payload) as payload_bytes
from postrider_events e
where {conditions}
order by e.id desc
limit :limit
