//! Waiting for something to become true. No test sleeps and hopes; it polls a condition, and fails at a deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// How long a test waits for something that should happen at once, on a machine that may be very busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls `condition` until it yields a value. Panics with `what` was waited for when `patience` is over.
pub async fn eventually<T>(what: &str, patience: Duration, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} in vain: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The future's result, or a panic with `what` was waited for when `patience` is over.
pub async fn within<T>(what: &str, patience: Duration, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(patience, future).await;
    result.unwrap_or_else(|_| panic!("waited {patience:?} in vain: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_becomes_true_ends_the_wait_with_its_value() {
        let mut polls = 0;
        let value = eventually("three polls", PATIENCE, || {
            polls += 1;
            std::future::ready((polls == 3).then_some("there"))
        })
        .await;
        assert_eq!(value, "there");
    }

    #[tokio::test]
    #[should_panic(expected = "in vain: the impossible")]
    async fn a_condition_that_never_becomes_true_fails_and_says_which() {
        eventually("the impossible", Duration::from_millis(20), || std::future::ready(None::<()>)).await;
    }

    #[tokio::test]
    #[should_panic(expected = "in vain: a future without end")]
    async fn a_future_that_never_ends_fails_and_says_which() {
        within("a future without end", Duration::from_millis(20), std::future::pending::<()>()).await;
    }
}
