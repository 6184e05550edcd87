//! Cases of the dispatcher: real attempts at real receivers, on every store.
//!
//! They run on a single thread, so that what the dispatcher logs can be collected, and so that a part of it which blocks
//! is noticed.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Admission, DeliveryId, DeliveryStatus, DestinationPolicy, Dispatcher, DispatcherBuilder, Endpoint,
    EndpointSettings, NewEndpoint, NewEvent, Secret, Store, StoreError, Totals,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::receiver::{Answer, Gate, Receiver};
use crate::trial::{Trial, worker};
use crate::wait::{PATIENCE, eventually, within};

pub mod attempts;
pub mod care;
pub mod documents;
pub mod faults;
pub mod leases;
pub mod limits;
pub mod shutdown;
pub mod told;

/// What signs the attempts of these cases.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A policy under which receivers on this machine may be dialled.
pub fn loopback() -> DestinationPolicy {
    DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap()
}

/// What a subject's stores admit: the usual, and receivers on this machine.
pub fn admission() -> Admission {
    Admission { destinations: loopback(), ..Admission::default() }
}

/// A dispatcher that may dial this machine, and looks for work often.
pub fn dispatcher(store: &Arc<dyn Store>, name: &str) -> DispatcherBuilder {
    Dispatcher::builder(Arc::clone(store))
        .worker_id(worker(name))
        .destinations(loopback())
        .signing_secrets(vec![Secret::parse(SECRET).unwrap()])
        .poll_interval(Duration::from_millis(50))
        .timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .drain_timeout(PATIENCE)
}

/// An event for this receiver.
pub fn event_for(receiver: &Receiver) -> NewEvent {
    NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#).to(receiver.url())
}

/// Registers a receiver as an endpoint for everything.
pub async fn endpoint_at(trial: &Trial, receiver: &Receiver, settings: EndpointSettings) -> Endpoint {
    let url = loopback().check_url(&receiver.url()).unwrap();
    let (tenant, event_types) = ("default".to_owned(), vec!["*".parse().unwrap()]);
    trial
        .store
        .create_endpoint(NewEndpoint { tenant, url, event_types, settings }, &crate::trial::operator())
        .await
        .unwrap()
}

/// Enqueues so many events for a receiver.
pub async fn enqueue_for(trial: &Trial, receiver: &Receiver, count: usize) -> Vec<DeliveryId> {
    let enqueued = trial.enqueue_all(vec![event_for(receiver); count]).await;
    enqueued.iter().map(|enqueued| enqueued.deliveries()[0].id).collect()
}

/// Waits until the delivery is in this status.
pub async fn becomes(trial: &Trial, id: DeliveryId, status: DeliveryStatus) {
    eventually(&format!("{id} to be {status}"), PATIENCE, || async {
        (trial.delivery(id).await.status == status).then_some(())
    })
    .await;
}

/// Waits until every delivery is in this status.
pub async fn all_become(trial: &Trial, ids: &[DeliveryId], status: DeliveryStatus) {
    for id in ids {
        becomes(trial, *id, status).await;
    }
}

/// A receiver that answers so many at once, and the others when the gate is opened.
pub async fn stalling(quick: usize, gate: &Gate) -> Receiver {
    let gate = gate.clone();
    Receiver::start(move |_, number| match number {
        quick_one if quick_one <= quick => Answer::status(200),
        _ => Answer::status(200).after(&gate),
    })
    .await
}

/// A dispatcher that runs.
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Totals, StoreError>>,
}

impl Running {
    /// Starts it.
    pub fn start(builder: DispatcherBuilder) -> Self {
        let dispatcher = builder.build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(dispatcher.run(async {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }

    /// Tells it to stop, and waits until it has.
    pub async fn stop(self) -> Totals {
        let _ = self.stop.send(());
        within("the dispatcher to stop", PATIENCE, self.task).await.unwrap().unwrap()
    }

    /// Whether it has ended, by itself.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Tells it to stop if it has not ended, and gives what came of it.
    pub async fn end(self) -> Result<Totals, StoreError> {
        let _ = self.stop.send(());
        within("the dispatcher to stop", PATIENCE, self.task).await.unwrap()
    }

    /// Waits until it has ended by itself, which only a panic makes it do.
    pub async fn panics(self) {
        let ended = within("the dispatcher to end", PATIENCE, self.task).await;
        assert!(ended.unwrap_err().is_panic());
    }

    /// Ends it at once, as a crash would: nothing is settled, nothing is given back.
    pub async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Stamps out the cases of the dispatcher, as [`suite!`](crate::suite) does those of the store.
#[macro_export]
macro_rules! flights {
    ($open:ident) => {
        $crate::flight_theme!($open, attempts: [
            an_attempt_carries_the_documented_headers_and_a_signature_that_others_verify,
            the_id_and_the_attempt_are_said_in_headers_of_ones_own_too_and_these_replace_none_of_ours,
            p18_the_receiver_gets_exactly_the_bytes_that_were_accepted,
            p19_the_id_stays_the_same_while_timestamp_and_signature_are_fresh,
            p24_the_signed_timestamp_is_the_databases_whatever_the_worker_thinks,
            every_endpoint_gets_its_own_secret_headers_scheme_and_policy,
            no_header_of_an_endpoint_replaces_one_of_ours,
            every_2xx_is_a_success_and_a_redirect_is_a_failure,
            retry_after_lengthens_the_scheduled_delay,
            a_receiver_that_is_gone_disables_its_endpoint,
            nothing_goes_out_unsigned,
            a_destination_that_is_no_longer_allowed_is_blocked_at_dial,
            a_retry_goes_out_when_its_time_has_come,
            an_operators_retry_is_another_attempt_of_the_same_event,
            a_delivery_for_later_waits_until_then,
        ]);
        $crate::flight_theme!($open, care: [
            an_endpoint_that_fails_for_too_long_is_disabled,
            an_endpoint_that_cannot_be_read_is_set_aside_and_holds_up_nobody,
            a_dispatcher_without_an_endpoints_key_leaves_it_to_those_who_have_it,
            a_rotated_secret_signs_with_both_and_then_only_with_the_new_one,
            what_is_old_is_removed_beside_the_deliveries,
            what_is_left_of_a_removed_endpoint_is_cancelled_also_where_everything_is_kept,
            a_stop_does_not_wait_for_the_tidier,
            p26_without_descriptors_nothing_is_charged_and_everything_goes_on,
        ]);
        $crate::flight_theme!($open, leases: [
            p12_a_receiver_ten_times_slower_than_the_lease_gets_one_request,
            p11_a_crashed_dispatchers_deliveries_are_taken_up_by_another,
            p4_a_dispatcher_whose_lease_was_taken_changes_nothing,
            p13_an_attempt_without_end_is_renewed_only_until_its_hard_deadline,
            a_cancelled_delivery_is_lost_to_its_attempt,
            a_dispatcher_that_cannot_renew_starts_nothing_under_an_old_lease,
            claims_that_are_answered_too_late_do_not_bury_a_delivery,
        ]);
        $crate::flight_theme!($open, limits: [
            no_more_attempts_are_under_way_than_allowed,
            no_more_attempts_go_to_one_destination_than_allowed,
            an_endpoints_own_limit_is_kept,
            an_endpoints_own_limit_is_kept_by_two_dispatchers_together,
            a_slot_that_others_share_is_used_again_without_a_poll,
            an_endpoints_rate_limit_is_kept_without_polling,
            a_slot_that_comes_free_during_a_claim_is_used_without_a_poll,
            a_claim_asks_for_no_more_than_there_is_room_for,
            what_is_in_line_for_a_destination_that_stalls_is_given_back,
            p15_a_black_hole_does_not_hold_up_the_others,
            a_paused_endpoint_keeps_its_backlog_until_it_is_resumed,
            lanes_that_may_give_nothing_do_not_keep_a_dispatcher_busy,
            a_dispatcher_that_is_disabled_delivers_nothing_and_enqueueing_works,
            settings_that_cannot_hold_are_refused_by_name,
        ]);
        $crate::flight_theme!($open, shutdown: [
            p22_a_stop_waits_for_what_is_under_way_and_settles_it,
            p22_a_stop_claims_nothing_new,
            p22_what_does_not_end_in_time_is_given_back_uncharged,
            p22_a_claim_that_is_under_way_at_the_stop_is_given_back,
            p22_what_is_in_line_at_the_stop_is_given_back_and_not_sent,
            a_dispatcher_stops_also_while_the_store_is_away,
            p22_a_store_that_hangs_does_not_double_the_grace_period,
            a_dispatcher_can_be_started_again,
        ]);
        $crate::flight_theme!($open, faults: [
            p5_a_settle_whose_answer_was_lost_is_applied_once,
            p25_while_the_store_is_away_nothing_is_lost_and_then_everything_goes_on,
            a_renewal_that_fails_once_does_no_harm,
            one_result_that_cannot_be_settled_does_not_hold_up_the_others,
            a_dispatcher_does_not_go_on_without_one_of_its_parts,
        ]);
        $crate::flight_theme!($open, told: [
            announcements_reach_a_subscriber_here_and_one_elsewhere,
            a_subscriber_hears_its_topic_only,
            a_subscriber_that_does_not_listen_slows_nothing_and_is_told_what_it_missed,
            a_summary_is_logged_once_per_active_period_and_nothing_when_idle,
            p20_neither_payload_nor_secret_is_ever_logged,
        ]);
        $crate::flight_theme!($open, documents: [
            doc_000_flow_1_a_success_is_renewed_sent_and_marked_delivered,
            doc_000_flow_2_a_failure_is_renewed_sent_and_marked_for_retry,
            doc_000_flow_3_a_lost_lease_ends_renewal_and_the_attempt_goes_on,
            doc_000_interval_is_a_third_of_the_lease_at_least_100_ms_and_less_than_the_lease,
            doc_000_risk_no_renewal_outlives_its_attempt,
            doc_001_fr_001_ac1_renewal_starts_before_or_at_delivery_start,
            doc_001_fr_001_ac2_renewal_moves_lease_until_forward_for_the_owner,
            doc_001_fr_001_ac3_renewal_stops_after_the_final_update,
            doc_001_fr_002_ac2_a_lost_lease_ends_its_own_renewal_and_no_other,
            doc_001_fr_002_ac3_a_stale_final_mark_changes_nothing,
            doc_001_fr_003_ac1_the_interval_is_derived_and_positive,
            doc_001_fr_003_ac2_the_interval_is_less_than_the_lease,
            doc_001_fr_003_ac3_a_lease_without_a_valid_interval_is_refused_at_construction,
            doc_001_fr_004_ac1_no_lock_rows_are_left_behind,
            doc_001_fr_004_ac2_a_crashed_workers_rows_are_reclaimed_after_lease_until,
            doc_001_fr_004_ac3_a_crash_leaves_counters_and_status_as_they_were,
            doc_001_fr_005_ac1_a_failed_renewal_is_logged_with_delivery_worker_code_and_message,
            doc_001_fr_005_ac2_the_reasons_for_which_renewal_ends_are_told_apart,
            doc_001_nfr_003_renewal_logs_carry_neither_body_nor_secret,
            doc_003_s1_first_delivery_failure_schedules_a_30_second_retry,
            doc_003_s2_fifth_failure_marks_dead_and_broadcasts,
            doc_003_a1_delivery_succeeds,
            doc_003_f1_all_five_failures_wait_by_the_schedule_and_end_dead,
            doc_003_ac1_attempt_count_0_fails_to_1_with_30_seconds,
            doc_003_ac2_attempt_count_4_fails_to_dead_with_a_broadcast,
        ]);
    };
}

/// One theme of [`flights!`](crate::flights).
#[doc(hidden)]
#[macro_export]
macro_rules! flight_theme {
    ($open:ident, $theme:ident: [$($case:ident),+ $(,)?]) => {
        mod $theme {
            $(
                #[tokio::test]
                async fn $case() {
                    $crate::run(super::$open().await, $crate::flights::$theme::$case).await;
                }
            )+
        }
    };
}
