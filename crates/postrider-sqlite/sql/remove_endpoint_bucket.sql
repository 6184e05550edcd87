-- Nothing is claimed for a removed endpoint, so nobody asks for its tokens.
delete from postrider_buckets
where endpoint_id = ?1
