-- One delivery, with its lease if it has one.
select * from postrider.delivery_lines d where d.id = $1
