//! The dispatcher's cases, stamped out for SQLite.

mod subject;

use subject::open;

postrider_conformance::flights!(open);
