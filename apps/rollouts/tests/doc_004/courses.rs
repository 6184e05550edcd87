//! Courses that no row of the matrix has: tasks are run and skipped in any order, some by name and some all at once, and what is
//! told is what the rule says. Three replicas race, as everywhere.

use std::collections::BTreeMap;
use std::rc::Rc;

use rollouts::notice::{PIPELINE_COMPLETED, PIPELINE_FAILED};
use serde_json::Value;
use tokio::task::{JoinSet, LocalSet};

use crate::matrix::Random;
use crate::support::*;

/// So many plans at once, each with so many steps at most.
const PLANS: u64 = 16;
const STEPS: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    NotStarted,
    Failed,
    Done,
    Skipped,
}

/// What a plan must have told by now, written without looking at how the program finds out.
#[derive(Debug)]
struct Model {
    /// How each task stands, and how often it will still fail.
    tasks: BTreeMap<&'static str, (Stands, usize)>,
    told: Option<&'static str>,
    counts: (usize, usize),
}

impl Model {
    fn names(&self, wanted: impl Fn(Stands) -> bool) -> Vec<&'static str> {
        self.tasks.iter().filter(|(_, (stands, _))| wanted(*stands)).map(|(name, _)| *name).collect()
    }

    fn has_failure(&self) -> bool {
        self.tasks.values().any(|(stands, _)| *stands == Stands::Failed)
    }

    /// The first of a generation is told, and no other.
    fn tell(&mut self, event_type: &'static str) {
        if self.told.is_none() {
            self.told = Some(event_type);
            *(if event_type == PIPELINE_FAILED { &mut self.counts.0 } else { &mut self.counts.1 }) += 1;
        }
    }

    fn tell_if_complete(&mut self) {
        if self.tasks.values().all(|(stands, _)| matches!(stands, Stands::Done | Stands::Skipped)) {
            self.tell(PIPELINE_COMPLETED);
        }
    }

    fn run(&mut self, names: &[&'static str]) {
        self.told = None;
        for name in names {
            let (stands, failures) = self.tasks.get_mut(name).unwrap();
            *stands = if *failures > 0 { Stands::Failed } else { Stands::Done };
            *failures = failures.saturating_sub(1);
        }
        if names.iter().any(|name| self.tasks[name].0 == Stands::Failed) {
            self.tell(PIPELINE_FAILED);
        }
        self.tell_if_complete();
    }

    fn skip(&mut self, names: &[&'static str]) {
        let had_failure = self.has_failure();
        for name in names {
            self.tasks.get_mut(name).unwrap().0 = Stands::Skipped;
        }
        if had_failure && !self.has_failure() {
            self.told = None;
        }
        self.tell_if_complete();
    }
}

/// One plan, from its creation until nothing can be done with it any more, or the steps are over.
async fn course(world: Rc<World>, seed: u64) -> (i64, Model) {
    let mut random = Random(seed);
    let count = random.between(1, 5);
    let tasks = ["a", "b", "c", "d", "e"][..count].iter().map(|name| {
        let failures = [0, 0, 1, 2, 99][random.between(0, 4)];
        (*name, (Stands::NotStarted, failures))
    });
    let mut model = Model { tasks: tasks.collect(), told: None, counts: (0, 0) };
    let scripts: Vec<(&str, Value)> = model
        .tasks
        .iter()
        .map(|(name, (_, failures))| (*name, taking(fails_times(u32::try_from(*failures).unwrap()), random.pause())))
        .collect();
    let plan = world.create(&scripts).await;
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let mut open = model.names(|stands| matches!(stands, Stands::NotStarted | Stands::Failed));
        if open.is_empty() {
            break;
        }
        random.shuffle(&mut open);
        let some = open[..random.between(1, open.len())].to_vec();
        // What can be run can be skipped as well, as long as nobody runs it.
        match random.between(0, 2) {
            0 => {
                steps.push(format!("run all {open:?}"));
                world.run_all(plan).await;
                model.run(&open);
            }
            1 => {
                steps.push(format!("run {some:?}"));
                world.run(plan, &some).await;
                model.run(&some);
            }
            _ => {
                steps.push(format!("skip {some:?}"));
                world.skip(plan, &some).await;
                model.skip(&some);
            }
        }
        let stands = world.settled(plan).await;
        assert_eq!(winner(&stands), model.told, "seed {seed}: {scripts:?}, {steps:?}: {}", standing(&stands));
    }
    (plan, model)
}

#[tokio::test]
async fn doc_004_courses_that_no_row_has_are_told_by_the_same_rule() {
    let world = Rc::new(World::new().await);
    let _replicas: [Process; 3] = world.replicas(&[]);
    let all = async {
        let mut courses = JoinSet::new();
        for seed in 1..=PLANS {
            courses.spawn_local(course(Rc::clone(&world), seed * 0x9e37_79b9));
        }
        courses.join_all().await
    };
    let courses = LocalSet::new().run_until(all).await;
    for (plan, model) in &courses {
        assert_eq!(world.told(*plan).await, model.counts, "failures and completions of plan {plan}: {model:?}");
    }
    let told = |count: fn(&Model) -> usize| courses.iter().map(|(_, model)| count(model)).sum::<usize>();
    assert!(told(|model| model.counts.0) > 10 && told(|model| model.counts.1) > 5, "the courses have both in them");
}
