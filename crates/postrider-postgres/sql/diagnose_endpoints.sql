-- The settings of all endpoints, some at a time.
select e.id, e.tenant, e.settings from postrider.endpoints e
where e.id > $1 and e.status <> 'removed'
order by e.id
limit $2::int
