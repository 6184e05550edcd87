//! Faults at random, by a seed, while events are enqueued and delivered.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::checker::Kind;
use crate::cluster::Stop;
use crate::dice::Dice;
use crate::fleet::{Arena, Ground, Member, Role, Start, now};
use crate::load::Load;

/// So many faults make a trial.
pub const ENOUGH: usize = 5;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// How many processes dispatch; one of them also serves the API.
    pub fleet: usize,
    /// For how long faults are injected.
    pub length: Duration,
    /// A library that makes a process see another time, if some are to.
    pub false_clock: Option<PathBuf>,
}

/// A place in the fleet, which is filled again when its process has ended.
struct Post {
    role: Role,
    member: Option<Member>,
    vacant_until: Instant,
    frozen_until: Option<Instant>,
}

/// Says how to repeat a trial, if it fails.
#[derive(Debug)]
pub struct Replay(pub u64);

impl Drop for Replay {
    #[allow(clippy::print_stderr, reason = "the seed of a failure has to reach whoever repeats it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat this with {}={}", crate::dice::VARIABLE, self.0);
        }
    }
}

/// Enqueues and injects for the plan's length, then lets everything come to its end. The arena can be judged afterwards.
pub async fn run(arena: &Arena, plan: &Plan) {
    let loads = enqueue(arena, plan.seed).await;
    let mut chaos = Chaos::new(arena, plan);
    let began = Instant::now();
    // A machine that is very busy gets a little more time, until enough was done to call it a trial.
    while began.elapsed() < plan.length || (arena.injected() < ENOUGH && began.elapsed() < plan.length * 4) {
        let pause = chaos.dice.between(Duration::from_millis(50), Duration::from_millis(400));
        tokio::time::sleep(pause).await;
        chaos.fill(true).await;
        chaos.strike().await;
    }
    arena.load.end();
    loads.join_all().await;
    chaos.come_to_rest().await;
}

async fn enqueue(arena: &Arena, seed: u64) -> JoinSet<()> {
    let mut loads = JoinSet::new();
    let spawn_requests = |loads: &mut JoinSet<()>, load: Arc<Load>, dice| {
        loads.spawn(async move { load.by_requests(dice).await });
    };
    spawn_requests(&mut loads, Arc::clone(&arena.load), Dice::new(seed + 1));
    if arena.is_sqlite() {
        let (load, store, dice) = (Arc::clone(&arena.load), arena.sqlite(), Dice::new(seed + 2));
        loads.spawn(async move { load.by_closures(store, dice).await });
    } else {
        for n in 2..4 {
            let (load, store, dice) = (Arc::clone(&arena.load), arena.postgres().await, Dice::new(seed + n));
            loads.spawn(async move { load.by_transactions(store, dice).await });
        }
    }
    loads
}

struct Chaos<'a> {
    arena: &'a Arena,
    plan: &'a Plan,
    dice: Dice,
    posts: Vec<Post>,
    next_interruption: Instant,
}

impl<'a> Chaos<'a> {
    fn new(arena: &'a Arena, plan: &'a Plan) -> Self {
        let vacant = |n: usize| Post {
            role: if n == 0 { Role::Serve } else { Role::Dispatch },
            member: None,
            vacant_until: Instant::now(),
            frozen_until: None,
        };
        let posts = (0..plan.fleet).map(vacant).collect();
        let next_interruption = Instant::now() + Duration::from_secs(5);
        Self { arena, plan, dice: Dice::new(plan.seed), posts, next_interruption }
    }

    /// Lets frozen ones go on whose time has come, and fills vacancies.
    async fn fill(&mut self, with_faults: bool) {
        for n in 0..self.posts.len() {
            let post = &mut self.posts[n];
            if post.frozen_until.is_some_and(|until| until <= Instant::now()) {
                post.frozen_until = None;
                if let Some(member) = &mut post.member {
                    self.arena.thaw(member);
                }
            }
            if let Some(member) = &mut post.member
                && member.running.has_ended().is_some()
                && let Some(member) = post.member.take()
            {
                self.has_ended(member).await;
            }
            if self.posts[n].member.is_none() && self.posts[n].vacant_until <= Instant::now() {
                let start = if with_faults { self.start() } else { Start::default() };
                self.posts[n].member = Some(self.arena.start(self.posts[n].role, start));
            }
        }
        self.look_for_the_api();
    }

    async fn has_ended(&self, member: Member) {
        let (worker, started_at) = (member.worker.clone(), member.started_at);
        let (code, text) = member.running.ended().await;
        if self.arena.ended_at_a_place(&text) {
            // When exactly it was is not known: others may have been waited for meanwhile.
            return self.arena.record(started_at, Some(&worker), Kind::Failpoint);
        }
        // A process that finds no database, or loses it, while it starts says so and ends, without having held anything.
        let told = code.is_some_and(|code| code != 0) && (text.contains("error[") || text.contains(r#"{"error":"#));
        assert!(told && self.arena.database_was_away(), "{worker} ended by itself with {code:?}: {text}");
        self.arena.record(now(), Some(&worker), Kind::Terminated);
    }

    fn look_for_the_api(&self) {
        let Some(member) =
            self.posts.iter().find(|post| post.role == Role::Serve).and_then(|post| post.member.as_ref())
        else {
            return self.arena.load.api_is_at(None);
        };
        let text = member.running.text();
        let listening = text.lines().find_map(|line| line.split_once(r#""listening":""#));
        let url = listening.and_then(|(_, rest)| rest.split('"').next()).map(str::to_owned);
        self.arena.load.api_is_at(url);
    }

    /// Some processes may end at a named place, and some see another time.
    fn start(&mut self) -> Start {
        let places: &[&str] = if self.arena.is_sqlite() {
            &["after_claim", "after_send", "before_settle", "mid_transaction", "before_commit", "after_commit"]
        } else {
            &["after_claim", "after_send", "before_settle", "inside_settle", "after_settle"]
        };
        let mut start = Start::default();
        if !self.dice.one_in(3) {
            let (place, rarity, seed) = (self.dice.pick(places), self.dice.pick(&[5, 20, 60]), self.dice.roll(1_000));
            start.failpoints = Some(format!("{place}=abort~{rarity}#{seed}"));
        }
        if let Some(library) = &self.plan.false_clock
            && !self.arena.is_sqlite()
            && self.dice.one_in(3)
        {
            let skew = self.dice.pick(&["+1h", "-1h", "+1s", "-45s"]);
            let variables = [
                ("LD_PRELOAD", library.to_str().unwrap_or_default()),
                ("FAKETIME", skew),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ];
            start.variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        }
        start
    }

    /// Does something, or not.
    async fn strike(&mut self) {
        let lease = self.arena.terms.lease;
        let n = usize::try_from(self.dice.roll(self.posts.len() as u64)).unwrap();
        let (draw, pause) = (self.dice.roll(10), self.dice.between(Duration::ZERO, Duration::from_millis(500)));
        let freeze = self.dice.between(lease + lease / 4, lease * 2);
        let post = &mut self.posts[n];
        match draw {
            0 => {
                if let Some(member) = post.member.take() {
                    (post.frozen_until, post.vacant_until) = (None, Instant::now() + pause);
                    self.kill(member).await;
                }
            }
            1 | 2 if post.frozen_until.is_none() => {
                if let Some(member) = &mut post.member {
                    self.arena.freeze(member);
                    post.frozen_until = Some(Instant::now() + freeze);
                }
            }
            3 if post.frozen_until.is_none() => {
                if let Some(member) = post.member.take() {
                    post.vacant_until = Instant::now() + pause;
                    self.end(member).await;
                }
            }
            4 | 5 if self.next_interruption <= Instant::now() && matches!(self.arena.ground, Ground::Own(_)) => {
                let how = if self.dice.one_in(3) { Stop::Fast } else { Stop::Immediate };
                let away = self.dice.between(Duration::ZERO, lease * 2);
                self.arena.interrupt_database(how, away).await;
                self.next_interruption = Instant::now() + Duration::from_secs(6);
            }
            _ => {}
        }
    }

    async fn kill(&self, mut member: Member) {
        if member.running.has_ended().is_some() {
            return self.has_ended(member).await;
        }
        self.arena.kill(member).await;
    }

    async fn end(&self, mut member: Member) {
        if member.running.has_ended().is_some() {
            return self.has_ended(member).await;
        }
        // One that has not yet caught its signals dies of the first one.
        let is_up = |line: &str| line.contains("dispatching from");
        if member.running.count(is_up) == 0 {
            return self.arena.kill(member).await;
        }
        self.arena.terminate(member).await;
    }

    /// Ends what may still fail, and has the rest done by processes that do not.
    async fn come_to_rest(mut self) {
        for n in 0..self.posts.len() {
            let post = &mut self.posts[n];
            (post.frozen_until, post.vacant_until) = (None, Instant::now());
            let Some(mut member) = post.member.take() else { continue };
            self.arena.thaw(&mut member);
            self.end(member).await;
        }
        self.fill(false).await;
        self.arena.all_settled().await;
        for post in std::mem::take(&mut self.posts) {
            if let Some(member) = post.member {
                self.end(member).await;
            }
        }
    }
}
