//! `postrider.toml`: any text is a configuration, or an error with a code that shows no secret.

use std::process::Output;

use postrider_promises::canary;
use postrider_promises::process::Workplace;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use super::{cases, is_code};

/// Keys whose values are never shown.
const SECRET: [&str; 3] = ["signing_secret", "secret_key", "api_key"];

struct Reader(Workplace);

impl Reader {
    fn new() -> Self {
        Self(Workplace::on_sqlite())
    }

    /// What `postrider config` makes of a file, with no variable set that would override it.
    fn read(&self, text: &str) -> Output {
        let file = self.0.path().join("tried.toml");
        std::fs::write(&file, text).unwrap();
        let mut command = self.0.command(["config", "--json", "--config", file.to_str().unwrap()]);
        for name in ["DATABASE", "ALLOWED_NETWORKS", "SIGNING_SECRET", "SECRET_KEY"] {
            command.env_remove(format!("POSTRIDER_{name}"));
        }
        command.output().unwrap()
    }

    /// Every key that there is.
    fn keys(&self) -> Vec<String> {
        let output = self.read("");
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        let entries = shown.as_array().or_else(|| shown["data"].as_array()).unwrap_or_else(|| panic!("{shown}"));
        let keys: Vec<String> = entries.iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect();
        assert!(keys.len() >= 30 && SECRET.iter().all(|secret| keys.iter().any(|key| key == secret)), "{keys:?}");
        keys
    }

    fn judge(&self, text: &str) -> Result<(), TestCaseError> {
        let output = self.read(text);
        let told = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        prop_assert!(canary::shown_in(&told.concat()).is_empty(), "a secret is shown for {:?}", text);
        match output.status.code() {
            Some(0) => prop_assert!(serde_json::from_str::<Value>(&told[0]).is_ok(), "{}", told[0]),
            Some(2 | 4) => {
                let problem: Value = serde_json::from_str(&told[1]).unwrap_or_default();
                let code = problem["code"].as_str().or_else(|| problem["error"]["code"].as_str()).unwrap_or_default();
                prop_assert!(is_code(code), "{:?}: {}", text, told[1]);
            }
            other => prop_assert!(false, "{:?} ends it with {:?}: {}", text, other, told[1]),
        }
        Ok(())
    }
}

fn value(is_secret: bool) -> BoxedStrategy<String> {
    let text = if is_secret {
        prop::sample::select(vec![canary::SIGNING_SECRET, canary::SECRET_KEY]).prop_map(str::to_owned).boxed()
    } else {
        let usual = [
            "",
            "30s",
            "0s",
            "500ms",
            "1h30m",
            "30d",
            "never",
            "-1s",
            "99999999999d",
            "5",
            "-5",
            "1e9",
            "0.5",
            "NaN",
            "true",
            "json",
            "standard",
            "hmac-sha256-hex",
            "body",
            "127.0.0.1:0",
            "[::1]:99999",
            "10.0.0.0/8",
            "::/0",
            "*.good.com",
            "30s,2m",
            ",,",
            "postgres://u:p@h/d",
            "postgres://%zz",
            "sqlite://x.db",
            "sqlite:",
            "mysql://x",
            "http://a",
            "X-Acme-",
            "webhook-",
            "\u{1f984}",
        ];
        prop_oneof![prop::sample::select(usual.to_vec()).prop_map(str::to_owned), any::<String>()].boxed()
    };
    let quoted = text.prop_map(|text| toml_text(&text));
    let bare = prop::sample::select(vec![
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "1.5",
        "inf",
        "nan",
        "true",
        "1979-05-27",
        "{}",
        "[]",
        "[1]",
        "?",
        "",
    ]);
    let list = prop::collection::vec(quoted.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", ")));
    let table = quoted.clone().prop_map(|text| format!("{{ a = {text} }}"));
    // The quote that is missing is where a library would show the line.
    let open = quoted.clone().prop_map(|mut text| {
        text.pop();
        text
    });
    let bare = bare.prop_map(str::to_owned);
    prop_oneof![4 => quoted, 2 => bare, 2 => list, 1 => table, 1 => open].boxed()
}

fn toml_text(text: &str) -> String {
    let escape = |character: char| match character {
        '"' | '\\' => format!("\\{character}"),
        character if character.is_control() => format!("\\u{:04X}", u32::from(character)),
        character => character.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// P20 as well: whatever is wrong with a file, the secrets in it are not shown.
#[test]
fn every_configuration_file_holds_or_is_refused_by_a_code_and_shows_no_secret() {
    let reader = Reader::new();
    let line = prop::sample::select(reader.keys()).prop_flat_map(|key| {
        let is_secret = SECRET.contains(&key.as_str());
        value(is_secret).prop_map(move |value| format!("{key} = {value}\n"))
    });
    let file = prop_oneof![
        6 => prop::collection::vec(line, 1..4).prop_map(|lines| lines.concat()),
        1 => any::<String>(),
        1 => "[ -~\n]{0,80}",
    ];
    TestRunner::new(cases(150)).run(&file, |text| reader.judge(&text)).unwrap();
}
