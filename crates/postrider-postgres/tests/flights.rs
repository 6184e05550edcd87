//! The dispatcher's cases, stamped out for Postgres.

mod subject;

use subject::open;

postrider_conformance::flights!(open);
