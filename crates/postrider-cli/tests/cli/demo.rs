//! The README's first command.

use crate::support::Workplace;

#[test]
fn the_demo_shows_deliveries_retries_and_dead_letters_and_leaves_nothing_behind() {
    let workplace = Workplace::new();
    let done = workplace.run(["demo", "--for", "1ms"]).succeeds();
    // Announcements begin with their time and rows of the table with an id; sentences begin with neither.
    let fact = |line: &&str| line.starts_with(' ') || line.starts_with("dlv_");
    let word = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    let words: Vec<String> = done.stdout.lines().filter(fact).filter_map(word).collect();
    let count = |word: &str| words.iter().filter(|other| *other == word).count();
    assert_eq!(count("sent"), 8, "one round: {}", done.stdout);
    // Once when it is announced, and once in the closing table.
    assert_eq!(count("delivered"), 16, "{}", done.stdout);
    assert_eq!(count("dead"), 2, "{}", done.stdout);
    assert!(count("failed") >= 7, "{}", done.stdout);
    assert!(done.stdout.contains("8 delivered, 1 dead."), "{}", done.stdout);
    assert_eq!(done.stderr, "");
    assert!(std::fs::read_dir(workplace.path()).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn the_demo_is_a_server_that_can_be_asked_until_it_is_interrupted() {
    use crate::served::Api;
    let workplace = Workplace::new();
    let running = workplace.start(["demo", "--json"]);
    let started = running.json_line("the start", |line| line["listening"].is_string());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let api = Api::new(&runtime.into(), started["listening"].as_str().unwrap().to_owned());
    running.json_line("a delivery", |line| line["fact"] == "delivery.delivered");
    let (status, endpoints) = api.get("/v1/endpoints");
    assert_eq!((status, endpoints["data"].as_array().unwrap().len()), (200, 3));
    for path in ["/v1/deliveries", "/docs", "/metrics", "/readyz"] {
        assert_eq!(api.text(path).0, 200, "{path}");
    }
    running.signal("INT");
    let (code, text) = running.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\"overview\""), "{text}");
}

#[test]
fn the_demo_ends_early_when_it_is_interrupted() {
    let workplace = Workplace::new();
    let running = workplace.start(["demo"]);
    running.line("the first event", |line| line.contains("sent"));
    running.signal("INT");
    let (code, text) = running.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Interrupted"), "{text}");
}
