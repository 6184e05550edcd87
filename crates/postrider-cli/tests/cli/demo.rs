//! The README's first command.

use crate::support::Workplace;

#[test]
fn the_demo_ends_by_itself_with_deliveries_retries_and_one_dead_letter() {
    let workplace = Workplace::new();
    let done = workplace.run(["demo"]).succeeds();
    // Announcements begin with their time and rows of the table with an id; sentences begin with neither.
    let fact = |line: &&str| line.starts_with(' ') || line.starts_with("dlv_");
    let word = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    let words: Vec<String> = done.stdout.lines().filter(fact).filter_map(word).collect();
    let count = |word: &str| words.iter().filter(|other| *other == word).count();
    assert_eq!(count("sent"), 8, "{}", done.stdout);
    // Once when it is announced, and once in the closing table.
    assert_eq!(count("delivered"), 14, "{}", done.stdout);
    assert_eq!(count("dead"), 2, "{}", done.stdout);
    assert!(count("failed") >= 7, "{}", done.stdout);
    assert_eq!(done.stderr, "");
    assert!(std::fs::read_dir(workplace.path()).unwrap().next().is_none(), "nothing is left behind");
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
