-- All of them, since each is compared with what this program knows.
select version, name, sha256 from postrider.migrations order by version
