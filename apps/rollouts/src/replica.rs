//! A replica: runs tasks, and delivers notifications, its own and everybody else's.
//!
//! The two halves know nothing of each other. A notification is in the database from the moment at which its run has
//! ended, and whichever replica is there delivers it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Dispatcher, InvalidDispatcher, LeaseTerm, Secret, StoreError, WorkerId};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::rollouts::Rollouts;
use crate::runs::{Ending, Run};

/// What a replica works by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, new at each start.
    pub worker: WorkerId,
    /// How long what a crashed replica held waits for another, task runs and notifications alike.
    pub lease: LeaseTerm,
    /// How often to look for work.
    pub poll_interval: Duration,
    /// How many tasks it runs at once.
    pub max_running: usize,
    /// What signs notifications. Without one this replica only runs tasks, and leaves notifications to others.
    pub signing_secret: Option<Secret>,
}

/// Why a replica did not start.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// A setting of its dispatcher cannot hold.
    #[error(transparent)]
    Invalid(#[from] InvalidDispatcher),
    /// Postrider's store cannot be worked with.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Works until `shutdown`, then gives back what it holds.
pub async fn run(
    rollouts: Rollouts,
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ReplicaError> {
    let dispatcher = dispatcher(&rollouts, &settings)?;
    tracing::info!(worker_id = %settings.worker, dispatches = settings.signing_secret.is_some(), "replica started");
    let (stop, stopping) = watch::channel(false);
    let dispatching = dispatcher.run(told(stopping.clone()));
    let running = async {
        run_tasks(&rollouts, &settings, told(stopping.clone())).await;
        Ok(())
    };
    let mut work = pin!(async { tokio::try_join!(dispatching, running) });
    tokio::select! {
        ended = &mut work => ended?,
        () = shutdown => {
            stop.send_replace(true);
            work.await?
        }
    };
    Ok(())
}

async fn told(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn dispatcher(rollouts: &Rollouts, settings: &Settings) -> Result<Dispatcher, InvalidDispatcher> {
    Dispatcher::builder(Arc::new(rollouts.store().clone()))
        .worker_id(settings.worker.clone())
        .lease(settings.lease.lease())
        .poll_interval(settings.poll_interval)
        .enabled(settings.signing_secret.is_some())
        .signing_secrets(settings.signing_secret.iter().cloned().collect())
        .destinations(rollouts.destinations().clone())
        .build()
}

async fn run_tasks(rollouts: &Rollouts, settings: &Settings, shutdown: impl Future<Output = ()>) {
    let mut shutdown = pin!(shutdown);
    let mut running = JoinSet::new();
    loop {
        while running.len() < settings.max_running {
            match rollouts.claim(&settings.worker, settings.lease.lease()).await {
                Ok(Some(run)) => running.spawn(perform(rollouts.clone(), settings.lease, run)),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("no task run could be claimed, trying again: {error}");
                    break;
                }
            };
        }
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = running.join_next() => {}
            () = tokio::time::sleep(settings.poll_interval) => {}
        }
    }
    running.shutdown().await;
    if let Err(error) = rollouts.release(&settings.worker).await {
        tracing::warn!("task runs could not be given back, they wait for their lease to lapse: {error}");
    }
}

/// Runs a task and ends its run. If the database fails at that, the lease lapses and the task is run again.
async fn perform(rollouts: Rollouts, term: LeaseTerm, run: Run) {
    let Run { plan_id, ref task, attempt, .. } = run;
    tracing::info!(plan_id, task, attempt, "running");
    let ending = tokio::select! {
        () = tokio::time::sleep(run.script.takes) => rollouts.finish(&run, run.script.outcome.succeeds_at(attempt)).await,
        () = keep(&rollouts, term, &run) => Ok(Ending::LeaseLost),
    };
    match ending {
        Ok(Ending::Applied) => tracing::info!(plan_id, task, attempt, "ended"),
        Ok(Ending::LeaseLost) => tracing::warn!(plan_id, task, attempt, "lease lost: nothing is changed or told"),
        Err(error) => tracing::error!(plan_id, task, attempt, "could not be ended: {error}"),
    }
}

/// Renews a run's lease; returns when it is lost.
async fn keep(rollouts: &Rollouts, term: LeaseTerm, run: &Run) {
    loop {
        tokio::time::sleep(term.heartbeat()).await;
        match rollouts.renew(run, term.lease()).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::warn!(run = run.id, "a lease was not renewed, trying again: {error}"),
        }
    }
}
