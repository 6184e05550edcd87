-- What was claimed is the front of the lane, so it is left by one range, not row by row.
delete from postrider_ready
where lane = ?1 and position <= ?2
