//! Which notifications are sent for which course of a rollout, in many orders: three replicas race, tasks take random
//! times, and skips come in random batches.

use std::rc::Rc;

use serde_json::Value;
use tokio::task::{JoinSet, LocalSet};

use crate::support::*;

/// Of each row, this many plans are run at once, each with its own random course.
const PLANS: u64 = 8;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// One plan with a random choice of everything that its row leaves open.
pub(crate) struct Course {
    pub(crate) world: Rc<World>,
    random: Random,
    names: Vec<&'static str>,
}

impl Course {
    pub(crate) fn new(world: &Rc<World>, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut names = NAMES[..random.between(2, NAMES.len())].to_vec();
        random.shuffle(&mut names);
        Self { world: Rc::clone(world), random, names }
    }

    /// Some of the tasks, at least one and not all.
    fn some(&mut self) -> Vec<&'static str> {
        let count = self.random.between(1, self.names.len() - 1);
        self.names[..count].to_vec()
    }

    async fn create(&mut self, script: impl Fn(&str) -> Value) -> i64 {
        let tasks: Vec<(&str, Value)> =
            self.names.iter().map(|name| (*name, taking(script(name), self.random.pause()))).collect();
        self.world.create(&tasks).await
    }

    async fn run(&self, plan: i64) {
        self.world.run_all(plan).await;
        self.world.settled(plan).await;
    }

    /// Skips tasks in random order and batches.
    async fn skip(&mut self, plan: i64, names: &[&'static str]) {
        let mut names = names.to_vec();
        self.random.shuffle(&mut names);
        while !names.is_empty() {
            let rest = names.split_off(self.random.between(1, names.len()));
            self.world.skip(plan, &names).await;
            names = rest;
        }
    }

    pub(crate) async fn all_done(mut self) -> i64 {
        let plan = self.create(|_| succeeds()).await;
        self.run(plan).await;
        plan
    }

    pub(crate) async fn some_skipped(mut self) -> i64 {
        let plan = self.create(|_| succeeds()).await;
        let skipped = self.some();
        if self.random.between(0, 1) == 0 {
            self.skip(plan, &skipped).await;
            self.run(plan).await;
        } else {
            let others: Vec<&str> = self.names.iter().copied().filter(|name| !skipped.contains(name)).collect();
            self.world.run(plan, &others).await;
            self.skip(plan, &skipped).await;
            self.world.settled(plan).await;
        }
        plan
    }

    pub(crate) async fn failed_retried_done(mut self) -> i64 {
        let failing = self.some();
        let script = |name: &str| if failing.contains(&name) { fails_times(1) } else { succeeds() };
        let plan = self.create(script).await;
        self.run(plan).await;
        self.run(plan).await;
        plan
    }

    pub(crate) async fn failed_then_skipped(mut self) -> i64 {
        let failing = self.some();
        let plan = self.create(|name| if failing.contains(&name) { fails() } else { succeeds() }).await;
        self.run(plan).await;
        self.skip(plan, &failing).await;
        plan
    }

    pub(crate) async fn all_skipped_before_any_run(mut self) -> i64 {
        let plan = self.create(|_| fails()).await;
        let all = self.names.clone();
        self.skip(plan, &all).await;
        plan
    }

    pub(crate) async fn all_failed_all_skipped(mut self) -> i64 {
        let plan = self.create(|_| fails()).await;
        self.run(plan).await;
        let all = self.names.clone();
        self.skip(plan, &all).await;
        plan
    }

    pub(crate) async fn two_fail_in_one_run(mut self) -> i64 {
        let failing = self.names[..2].to_vec();
        let plan = self.create(|name| if failing.contains(&name) { fails() } else { succeeds() }).await;
        self.run(plan).await;
        plan
    }

    pub(crate) async fn fails_again(mut self) -> i64 {
        let failing = self.some();
        let plan = self.create(|name| if failing.contains(&name) { fails() } else { succeeds() }).await;
        self.run(plan).await;
        self.run(plan).await;
        plan
    }
}

/// A small generator of which the seed says everything (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let choices = most - least + 1;
        least + usize::try_from(self.0 % choices as u64).unwrap()
    }

    pub(crate) fn pause(&mut self) -> &'static str {
        ["0s", "5ms", "20ms", "60ms"][self.between(0, 3)]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.between(0, place));
        }
    }
}

async fn row<F>(course: impl Fn(Course) -> F, expected: (usize, usize))
where
    F: Future<Output = i64> + 'static,
{
    let world = Rc::new(World::new().await);
    let _replicas: [Process; 3] = world.replicas(&[]);
    let all = async {
        let mut courses = JoinSet::new();
        for seed in 1..=PLANS {
            let plan = course(Course::new(&world, seed * 0x9e37_79b9));
            courses.spawn_local(async move { (seed, plan.await) });
        }
        courses.join_all().await
    };
    let plans = LocalSet::new().run_until(all).await;
    for (seed, plan) in plans {
        assert_eq!(world.told(plan).await, expected, "failures and completions of seed {seed}, plan {plan}");
        let arrived = world.arrived(plan);
        assert!(arrived.values().all(|(_, times)| *times == 1), "nobody crashed, so each came once: {arrived:?}");
    }
}

#[tokio::test]
async fn doc_004_matrix_all_done_0_1() {
    row(Course::all_done, (0, 1)).await;
}

#[tokio::test]
async fn doc_004_matrix_some_skipped_no_failure_0_1() {
    row(Course::some_skipped, (0, 1)).await;
}

#[tokio::test]
async fn doc_004_matrix_failed_retried_done_1_1() {
    row(Course::failed_retried_done, (1, 1)).await;
}

#[tokio::test]
async fn doc_004_matrix_failed_then_skipped_1_1() {
    row(Course::failed_then_skipped, (1, 1)).await;
}

#[tokio::test]
async fn doc_004_matrix_all_skipped_before_any_run_0_1() {
    row(Course::all_skipped_before_any_run, (0, 1)).await;
}

#[tokio::test]
async fn doc_004_matrix_all_failed_all_skipped_1_1() {
    row(Course::all_failed_all_skipped, (1, 1)).await;
}

#[tokio::test]
async fn doc_004_matrix_two_tasks_fail_in_one_run_1_0() {
    row(Course::two_fail_in_one_run, (1, 0)).await;
}

#[tokio::test]
async fn doc_004_matrix_fails_retried_fails_again_2_0() {
    row(Course::fails_again, (2, 0)).await;
}
