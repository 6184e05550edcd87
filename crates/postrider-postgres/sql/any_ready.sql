-- Whether a claim may find something; asked once when a listener registers.
select exists (select from postrider.ready)
