//! Single POSTs in, webhooks out, everything on one machine: the server, its database, who posts and who receives.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::tally;
use crate::Failure;
use crate::cost::Cost;
use crate::lab::{Kind, Lab, free_port, payload, per_second, per_thousand};
use crate::raw;
use crate::report::{Bar, Report, grouped};
use crate::sink::now;

const LANES: usize = 16;
const CONNECTIONS: usize = 64;

pub(crate) async fn run(events: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "{} events by single POSTs over {CONNECTIONS} connections to `serve`, each delivered, everything on one machine",
        grouped(events)
    );
    let mut report = Report::new("end-to-end", what);
    for &kind in kinds {
        measure(kind, events, &mut report).await?;
    }
    Ok(report)
}

async fn measure(kind: Kind, events: usize, report: &mut Report) -> Result<(), Failure> {
    let mut lab = Lab::new(kind, LANES).await?;
    let before = raw::limit(&mut lab, events, payload(1000)).await?;
    let key = lab.run(&["keys", "create", "--name", "bench", "--scope", "write", "--json"])?;
    let key = key["key"].as_str().ok_or("a new key is shown")?.to_owned();
    let address = format!("127.0.0.1:{}", free_port()?);
    let serving = lab.start(&["serve", "--listen", &address])?;
    until_it_is_ready(&address).await?;
    let mut meter = lab.meter()?;
    meter.watch(serving.process, serving.pid())?;
    let started = now();
    let posted = post(&address, &key, events, &lab.sink.urls)?;
    let arrivals = lab.arrived(events).await?;
    let mut costs = meter.read()?;
    costs.push(posted.cost);
    serving.stop()?;
    let last = arrivals.first.values().max().copied().unwrap_or(started);
    report.count(tally(&mut lab, arrivals, events).await?);
    let limit = before.max(raw::limit(&mut lab, events, payload(1000)).await?);

    let name = kind.name();
    let rate = per_second(events, Duration::from_nanos(last.saturating_sub(started)));
    let total = costs.iter().map(|cost| cost.cpu_seconds).sum();
    let bar = |bar| if kind == Kind::Postgres { Some(bar) } else { None };
    report.push(format!("{name}: in and out"), rate, "events/s", bar(Bar::AtLeast(5000.0)));
    report.add(format!("{name}: ratio"), rate / limit, "of the raw limit");
    let unit = "CPU s per 1,000";
    report.push(format!("{name}: all processes"), per_thousand(total, events), unit, bar(Bar::AtMost(0.25)));
    report.add(format!("{name}: median answer"), posted.median.as_secs_f64() * 1e3, "ms");
    report.add(format!("{name}: 99th percentile of answers"), posted.slow.as_secs_f64() * 1e3, "ms");
    report.add_costs(name, &costs, events);
    Ok(())
}

struct Posted {
    median: Duration,
    slow: Duration,
    cost: Cost,
}

fn post(address: &str, key: &str, events: usize, urls: &[String]) -> Result<Posted, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .args(["load", "--address", address, "--key", key, "--urls", &urls.join(",")])
        .args(["--connections", &CONNECTIONS.to_string(), "--events", &events.to_string()])
        .output()?;
    if !output.status.success() {
        return Err(format!("posting failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [median, slow, milliseconds, kilobytes] = numbers[..] else {
        return Err(format!("four numbers: {text}").into());
    };
    let (cpu_seconds, peak_bytes) = (f64::from(milliseconds) / 1e3, Some(u64::from(kilobytes) * 1024));
    let cost = Cost { process: "callers", cpu_seconds, peak_bytes };
    Ok(Posted { median: Duration::from_micros(median.into()), slow: Duration::from_micros(slow.into()), cost })
}

/// Waits until a server says that it is ready; it listens before it has looked at its database.
pub(super) async fn until_it_is_ready(address: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_ready(address).await.unwrap_or(false) {
        if Instant::now() > deadline {
            return Err("the server does not become ready".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn is_ready(address: &str) -> io::Result<bool> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}
