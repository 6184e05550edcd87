//! The macro that makes tests of the cases.

/// Stamps out the whole suite: one module per theme, one test per case. `$open` is an async function of the calling
/// module that makes a fresh [`Subject`](crate::Subject).
#[macro_export]
macro_rules! suite {
    ($open:ident) => {
        $crate::theme!($open, announcements: [
            every_fact_is_announced_in_order_with_topic_and_metadata,
            an_announcement_names_its_endpoint,
            a_follower_goes_on_after_its_place,
            the_end_is_after_everything_that_is_recorded,
            a_follower_misses_nothing_while_eight_tasks_settle,
            a_wait_for_something_ready_ends_with_an_enqueue,
            a_wait_for_something_ready_ends_with_an_enqueue_elsewhere,
            a_wait_for_something_ready_ends_with_a_commit_of_the_callers,
            a_wait_for_something_ready_ends_with_an_operators_retry_elsewhere,
            a_wait_for_something_ready_ends_at_its_timeout,
            a_wait_for_announcements_ends_with_a_settle,
            a_wait_for_announcements_ends_with_a_settle_elsewhere,
        ]);
        $crate::theme!($open, browse: [
            every_filter_narrows_the_listing_and_the_count,
            pages_are_not_shifted_by_what_is_written_meanwhile,
            a_page_holds_up_to_its_limit,
            a_page_that_ends_exactly_at_the_end_is_the_last_with_rows,
            a_page_looks_at_no_more_than_it_may_and_says_where_to_go_on,
            p21_no_cursor_tells_of_what_is_somebody_elses,
            an_event_is_shown_with_payload_and_deliveries,
            what_is_not_there_is_none,
            the_overview_counts_every_status_and_place,
            the_overview_tells_how_long_the_oldest_has_been_due,
            p21_the_overview_of_a_tenant_counts_only_its_own,
        ]);
        $crate::theme!($open, care: [
            an_endpoint_shows_since_when_it_fails,
            an_endpoint_that_fails_for_long_enough_is_disabled_and_told_once,
            what_was_in_flight_when_it_was_disabled_does_not_tell_again,
            a_success_in_between_gives_it_its_time_anew,
            without_a_time_nothing_is_disabled,
            a_stale_settle_neither_starts_nor_ends_a_row_of_failures,
            a_resumed_endpoint_has_its_whole_time_again,
        ]);
        $crate::theme!($open, changes: [
            endpoints_are_listed_newest_first_by_tenant_and_status,
            a_replaced_endpoint_is_shown_everywhere_as_it_was_written,
            a_replacement_of_an_older_revision_changes_nothing,
            of_two_replacements_at_once_one_takes_effect,
            a_replacement_keeps_the_status_and_what_attempts_have_shown,
            every_change_of_an_endpoint_is_audited_with_its_tenant,
            p20_secrets_are_kept_encrypted,
            an_endpoint_that_cannot_be_read_says_so_and_holds_up_nobody,
            an_endpoint_that_cannot_be_read_is_mended_by_a_replacement,
        ]);
        $crate::theme!($open, claim: [
            a_claim_grants_a_lease_that_the_delivery_shows,
            a_claim_of_nothing_is_empty,
            p15_a_lane_with_a_thousand_waiting_gets_no_more_than_its_share,
            with_one_slot_per_lane_every_lane_gets_one,
            lanes_take_turns_when_there_are_more_lanes_than_slots,
            the_cursor_comes_to_every_one_of_many_lanes,
            p15_what_is_left_over_does_not_go_to_the_lane_that_has_the_most_in_flight,
            no_lane_gets_more_than_its_limit,
            a_lane_may_have_more_than_its_limit_if_the_caller_looks_ahead,
            an_endpoint_with_a_limit_of_its_own_has_nothing_ahead,
            what_is_in_flight_counts_against_a_lanes_limit,
            a_lane_that_is_over_its_limit_gets_nothing,
            p15_lanes_without_free_slots_do_not_hold_up_the_others,
            an_endpoints_own_limit_is_kept_if_it_is_lower,
            a_claim_never_exceeds_its_limit,
            within_a_lane_the_one_that_was_due_first_is_claimed_first,
            a_retry_queues_behind_what_was_due_before_it,
            p3_concurrent_claimants_never_share_and_leave_nothing,
            every_claim_of_a_delivery_has_a_token_of_its_own,
            an_earlier_processs_deliveries_are_claimable_after_a_start,
        ]);
        $crate::theme!($open, documents: [
            doc_001_fr_002_ac1_a_renewal_matches_id_owner_and_an_unsettled_status,
            doc_001_fr_002_ac2_a_refused_renewal_leaves_unrelated_rows_alone,
            doc_001_fr_002_ac3_every_final_mark_checks_the_owner,
            doc_001_fr_004_ac1_no_lock_rows_are_left_behind,
            doc_001_fr_004_ac2_an_expired_lease_is_reclaimable_and_a_live_one_is_not,
            doc_001_fr_004_ac3_a_crash_changes_no_counter_and_no_status,
            doc_003_s1_the_first_failure_schedules_a_retry_in_30_seconds,
            doc_003_s2_the_fifth_failure_is_dead_and_broadcast,
            doc_003_a1_a_success_is_delivered_and_broadcast,
            doc_003_f1_a_dead_letter_is_broadcast_with_its_ids_and_waits_for_an_operator,
            doc_003_criterion_1_a_failure_with_attempt_count_0_is_due_again_after_30_seconds,
            doc_003_criterion_2_a_failure_with_attempt_count_4_is_dead_and_broadcast_elsewhere_too,
        ]);
        $crate::theme!($open, each: [
            no_event_is_held_up_by_its_neighbours,
            a_key_that_repeats_in_the_list_is_a_duplicate_or_a_conflict_there,
            a_subject_that_repeats_in_the_list_is_claimed_by_the_first,
            a_list_of_refused_events_writes_nothing,
            events_fan_out_as_they_do_alone,
            two_hundred_lists_at_once_with_shared_keys_all_succeed,
        ]);
        $crate::theme!($open, endpoints: [
            an_endpoint_is_shown_as_it_was_registered,
            an_endpoint_that_is_not_there_is_none,
            an_event_fans_out_to_the_endpoints_whose_pattern_matches,
            a_pattern_has_no_other_wildcards,
            two_patterns_of_one_endpoint_that_match_make_one_delivery,
            p21_an_event_does_not_reach_another_tenants_endpoints,
            an_event_that_nobody_wants_is_kept_without_deliveries,
            an_event_with_its_own_destination_does_not_fan_out,
            a_disabled_endpoint_gets_no_new_events,
            a_paused_endpoints_deliveries_wait_until_it_is_resumed,
            many_paused_lanes_do_not_hide_the_one_that_is_not,
            what_operators_do_to_endpoints_is_audited,
            a_claim_carries_the_endpoint_as_it_is_now,
            a_410_disables_the_endpoint_once_and_holds_its_backlog,
            a_second_410_of_a_disabled_endpoint_is_not_announced_again,
            a_410_disables_an_endpoint_that_was_paused_meanwhile,
            a_410_of_a_stale_lease_disables_nothing,
            a_410_of_a_bare_destination_is_an_ordinary_failure,
        ]);
        $crate::theme!($open, enqueue: [
            an_enqueued_event_has_one_pending_delivery_that_is_ready,
            p2_an_event_whose_transaction_committed_exists,
            p2_an_event_whose_transaction_rolled_back_does_not_exist,
            an_event_is_kept_under_the_id_that_it_brings,
            an_id_that_is_taken_is_refused_and_nothing_is_written,
            an_id_that_is_taken_does_not_hurt_the_others_of_a_list,
            an_id_that_does_not_sort_by_time_is_refused,
            a_batch_is_enqueued_in_order_with_one_result_each,
            a_batch_with_one_refused_event_writes_nothing,
            a_batch_with_one_conflict_writes_nothing,
            a_delivery_for_later_is_scheduled_and_not_claimed_before,
            a_delivery_for_a_time_that_has_passed_is_ready_at_once,
            p18_the_payload_is_kept_byte_for_byte,
            a_payload_at_the_limit_is_kept_whole_and_one_byte_more_is_refused,
            ids_are_stable_and_sort_in_the_order_of_enqueueing,
            metadata_comes_back_as_it_was,
            what_was_enqueued_is_what_a_claim_and_the_event_show,
        ]);
        $crate::theme!($open, idempotency: [
            the_same_key_and_content_is_a_duplicate_of_the_first,
            the_same_key_with_other_content_is_a_conflict,
            a_key_belongs_to_its_tenant,
            a_key_that_repeats_within_a_batch_is_a_duplicate_there,
            a_key_that_repeats_within_a_batch_with_other_content_writes_nothing,
            a_duplicate_inside_a_callers_transaction_names_the_first,
            sixteen_racers_with_one_key_make_exactly_one_event,
            racers_with_several_keys_in_opposite_orders_all_succeed,
        ]);
        $crate::theme!($open, keys: [
            a_key_is_found_by_its_digest_as_it_was_made,
            a_revoked_key_is_not_found_any_more_and_stays_listed,
            p21_a_tenant_revokes_no_key_but_its_own,
            keys_are_listed_newest_first_in_pages_by_tenant,
            of_eight_that_want_to_be_the_first_key_one_is,
            the_first_key_is_the_first_also_when_it_is_revoked,
            what_is_done_to_keys_is_audited_with_their_tenant,
        ]);
        $crate::theme!($open, lease: [
            a_renewal_counts_from_now,
            a_renewal_never_goes_backwards,
            a_renewal_with_another_token_changes_nothing,
            a_renewal_by_another_worker_changes_nothing,
            a_settled_lease_is_not_renewed,
            an_expired_lease_that_nobody_took_is_renewed,
            a_lease_that_was_taken_back_is_not_renewed,
            one_renewal_of_many_tells_which_are_held,
            renewing_one_leaves_the_others_as_they_are,
            a_renewed_lease_is_not_taken_back,
            a_released_delivery_is_ready_at_once_and_uncharged,
            only_the_holder_releases,
            a_release_of_a_failed_delivery_keeps_its_count,
        ]);
        $crate::theme!($open, limits: [
            a_rate_limit_lets_its_burst_through_and_then_one_by_one,
            a_bucket_holds_no_more_than_its_burst,
            a_slow_rate_is_kept_to_the_letter,
            a_token_is_waited_for_only_while_something_waits_for_it,
            of_several_rates_the_first_token_is_told,
            a_rate_limit_holds_up_nobody_else,
            a_rate_limit_holds_for_all_dispatchers_together,
            a_claim_takes_no_more_tokens_than_deliveries,
            a_changed_rate_holds_from_then_on,
            an_endpoints_own_limit_counts_what_is_in_flight,
            a_changed_limit_holds_from_then_on,
            a_full_endpoint_waits_for_a_slot_and_not_for_a_token,
            a_limit_is_no_reason_to_keep_to_the_lane,
        ]);
        $crate::theme!($open, looking: [
            events_are_listed_newest_first_by_every_filter,
            a_listed_event_has_its_deliveries_as_they_stand,
            a_page_of_events_ends_before_it_is_too_large,
            an_event_for_one_endpoint_goes_there_whatever_types_it_wants,
            p21_an_event_for_another_tenants_endpoint_reaches_nobody,
            p21_the_audit_trail_of_a_tenant_shows_only_its_own,
            an_announcement_says_whose_it_is,
            the_overview_tells_what_happened_in_the_last_minute,
            a_healthy_store_says_so_and_tells_the_time,
            a_diagnosis_says_what_was_looked_at,
            pages_of_events_are_not_shifted_by_what_is_written_meanwhile,
        ]);
        $crate::theme!($open, once: [
            the_first_to_tell_of_a_subject_wins_and_is_shown,
            subjects_are_listed_by_name_page_by_page,
            a_list_of_subjects_looks_at_no_more_than_it_may,
            p10_whoever_comes_later_writes_nothing_its_key_included,
            p10_of_fifty_racers_on_two_handles_one_wins,
            p10_racers_that_roll_back_leave_the_claim_to_another,
            p10_a_claim_that_is_rolled_back_was_never_made,
            a_refused_event_claims_nothing,
            p10_a_reset_begins_a_generation_with_one_winner_of_its_own,
            a_subject_that_nobody_has_claimed_can_be_reset,
            resets_at_once_begin_one_generation_each,
            a_straggler_of_an_older_generation_gets_nothing,
            a_generation_that_has_not_begun_cannot_be_claimed,
            events_of_different_types_exclude_each_other,
            p21_tenants_do_not_exclude_each_other,
            subjects_are_told_apart_to_the_letter,
            within_one_list_the_first_wins_and_the_others_are_written,
            lists_that_claim_subjects_in_opposite_orders_all_succeed,
            the_winner_sent_again_under_its_key_is_a_duplicate,
            a_claim_outlives_its_event,
        ]);
        $crate::theme!($open, operator: [
            a_retried_dead_letter_starts_a_new_round_and_keeps_its_history,
            p6_a_retry_is_audited_under_the_operators_name,
            a_retried_cancelled_delivery_starts_a_new_round,
            a_retried_failed_delivery_is_due_now_and_keeps_its_count,
            a_retry_is_forbidden_where_there_is_nothing_to_retry,
            a_delivery_for_later_is_not_retried_before_its_first_attempt,
            retry_matching_takes_the_oldest_first_and_ends,
            retry_matching_without_a_status_takes_what_may_be_retried,
            retry_matching_takes_only_what_matches,
            a_cancelled_delivery_is_never_claimed_again,
            a_failed_delivery_can_be_cancelled_and_keeps_its_count,
            a_leased_delivery_can_be_cancelled_and_its_flight_finds_the_lease_gone,
            p6_what_is_settled_cannot_be_cancelled,
            a_cancellation_is_audited_with_its_reason,
            the_audit_trail_is_listed_newest_first_in_pages,
        ]);
        $crate::theme!($open, recover: [
            only_expired_leases_are_taken_back,
            recovery_keeps_its_limit,
            p11_another_handles_leases_are_taken_back_too,
            recovery_from_two_handles_returns_each_once,
            p14_the_tenth_abandonment_in_a_row_is_death,
            p14_an_applied_settle_in_between_starts_the_count_again,
            a_release_in_between_neither_counts_nor_starts_again,
            a_delivery_that_was_abandoned_to_death_can_be_retried_by_an_operator,
            an_abandoned_failed_delivery_stays_failed,
        ]);
        $crate::theme!($open, removal: [
            a_removed_endpoint_is_not_there_any_more,
            no_event_reaches_a_removed_endpoint,
            what_was_ready_or_scheduled_is_cancelled_and_announced,
            a_backlog_larger_than_any_step_is_cancelled_to_the_last,
            what_is_in_flight_when_its_endpoint_is_removed_comes_to_its_end,
            an_operators_retry_of_a_removed_endpoints_delivery_sends_nothing,
            enqueues_beside_a_removal_leave_nothing_behind,
            what_a_removed_endpoint_got_is_kept_as_long_as_everything_else,
            a_paused_or_disabled_endpoint_is_removed_with_its_backlog,
        ]);
        $crate::theme!($open, retention: [
            what_is_old_and_delivered_or_cancelled_goes_and_the_rest_stays,
            the_border_of_old_age_is_exact,
            an_event_stays_while_one_of_its_deliveries_is_not_done,
            an_old_event_without_deliveries_goes,
            steps_with_a_limit_come_to_everything_that_is_old,
            a_key_is_known_for_ever,
            old_announcements_go_and_a_follower_goes_on,
            every_old_announcement_goes_however_many_an_event_has,
            a_young_announcement_of_a_removed_event_is_still_told,
            nothing_is_older_than_time_itself,
            retention_while_deliveries_go_on_removes_nothing_else,
        ]);
        $crate::theme!($open, schedule: [
            p8_the_next_attempt_is_at_the_time_of_the_settle_plus_the_delay,
            p8_a_delay_of_any_length_is_kept_to_the_millisecond,
            p9_the_fifth_failure_is_death_and_is_announced_once,
            promotion_takes_only_what_is_due_and_tells_when_the_next_is,
            promotion_keeps_its_limit_and_takes_the_earliest_first,
            what_is_due_but_was_left_over_by_the_limit_is_due_in_no_time,
            promotion_from_two_handles_promotes_each_once,
        ]);
        $crate::theme!($open, settle: [
            a_delivered_delivery_is_done,
            p7_an_attempt_is_recorded_as_it_was_reported,
            every_kind_of_outcome_is_recorded_as_itself,
            p4_a_settle_by_another_owner_changes_nothing,
            p4_a_stale_settle_after_the_same_owner_reclaimed_changes_nothing,
            p4_a_stale_settle_after_another_took_over_changes_nothing,
            p5_a_settle_applies_once_also_when_its_reply_was_lost,
            p5_a_late_repetition_does_not_touch_the_next_claim,
            p5_a_lease_named_twice_in_one_settle_applies_once,
            p5_concurrent_settles_of_one_lease_apply_once,
            a_mixed_batch_is_answered_in_its_order,
            an_expired_lease_that_nobody_took_is_settled_however_late,
            p6_settled_states_are_final,
            p6_the_flight_of_a_cancelled_delivery_settles_nothing,
        ]);
        $crate::theme!($open, together: [
            p3_p5_p7_eight_workers_on_two_handles_lose_share_and_miscount_nothing,
            p5_heartbeats_and_settles_of_the_same_leases_neither_block_nor_apply_twice,
            enqueues_and_claims_at_once_deliver_everything_once,
            a_thousand_are_claimed_renewed_and_settled_in_one_call_each,
        ]);
    };
}

/// One theme of the [`suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! theme {
    ($open:ident, $theme:ident: [$($case:ident),+ $(,)?]) => {
        mod $theme {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::run(super::$open().await, $crate::cases::$theme::$case).await;
                }
            )+
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// A case that nobody stamps out would never run, and nobody would notice.
    #[test]
    fn every_case_is_stamped_out() {
        let suite = include_str!("suite.rs");
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cases");
        let mut written = BTreeSet::new();
        for file in std::fs::read_dir(cases).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for line in text.lines() {
                if let Some((name, _)) = line.strip_prefix("pub async fn ").and_then(|rest| rest.split_once('(')) {
                    written.insert(name.to_owned());
                }
            }
        }
        let stamped: Vec<&str> = suite
            .lines()
            .filter_map(|line| line.strip_prefix("            ")?.strip_suffix(','))
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
            .collect();
        assert_eq!(stamped.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), written);
        assert_eq!(stamped.len(), written.len(), "each once");
    }
}
