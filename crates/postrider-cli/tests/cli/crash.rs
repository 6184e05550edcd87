//! A server that is killed while many post to it: what it acknowledged is there afterwards, and arrives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::gate::Gate;
use crate::served::{Api, Place, on_both};
use crate::support::DEADLINE;

const CONNECTIONS: usize = 64;
/// So many acknowledged events before the first kill, and between the kills.
const ENOUGH: usize = 300;
/// How the server is ended, in the middle of it all, before it is started again.
const ENDS: [&str; 3] = ["KILL", "TERM", "KILL"];

on_both! {
    what_was_acknowledged_survives_every_end
}

fn what_was_acknowledged_survives_every_end(place: &Place) {
    let gate = Gate::closed();
    gate.open();
    // What a killed dispatcher holds is taken up after its lease.
    let options = ["--lease", "2s", "--poll-interval", "100ms", "--retry-schedule", "100ms"];
    let mut served = place.serve(&options).opened();
    served.api.register(&gate.url);
    let key = served.api.key.clone().unwrap();
    let mut acknowledged = BTreeSet::new();
    for end in ENDS {
        let posting = Posting::start(&served.api);
        posting.until(ENOUGH);
        // The connections are in the middle of their posts: nobody waits for anybody.
        served.running.signal(end);
        acknowledged.extend(posting.end());
        let (code, text) = served.running.ended();
        assert_eq!(code, if end == "TERM" { Some(0) } else { None }, "{text}");
        served = place.serve(&options).with_key(&key);
    }
    assert!(acknowledged.len() >= ENDS.len() * ENOUGH, "{} were acknowledged", acknowledged.len());
    let stored = stored(&served.api);
    let lost: Vec<&String> = acknowledged.difference(&stored).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
    loop {
        let requests = gate.requests();
        let arrived: BTreeSet<String> = requests.iter().map(|request| request.event.clone()).collect();
        if acknowledged.is_subset(&arrived) {
            break;
        }
        gate.holds(requests.len() + 1);
    }
    served.stop();
}

/// Many who post one event after the other, until the server is gone.
struct Posting {
    api: Api,
    count: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    posters: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Posting {
    fn start(api: &Api) -> Self {
        let (count, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let posters = (0..CONNECTIONS).map(|_| {
            let (api, count, over) = (api.clone(), Arc::clone(&count), Arc::clone(&over));
            api.runtime.clone().spawn(async move { post(&api, &count, &over).await })
        });
        Self { api: api.clone(), count: Arc::clone(&count), over: Arc::clone(&over), posters: posters.collect() }
    }

    /// Waits until so many were acknowledged.
    #[track_caller]
    fn until(&self, enough: usize) {
        let deadline = Instant::now() + DEADLINE;
        while self.count.load(Ordering::Relaxed) < enough {
            assert!(Instant::now() < deadline, "{} were acknowledged", self.count.load(Ordering::Relaxed));
            std::thread::yield_now();
        }
    }

    /// The ids of all events that were acknowledged.
    fn end(self) -> Vec<String> {
        self.over.store(true, Ordering::Relaxed);
        let runtime = Arc::clone(&self.api.runtime);
        self.posters.into_iter().flat_map(|poster| runtime.block_on(poster).unwrap()).collect()
    }
}

async fn post(api: &Api, count: &AtomicUsize, over: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let body = serde_json::json!({ "type": "invoice.paid", "payload": { "invoice": "in_42" } });
    while !over.load(Ordering::Relaxed) {
        let Ok(response) = api.request(reqwest::Method::POST, "/v1/events").json(&body).send().await else { break };
        // A server that is about to end says so.
        if response.status() == reqwest::StatusCode::SERVICE_UNAVAILABLE {
            break;
        }
        assert_eq!(response.status().as_u16(), 202);
        // An answer that was cut off acknowledges nothing.
        let Ok(answer) = response.json::<serde_json::Value>().await else { break };
        acknowledged.push(answer["id"].as_str().unwrap().to_owned());
        count.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

/// The ids of all events that there are.
fn stored(api: &Api) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let (status, page) = api.get(&format!("/v1/events?limit=250{cursor}"));
        assert_eq!(status, 200, "{page}");
        ids.extend(page["data"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}
