//! The configuration, value by value.

use std::ffi::OsString;
use std::path::PathBuf;

use super::*;
use crate::failure::Problem;

/// A folder with a configuration file, which is gone when the test ends.
struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postrider.toml");
    std::fs::write(&path, text).unwrap();
    File { _folder: folder, path }
}

fn load(text: &str, variables: &[(&str, &str)], flags: Flags) -> Result<Config, Problem> {
    let file = file(text);
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let layers = Layers::gather(Some(&file.path), variables, flags);
    layers.and_then(|layers| Config::resolve(&mut Reading::new(layers))).map_err(|failure| match failure {
        Failure::Told(problem) => *problem,
        other => panic!("{other:?}"),
    })
}

fn effective(config: &Config, key: Key) -> (Option<String>, String) {
    let found = config.effective().iter().find(|effective| effective.key == key).unwrap();
    (found.shown.clone(), found.source.to_string())
}

#[test]
fn the_defaults_are_those_of_the_reference() {
    let config = load("", &[], Flags::new()).unwrap();
    assert_eq!(config.database.to_string(), "sqlite://postrider.db");
    assert_eq!(config.lease, LeaseTerm::default());
    assert_eq!(config.retry_policy, RetryPolicy::default());
    assert_eq!(config.admission.max_payload_bytes, Admission::default().max_payload_bytes);
    assert_eq!((config.max_in_flight, config.max_in_flight_per_destination), (512, 64));
    assert_eq!((config.timeout, config.connect_timeout), (Duration::from_secs(15), Duration::from_secs(5)));
    assert_eq!(config.signature, SignatureScheme::Standard);
    assert!(config.signing_secrets.is_empty() && config.worker_id.is_none() && config.log_format.is_none());
    assert!(!config.admission.bare_destinations, "nothing goes out unsigned");
    assert_eq!(config.listen, "127.0.0.1:8400".parse().unwrap());
    let days = |count: u64| Some(Duration::from_hours(24 * count));
    assert_eq!((config.retention, config.disable_after), (days(30), days(5)));
    assert!(config.secret_keys.is_empty() && config.server.is_none() && config.api_key.is_none());
    let keys: Vec<Key> = config.effective().iter().map(|effective| effective.key).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, Key::ALL, "every key is told once");
    assert_eq!(keys, Key::ALL, "in the order of the reference");
}

#[test]
fn a_flag_overrides_a_variable_which_overrides_the_file() {
    let flag = || vec![(Key::Lease, "3s".to_owned())];
    let variable = [("POSTRIDER_LEASE", "2s")];
    let text = "lease = \"1s\"";
    for (text, variables, flags, lease, source) in [
        (text, &variable[..], flag(), "3s", "flag --lease"),
        (text, &variable[..], Flags::new(), "2s", "variable POSTRIDER_LEASE"),
        ("", &variable[..], Flags::new(), "2s", "variable POSTRIDER_LEASE"),
        ("", &[], Flags::new(), "30s", "default"),
    ] {
        let config = load(text, variables, flags).unwrap();
        assert_eq!(effective(&config, Key::Lease), (Some(lease.to_owned()), source.to_owned()));
        assert_eq!(duration::format(config.lease.lease()), lease);
    }
    let (shown, source) = effective(&load(text, &[], Flags::new()).unwrap(), Key::Lease);
    assert_eq!(shown.as_deref(), Some("1s"));
    assert!(source.starts_with("file ") && source.ends_with("postrider.toml"), "{source}");
}

#[test]
fn a_whole_file_is_read() {
    let config = load(
        r#"
        database = "postgres://app:hush@localhost/app"
        listen = "0.0.0.0:80"
        worker_id = "one"
        poll_interval = "250ms"
        max_in_flight = 10
        max_in_flight_per_destination = "4"
        name_servers = ["10.0.0.2", "[::1]:5353"]
        retry_schedule = ["1s", "1m30s"]
        max_attempts = 3
        retry_jitter = 0.5
        allowed_hosts = ["*.example.com"]
        allowed_networks = ["10.0.0.0/8", "127.0.0.0/8"]
        require_https = true
        signing_secret = "a secret of enough bytes"
        signature = "hmac-sha256-hex"
        header_prefix = "X-Acme-"
        signed = "body"
        secret_key = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
        retention = "7d"
        disable_after = "never"
        max_connections = 10
        request_timeout = "5s"
        trust_forwarded_proto = true
        dispatch_enabled = false
        log_format = "json"
        server = "https://postrider.example.com/hooks"
        api_key = "prk_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY"
        "#,
        &[],
        Flags::new(),
    )
    .unwrap();
    assert_eq!(config.retry_policy.max_attempts(), 3);
    assert_eq!(config.retry_policy.delays().collect::<Vec<_>>(), [Duration::from_secs(1), Duration::from_secs(90)]);
    assert_eq!((config.max_in_flight, config.max_in_flight_per_destination), (10, 4));
    assert!(!config.dispatch_enabled && config.log_format == Some(LogFormat::Json));
    assert_eq!(config.signature, SignatureScheme::hmac_sha256_hex("X-Acme-", Signed::Body).unwrap());
    assert_eq!(config.admission.destinations.allowed_networks().len(), 2);
    assert_eq!(effective(&config, Key::NameServers).0.as_deref(), Some("10.0.0.2:53,[::1]:5353"));
    assert!(config.admission.destinations.requires_https());
    assert_eq!(effective(&config, Key::SigningSecret).0.as_deref(), Some("****"));
    assert_eq!(effective(&config, Key::Database).0.as_deref(), Some("postgres://app:****@localhost/app"));
    assert_eq!((config.max_connections, config.request_timeout), (10, Duration::from_secs(5)));
    assert!(config.trust_forwarded_proto);
    assert_eq!((config.secret_keys.len(), config.disable_after), (1, None));
    assert_eq!(effective(&config, Key::SecretKey).0.as_deref(), Some("****"));
    assert_eq!(effective(&config, Key::ApiKey).0.as_deref(), Some("****"));
    assert_eq!(effective(&config, Key::Server).0.as_deref(), Some("https://postrider.example.com/hooks"));
    assert!(config.admission.bare_destinations);
    let shown = format!("{config:?} {:?}", config.effective());
    for secret in ["hush", "enough bytes", "QUJDREV"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn lists_are_comma_separated_in_variables_and_flags() {
    let variables = [("POSTRIDER_RETRY_SCHEDULE", "1s, 2s,3s"), ("POSTRIDER_ALLOWED_NETWORKS", "")];
    let config = load("allowed_networks = [\"10.0.0.0/8\"]", &variables, Flags::new()).unwrap();
    assert_eq!(effective(&config, Key::RetrySchedule).0.as_deref(), Some("1s,2s,3s"));
    assert!(config.admission.destinations.allowed_networks().is_empty(), "an empty variable empties the list");
}

/// One wrong value of every key, and a word of the reason.
#[test]
fn every_invalid_value_is_named_with_its_key_its_source_and_the_reason() {
    let cases = [
        (Key::Database, "mysql://x", "sqlite:// or postgres://"),
        (Key::Listen, "localhost", "IP address and a port"),
        (Key::WorkerId, "two words", "printable ASCII"),
        (Key::Lease, "100ms", "lease_too_short"),
        (Key::PollInterval, "1ms", "from 10ms to 1h"),
        (Key::MaxInFlight, "0", "from 1 to 100000"),
        (Key::MaxInFlightPerDestination, "many", "from 1 to 100000"),
        (Key::Timeout, "15", "the unit is missing"),
        (Key::ConnectTimeout, "2h", "from 1ms to 1h"),
        (Key::NameServers, "10.0.0.2,resolver", "each must be an IP address"),
        (Key::RetrySchedule, "30s,later", "`later`: not a duration"),
        (Key::MaxAttempts, "0", "from 1 to 1000"),
        (Key::RetryJitter, "2", "from 0 to 1"),
        (Key::MaxPayloadBytes, "-1", "from 1 to"),
        (Key::KeptResponseBytes, "99999999999", "from 0 to 1048576"),
        (Key::AllowedHosts, "a..b", "a..b"),
        (Key::AllowedNetworks, "10.0.0.0/99", "10.0.0.0/99"),
        (Key::RequireHttps, "yes", "true or false"),
        (Key::SigningSecret, "canary", "16 to 256 bytes"),
        (Key::Signature, "md5", "standard or hmac-sha256-hex"),
        (Key::HeaderPrefix, "a b", "cannot begin the name of a header"),
        (Key::Signed, "everything", "timestamp.body"),
        (Key::SecretKey, "canary", "32 bytes in base64"),
        (Key::Retention, "1s", "from 1h"),
        (Key::DisableAfter, "1s", "from 1m to 36500d; or never"),
        (Key::DrainTimeout, "48h", "from 0s to 1d"),
        (Key::MaxAbandoned, "0", "from 1 to 1000"),
        (Key::DispatchEnabled, "1", "true or false"),
        (Key::MaxConnections, "0", "from 1 to"),
        (Key::RequestTimeout, "1ms", "from 100ms to 1h"),
        (Key::TrustForwardedProto, "1", "true or false"),
        (Key::LogFormat, "xml", "pretty or json"),
        (Key::Server, "127.0.0.1:8400", "a URL such as http://127.0.0.1:8400"),
        (Key::ApiKey, "canary", "begins with `prk_`"),
    ];
    assert_eq!(cases.map(|(key, ..)| key), Key::ALL, "every key has a case");
    for (key, value, reason) in cases {
        let problem = load("", &[(&key.variable(), value)], Flags::new()).unwrap_err();
        assert_eq!((problem.exit, problem.code.as_str()), (Exit::Refused, "config_value_invalid"), "{key}");
        let message = &problem.message;
        assert!(message.contains(key.name()) && message.contains(&key.variable()), "{message}");
        assert!(message.contains(reason), "{key}: {message}");
        assert_eq!(message.contains(value), !key.is_secret() && key != Key::Database, "{message}");
    }
}

#[test]
fn secrets_and_keys_may_be_several_the_newest_first() {
    let (new, old) = (Secret::generate(), Secret::generate());
    let (first, second) = (SecretKey::generate(), SecretKey::generate());
    let secrets = format!("{}, {}", new.reveal(), old.reveal());
    let keys = format!("{},{}", first.reveal(), second.reveal());
    let variables = [("POSTRIDER_SIGNING_SECRET", secrets.as_str()), ("POSTRIDER_SECRET_KEY", keys.as_str())];
    let config = load("", &variables, Flags::new()).unwrap();
    assert_eq!(config.signing_secrets, [new.clone(), old.clone()]);
    assert_eq!(config.secret_keys, [first.clone(), second.clone()]);
    assert_eq!(effective(&config, Key::SigningSecret).0.as_deref(), Some("****,****"));
    let text = format!(
        "signing_secret = [\"{}\", \"{}\"]\nsecret_key = [\"{}\", \"{}\"]",
        new.reveal(),
        old.reveal(),
        first.reveal(),
        second.reveal()
    );
    let config = load(&text, &[], Flags::new()).unwrap();
    assert_eq!((config.signing_secrets, config.secret_keys), (vec![new, old], vec![first, second]));
    let variables = [("POSTRIDER_SIGNING_SECRET", "a plain secret, with commas, is one")];
    assert_eq!(load("", &variables, Flags::new()).unwrap().signing_secrets.len(), 1);
    for empty in ["secret_key = []", "secret_key = \"\""] {
        assert!(load(empty, &[], Flags::new()).unwrap_err().message.contains("empty"), "{empty}");
    }
}

#[test]
fn a_database_that_was_named_is_meant_whatever_server_is_known() {
    let variable = [("POSTRIDER_SERVER", "http://127.0.0.1:8400")];
    let database = || vec![(Key::Database, "sqlite://a.db".to_owned())];
    assert!(load("", &variable, Flags::new()).unwrap().server.is_some());
    assert!(load("database = \"sqlite://a.db\"", &variable, Flags::new()).unwrap().server.is_some());
    assert!(load("", &variable, database()).unwrap().server.is_none());
}

/// The file in the documentation says what holds without it, and leaves no key out.
#[test]
fn the_documented_file_has_every_key_with_its_default() {
    let text = include_str!("../../../../docs/postrider.toml");
    let documented = load(text, &[], Flags::new()).unwrap();
    let defaults = load("", &[], Flags::new()).unwrap();
    for (documented, default) in documented.effective().iter().zip(defaults.effective()) {
        let key = default.key;
        assert_eq!(documented.shown, default.shown, "{key}");
        let line = format!("{key} = ");
        let line = if default.shown.is_some() { line } else { format!("# {line}") };
        assert!(text.lines().any(|other| other.starts_with(&line)), "{key} is missing");
    }
}

#[test]
fn relations_between_keys_are_checked() {
    let problem = load("retry_schedule = []", &[], Flags::new()).unwrap_err();
    assert!(problem.message.contains("retry_schedule") && problem.message.contains("5 attempts"), "{problem}");
    assert!(load("retry_schedule = []\nmax_attempts = 1", &[], Flags::new()).is_ok());
}

#[test]
fn parameters_of_a_scheme_that_is_not_in_use_are_a_mistake_unless_a_stronger_source_chose_the_scheme() {
    let problem = load("header_prefix = \"X-Acme-\"", &[], Flags::new()).unwrap_err();
    assert!(problem.message.contains("header_prefix") && problem.message.contains("no meaning"), "{problem}");
    let hex = "signature = \"hmac-sha256-hex\"\nheader_prefix = \"X-Acme-\"";
    let config = load(hex, &[], vec![(Key::Signature, "standard".to_owned())]).unwrap();
    assert_eq!(config.signature, SignatureScheme::Standard);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    let problem = load("leese = \"30s\"", &[], Flags::new()).unwrap_err();
    assert_eq!((problem.exit, problem.code.as_str()), (Exit::Refused, "config_key_unknown"));
    assert!(problem.message.contains("`leese`"), "{problem}");
    assert_eq!(problem.hint.as_deref(), Some("did you mean `lease`?"));
}

#[test]
fn what_is_no_toml_is_refused_with_its_place_and_without_quoting_it() {
    let problem = load("lease = \"30s\"\nsigning_secret = canary_value", &[], Flags::new()).unwrap_err();
    assert_eq!(problem.code, "config_not_toml");
    assert!(problem.message.contains("line 2") && !problem.message.contains("canary_value"), "{problem}");
}

#[test]
fn wrong_kinds_of_values_are_refused() {
    for (text, key) in [
        ("lease = 30", "lease"),
        ("lease = [\"30s\"]", "lease"),
        ("allowed_hosts = 3", "allowed_hosts"),
        ("allowed_hosts = [3]", "allowed_hosts"),
        ("[lease]\nx = 1", "lease"),
        ("retention = 2026-02-21", "retention"),
        ("allowed_hosts = [\"\"]", "allowed_hosts"),
    ] {
        let problem = load(text, &[], Flags::new()).unwrap_err();
        assert_eq!(problem.code, "config_value_invalid", "{text}");
        assert!(problem.message.contains(key), "{problem}");
    }
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let layers = Layers::gather(Some(Path::new("/nonexistent/postrider.toml")), [], Flags::new());
    let Err(Failure::Told(problem)) = layers else { panic!("it is refused") };
    assert_eq!((problem.exit, problem.code.as_str()), (Exit::Usage, "config_unreadable"));
}
