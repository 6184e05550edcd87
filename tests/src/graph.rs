//! Who may depend on whom.

use crate::cargo::{Built, Package};

/// Packages that speak to a database. A name that ends in `*` stands for all that begin so.
const DATABASE_DRIVERS: &[&str] = &[
    "sqlx*",
    "rusqlite*",
    "libsqlite3-sys",
    "sqlite*",
    "tokio-postgres*",
    "postgres",
    "postgres-*",
    "postgres_*",
    "tokio-rusqlite",
    "deadpool*",
    "bb8*",
    "r2d2*",
    "diesel*",
    "sea-orm*",
    "sea-query*",
    "mysql*",
    "redis*",
    "fred",
    "mongodb",
    "libsql*",
    "duckdb",
    "sled",
    "rocksdb",
    "redb",
];

/// Packages that serve HTTP.
const WEB_FRAMEWORKS: &[&str] = &[
    "axum*",
    "actix*",
    "warp",
    "rocket*",
    "tide",
    "tower-http",
    "poem*",
    "salvo*",
    "gotham",
    "ntex*",
    "thruster",
    "tiny_http",
    "rouille",
    "dropshot",
    "viz",
    "hyper-server",
];

/// The engine links neither a database driver nor anything that serves HTTP.
pub fn engine_complaints(closure: &[Built]) -> Vec<String> {
    let mut complaints = Vec::new();
    for built in closure {
        if matches_any(DATABASE_DRIVERS, &built.name) {
            complaints.push(format!("the engine links the database driver {}", built.name));
        }
        if matches_any(WEB_FRAMEWORKS, &built.name) {
            complaints.push(format!("the engine links the web framework {}", built.name));
        }
        let serves = |feature: &String| feature == "server" || feature.starts_with("server-");
        if built.name.starts_with("hyper") && built.features.iter().any(serves) {
            complaints.push(format!("the engine turns on the server of {}", built.name));
        }
    }
    complaints
}

fn matches_any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *pattern,
    })
}

/// The arrows between members: stores and the server stand on the engine and not on each other, crates never on
/// applications.
pub fn member_complaints(members: &[&Package]) -> Vec<String> {
    const STORES: [&str; 2] = ["postrider-postgres", "postrider-sqlite"];
    const SERVER: &str = "postrider-server";
    let mut complaints = Vec::new();
    let asks_for = |package: &Package, name: &str, also_for_tests: bool| {
        package.dependencies.iter().any(|asked| asked.name == name && (also_for_tests || asked.kind.is_none()))
    };
    let find = |name: &str| members.iter().find(|package| package.name == name);
    for store in STORES {
        let Some(package) = find(store) else {
            complaints.push(format!("there is no {store}"));
            continue;
        };
        if !asks_for(package, "postrider", false) {
            complaints.push(format!("{store} does not depend on the engine"));
        }
        for other in STORES.into_iter().filter(|other| *other != store) {
            if asks_for(package, other, true) {
                complaints.push(format!("{store} depends on {other}"));
            }
        }
        if let Some(engine) = find("postrider")
            && asks_for(engine, store, false)
        {
            complaints.push(format!("the engine depends on {store}"));
        }
        if let Some(server) = find(SERVER)
            && asks_for(server, store, false)
        {
            complaints.push(format!("{SERVER} depends on {store}"));
        }
        if asks_for(package, SERVER, true) {
            complaints.push(format!("{store} depends on {SERVER}"));
        }
        if let Some(binary) = find("postrider-cli")
            && !asks_for(binary, store, false)
        {
            complaints.push(format!("the binary does not depend on {store}"));
        }
    }
    for package in members.iter().filter(|package| package.manifest_path.contains("/crates/")) {
        for asked in &package.dependencies {
            if asked.path.as_deref().is_some_and(|path| path.contains("/apps/")) {
                complaints.push(format!("{} depends on the application {}", package.name, asked.name));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Dependency;

    fn built(name: &str, features: &[&str]) -> Built {
        Built {
            name: name.into(),
            version: "1.0.0".into(),
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
        }
    }

    fn package(name: &str, folder: &str, asks_for: &[(&str, Option<&str>, &str)]) -> Package {
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            license: None,
            source: None,
            manifest_path: format!("/repository/{folder}/{name}/Cargo.toml"),
            dependencies: asks_for
                .iter()
                .map(|(name, kind, folder)| Dependency {
                    name: (*name).to_owned(),
                    kind: kind.map(str::to_owned),
                    path: Some(format!("/repository/{folder}/{name}")),
                })
                .collect(),
        }
    }

    #[test]
    fn drivers_frameworks_and_a_server_are_found_in_the_engine() {
        let innocent = [built("tokio", &["net"]), built("hyper", &["client", "http1"]), built("postrider", &[])];
        assert!(engine_complaints(&innocent).is_empty());
        for name in ["sqlx-core", "rusqlite", "libsqlite3-sys", "tokio-postgres", "diesel", "redis", "postgres-types"] {
            assert_eq!(
                engine_complaints(&[built(name, &[])]),
                [format!("the engine links the database driver {name}")]
            );
        }
        for name in ["axum", "actix-web", "warp", "tower-http"] {
            assert_eq!(engine_complaints(&[built(name, &[])]), [format!("the engine links the web framework {name}")]);
        }
        assert_eq!(
            engine_complaints(&[built("hyper", &["client", "server"])]),
            ["the engine turns on the server of hyper"]
        );
        assert_eq!(engine_complaints(&[built("hyper-util", &["server-auto"])]).len(), 1);
    }

    #[test]
    fn arrows_that_point_the_wrong_way_are_found() {
        let engine = ("postrider", None, "crates");
        let sqlite = ("postrider-sqlite", None, "crates");
        let postgres = ("postrider-postgres", None, "crates");
        let check = |engine_asks: &[_], postgres_asks: &[_], cli_asks: &[_]| {
            let members = [
                package("postrider-server", "crates", &[engine, ("postrider-sqlite", Some("dev"), "crates")]),
                package("postrider", "crates", engine_asks),
                package("postrider-postgres", "crates", postgres_asks),
                package("postrider-sqlite", "crates", &[engine]),
                package("postrider-cli", "crates", cli_asks),
            ];
            member_complaints(&members.iter().collect::<Vec<_>>())
        };
        assert!(check(&[], &[engine], &[postgres, sqlite]).is_empty());
        assert_eq!(check(&[], &[], &[postgres, sqlite]), ["postrider-postgres does not depend on the engine"]);
        assert_eq!(
            check(&[], &[engine, ("postrider-sqlite", Some("dev"), "crates")], &[postgres, sqlite]),
            ["postrider-postgres depends on postrider-sqlite"]
        );
        assert_eq!(check(&[sqlite], &[engine], &[postgres, sqlite]), ["the engine depends on postrider-sqlite"]);
        assert_eq!(check(&[], &[engine], &[postgres]), ["the binary does not depend on postrider-sqlite"]);
        let server = ("postrider-server", Some("dev"), "crates");
        assert_eq!(
            check(&[], &[engine, server], &[postgres, sqlite]),
            ["postrider-postgres depends on postrider-server"]
        );
        let tied = [
            package("postrider-server", "crates", &[engine, postgres]),
            package("postrider-postgres", "crates", &[engine]),
            package("postrider-sqlite", "crates", &[engine]),
        ];
        let complaints = member_complaints(&tied.iter().collect::<Vec<_>>());
        assert_eq!(complaints, ["postrider-server depends on postrider-postgres"]);
        assert_eq!(
            check(&[], &[engine], &[postgres, sqlite, ("shop", Some("dev"), "apps")]),
            ["postrider-cli depends on the application shop"]
        );
        assert_eq!(member_complaints(&[]).len(), 2);
    }
}
