//! The conformance suite, stamped out for SQLite.

mod subject;

use subject::open;

postrider_conformance::suite!(open);
