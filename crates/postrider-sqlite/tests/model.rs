//! The search for a difference between the store's contract as a plain program, and SQLite.

mod subject;

#[test]
fn p6_p7_random_operations_leave_sqlite_as_the_specification_says() {
    postrider_conformance::model::search(48, 60, subject::open);
}
