//! `postrider serve` as it starts, serves and ends.

use crate::gate::Gate;
use crate::served::{Api, Place, Served, on_both};
use crate::support::{Running, Workplace};

on_both! {
    the_first_start_prints_a_key_and_no_later_one_does
    events_are_taken_in_and_delivered
    servers_without_a_dispatcher_leave_the_work_to_one
    an_attempt_under_way_is_waited_for
    a_second_signal_ends_it_at_once
    without_migrations_nothing_is_changed
    development_needs_no_key_and_leaves_the_first_one_for_later
}

fn the_first_start_prints_a_key_and_no_later_one_does(place: &Place) {
    let served = place.serve(&[]);
    let key = served.first_key();
    assert_eq!(served.api.get("/v1/overview").0, 401);
    let served = served.with_key(&key);
    assert_eq!(served.api.get("/v1/overview").0, 200);
    assert_eq!(served.api.get("/v1/keys").0, 200, "it is an admin's");
    let text = served.stop();
    assert_eq!(text.matches(&key).count(), 1, "it is printed once, and never logged: {text}");

    let served = place.serve(&[]).with_key(&key);
    assert_eq!(served.api.get("/v1/overview").0, 200);
    let text = served.stop();
    assert!(!text.contains("prk_"), "{text}");
}

fn events_are_taken_in_and_delivered(place: &Place) {
    let gate = Gate::closed();
    gate.open();
    let served = place.serve(&[]).opened();
    served.api.register(&gate.url);
    let delivery = served.api.event();
    served.api.until(&delivery, "delivered");
    let (status, metrics) = served.api.text("/metrics");
    assert!(status == 200 && metrics.contains("postrider_"), "{metrics}");
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs"] {
        assert_eq!(served.api.text(path).0, 200, "{path}");
    }
    let text = served.stop();
    assert!(text.contains("\"delivered\": 1"), "{text}");
}

fn servers_without_a_dispatcher_leave_the_work_to_one(place: &Place) {
    let gate = Gate::closed();
    gate.open();
    let served = place.serve(&["--no-dispatch"]).opened();
    served.api.register(&gate.url);
    let delivery = served.api.event();
    assert_eq!(served.api.get(&format!("/v1/deliveries/{delivery}")).1["status"], "pending");
    let dispatching = place.workplace.start(["dispatch", "--listen", "127.0.0.1:0"]);
    served.api.until(&delivery, "delivered");

    // The dispatcher answers for its health, and for nothing else.
    let line = dispatching.json_line("where it listens", |line| line["url"].is_string());
    let operations = Api { url: line["url"].as_str().unwrap().to_owned(), ..served.api.clone() };
    for path in ["/healthz", "/readyz"] {
        assert_eq!(operations.text(path).0, 200, "{path}");
    }
    let (status, metrics) = operations.text("/metrics");
    assert!(status == 200 && metrics.contains("postrider_"), "{metrics}");
    for path in ["/v1/overview", "/", "/openapi.json"] {
        assert_eq!(operations.text(path).0, 404, "{path}");
    }
    dispatching.signal("TERM");
    assert_eq!(dispatching.ended().0, Some(0));
    served.stop();
}

fn an_attempt_under_way_is_waited_for(place: &Place) {
    let gate = Gate::closed();
    let served = place.serve(&[]).opened();
    served.api.register(&gate.url);
    let delivery = served.api.event();
    gate.holds(1);
    served.running.signal("TERM");
    served.running.line("that it stops", |line| line.contains("SIGTERM: stopping"));
    gate.open();
    let (code, text) = served.running.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\"delivered\": 1"), "{text}");
    let shown = place.workplace.json(["deliveries", "show", &delivery]);
    assert_eq!(shown["status"], "delivered");
}

fn a_second_signal_ends_it_at_once(place: &Place) {
    let gate = Gate::closed();
    let served = place.serve(&["--drain-timeout", "1h", "--timeout", "1h"]).opened();
    served.api.register(&gate.url);
    served.api.event();
    gate.holds(1);
    served.running.signal("TERM");
    served.running.line("that it stops", |line| line.contains("SIGTERM: stopping"));
    served.running.signal("INT");
    let (code, text) = served.running.ended();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stopping at once"), "{text}");
}

fn without_migrations_nothing_is_changed(place: &Place) {
    let serve = ["serve", "--no-migrate", "--listen", "127.0.0.1:0"];
    let done = place.workplace.run(serve).fails(1, "store_schema");
    assert!(done.stderr.contains("hint: run `postrider migrate`"), "{done:?}");
    place.workplace.run(["migrate", "--check"]).fails(1, "migrations_missing");
    place.workplace.run(["migrate"]).succeeds();
    place.serve(&["--no-migrate"]).stop();
}

fn development_needs_no_key_and_leaves_the_first_one_for_later(place: &Place) {
    let served = place.serve(&["--dev"]);
    assert_eq!(served.api.get("/v1/overview").0, 200);
    let text = served.stop();
    assert!(text.contains("DEVELOPMENT MODE") && !text.contains("prk_"), "{text}");
    let served = place.serve(&[]);
    assert_eq!(served.api.get("/v1/overview").0, 401);
    served.opened().stop();
}

/// On a terminal the log and what is printed are one text.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_is_warned_of_development_once() {
    let place = Place::sqlite();
    let mut command = std::process::Command::new("script");
    let serve = format!("{} serve --dev --listen 127.0.0.1:0", env!("CARGO_BIN_EXE_postrider"));
    let environment = place.workplace.command();
    command.current_dir(place.workplace.path()).env_clear().stdin(std::process::Stdio::null());
    command.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["--quiet", "--return", "--flush", "--command", &serve, "/dev/null"]);
    let running = Running::start(command);
    running.line("the warning", |line| line.contains("DEVELOPMENT MODE"));
    running.line("the dispatcher's start", |line| line.contains("dispatching from"));
    assert_eq!(running.count(|line| line.contains("DEVELOPMENT MODE")), 1, "{}", running.text());
    running.signal("TERM");
    running.ended();
}

/// Started at the same moment on an empty database: one migrates, one makes the key, all of them serve.
#[test]
fn several_servers_start_at_once_on_one_postgres() {
    let gate = Gate::closed();
    gate.open();
    let place = Place::postgres();
    let servers: Vec<Served> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(|| place.serve(&[]))).collect();
        starting.into_iter().map(|server| server.join().unwrap()).collect()
    });
    // Each has begun to serve by the time that it answers, and so has said what it has to say.
    for served in &servers {
        assert_eq!(served.api.text("/readyz").0, 200);
    }
    let is_key = |line: &str| line.contains("first_key");
    let counts: Vec<usize> = servers.iter().map(|served| served.running.count(is_key)).collect();
    assert_eq!(counts.iter().sum::<usize>(), 1, "{counts:?}");
    let key = servers.iter().find(|served| served.running.count(is_key) == 1).unwrap().first_key();
    let servers: Vec<Served> = servers.into_iter().map(|served| served.with_key(&key)).collect();
    servers[0].api.register(&gate.url);
    let deliveries: Vec<String> = servers.iter().map(|served| served.api.event()).collect();
    for delivery in &deliveries {
        servers[2].api.until(delivery, "delivered");
    }
    for served in servers {
        served.stop();
    }
}

#[test]
fn a_second_dispatcher_on_a_file_is_refused_and_a_second_server_is_not() {
    let place = Place::sqlite();
    let served = place.serve(&[]).opened();
    assert_eq!(served.api.text("/readyz").0, 200);
    let done = place.workplace.run(["serve", "--listen", "127.0.0.1:0", "--log-format", "pretty"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("error[store_locked]: ") && done.stderr.contains("--no-dispatch"), "{done:?}");
    assert_eq!(done.stdout, "", "it does not say that it serves");
    let second = place.serve(&["--no-dispatch"]).with_key(served.api.key.as_deref().unwrap());
    assert_eq!(second.api.get("/v1/overview").0, 200);
    second.stop();
    served.stop();
}

#[test]
fn development_mode_is_for_loopback_only() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8400"] {
        let workplace = Workplace::new();
        let done = workplace.run(["serve", "--dev", "--listen", address]).fails(4, "dev_not_loopback");
        assert!(done.stderr.contains("hint: "), "{done:?}");
        assert!(std::fs::read_dir(workplace.path()).unwrap().next().is_none(), "nothing was made");
    }
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_is_made() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for command in ["serve", "dispatch"] {
        let workplace = Workplace::new();
        let done = workplace.run([command, "--listen", &address]).fails(1, "port_unavailable");
        assert!(done.stderr.contains(&address) && done.stderr.contains("hint: "), "{done:?}");
        assert!(std::fs::read_dir(workplace.path()).unwrap().next().is_none(), "nothing was made");
    }
}

#[test]
fn the_document_is_the_one_that_a_server_has() {
    let printed = Workplace::new().json(["openapi"]);
    let served = Place::sqlite().serve(&[]);
    assert_eq!(served.api.get("/openapi.json").1, printed);
    assert!(printed["openapi"].as_str().unwrap().starts_with("3.1"), "{printed}");
}
