//! The conformance suite, stamped out for Postgres.

mod subject;

use subject::open;

postrider_conformance::suite!(open);
