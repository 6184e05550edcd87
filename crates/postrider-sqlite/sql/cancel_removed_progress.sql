-- So that the next step goes on here. Null: there is nothing left to look at.
update postrider_endpoints
set sweep_from = ?2
where id = ?1
