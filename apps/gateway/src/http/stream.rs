//! The topic as server-sent events.
//!
//! A subscriber over the network may be away for a while, and so may the gateway itself. So it reads what was recorded
//! rather than what is being said: with `Last-Event-ID`, which browsers send by themselves, it goes on where it was.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use postrider::Store as _;
use postrider::store::FeedPlace;

use super::{App, Problem, text_of};
use crate::topic::TopicEvent;

const READ_AT_ONCE: u32 = 100;
const POLL: Duration = Duration::from_secs(1);

pub(super) async fn follow(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let place = match text_of(&headers, "last-event-id") {
        Some(text) => text.parse()?,
        None => app.gateway.store().announcements_end().await?,
    };
    let follower = Follower { app, place, waiting: VecDeque::new() };
    let events = stream::unfold(follower, |mut follower| async { Some((Ok(follower.next().await?), follower)) });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct Follower {
    app: App,
    place: FeedPlace,
    waiting: VecDeque<Event>,
}

impl Follower {
    /// The next event; none when the process stops, or when the store fails, and the subscriber may come again.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if *self.app.stopping.borrow() {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let store = self.app.gateway.store();
            let announced = store.announcements(&self.place, READ_AT_ONCE).await.map_err(Problem::from).ok()?;
            self.place = announced.place;
            for announcement in &announced.announcements {
                if let Some(event) = TopicEvent::of(announcement) {
                    let data = serde_json::to_string(&event).expect("ids are JSON");
                    // On SQLite positions are in the order of commits, so a position is a place.
                    let id = announcement.position.to_string();
                    self.waiting.push_back(Event::default().id(id).event(event.name()).data(data));
                }
            }
            if announced.announcements.is_empty() {
                tokio::select! {
                    () = store.wait_announced(POLL) => {}
                    _ = self.app.stopping.wait_for(|stopping| *stopping) => return None,
                }
            }
        }
    }
}
