//! What lies on the disk: a copy of the database must not let anybody sign in our name, or in.

use std::path::PathBuf;
use std::process::Command;

use postrider_promises::canary;
use postrider_promises::cluster::BINARIES_VARIABLE;
use serde_json::json;

use crate::leaks::{ENDPOINT_SECRET, HEADER, NEXT_SECRET, hexadecimal};
use crate::stage::{Stage, on_both};

on_both! {
    /// P20: secrets and the values of headers are sealed, keys are digests; the payload shows that the search finds.
    a_copy_of_the_database_opens_nothing
}

async fn a_copy_of_the_database_opens_nothing(stage: Stage) {
    let served = stage.serve(&["--no-dispatch"]).await;
    let endpoint = json!({
        "url": "http://127.0.0.1:9/",
        "secret": ENDPOINT_SECRET,
        "headers": { "authorization": HEADER, "x-team": HEADER },
    });
    let endpoint = served.api.post("/v1/endpoints", &endpoint).await;
    let id = endpoint["id"].as_str().unwrap();
    // The one before is kept, and signs beside it for a while.
    served.api.post(&format!("/v1/endpoints/{id}/rotate-secret"), &json!({ "secret": NEXT_SECRET })).await;
    let made = served.api.post(&format!("/v1/endpoints/{id}/rotate-secret"), &json!({})).await;
    let key = served.api.post("/v1/keys", &json!({ "name": "another", "scope": "write" })).await;
    served.api.send("a.b", 1).await;
    let first_key = served.api.key.clone();

    let mut secrets: Vec<String> = [made["secret"].as_str().unwrap(), ENDPOINT_SECRET, NEXT_SECRET]
        .iter()
        .map(|secret| secret.strip_prefix("whsec_").unwrap().to_owned())
        .collect();
    secrets.extend([HEADER, "canary-of-an-endpoint-0123456789", "canary-that-comes-next-012345678"].map(str::to_owned));
    secrets.extend([first_key, key["key"].as_str().unwrap().to_owned()]);
    secrets.extend([canary::SECRET_KEY, canary::SIGNING_SECRET].map(str::to_owned));

    // Once while the server runs, when much is still in the log of the database, and once after it has ended.
    look(&stage, &secrets);
    served.running.stopped().await;
    look(&stage, &secrets);
}

fn look(stage: &Stage, secrets: &[String]) {
    let copy = String::from_utf8_lossy(&copy(stage)).into_owned();
    assert!(contains(&copy, canary::PAYLOAD), "what is stored in clear is found");
    for secret in secrets {
        assert!(!contains(&copy, secret), "{secret} lies in the clear");
    }
}

/// As it is, and in hexadecimal, as a dump writes bytes.
fn contains(copy: &str, text: &str) -> bool {
    copy.contains(text) || copy.contains(&hexadecimal(text))
}

/// Everything that whoever has a backup has. The key beside the file of SQLite is not part of it.
fn copy(stage: &Stage) -> Vec<u8> {
    let Some(database) = &stage.database else {
        let file = stage.workplace.sqlite_file();
        let log = PathBuf::from(format!("{}-wal", file.display()));
        return [file, log].iter().flat_map(|file| std::fs::read(file).unwrap_or_default()).collect();
    };
    let binaries = std::env::var_os(BINARIES_VARIABLE).expect("scripts/with-postgres says where pg_dump is");
    // Behind the question mark are settings of another client.
    let url = database.url().split('?').next().unwrap();
    let output = Command::new(PathBuf::from(binaries).join("pg_dump")).arg(url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
