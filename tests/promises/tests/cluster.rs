//! The harness itself: a server that is stopped at once comes back with what was committed.

use postrider_promises::cluster::{Cluster, Stop};

#[test]
fn a_server_that_was_stopped_at_once_comes_back_with_what_was_committed() {
    let cluster = Cluster::start(&[]);
    cluster.sql("create table t as select 42 as answer");
    cluster.stop(Stop::Immediate);
    cluster.start_again();
    assert_eq!(cluster.sql("select answer from t"), "42");
}
