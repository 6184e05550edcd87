//! What an operator should know about the database.
//!
//! Facts are read first, then judged by functions of those facts alone. Each check is told, also when it is good: a
//! diagnosis that says nothing about autovacuum has not looked at it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::{Finding, FindingLevel};
use postrider::{EndpointId, EndpointSettings, StoreErrorCode};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::{Result, store_error};
use crate::values::Columns as _;

/// The oldest major version that is supported, as Postgres numbers them.
const OLDEST_VERSION: i32 = 150_000;
/// A transaction that is open for longer keeps vacuum from removing what queues leave behind.
const LONG_TRANSACTION: Duration = Duration::from_mins(5);
/// More of the allowed connections than this is tight.
const TIGHT_CONNECTIONS_PERCENT: i64 = 80;
/// Transaction ids run out at two thousand million.
const OLD_TRANSACTION_IDS: i64 = 1_200_000_000;
/// A clock that is further off than this.
const CLOCK_OFF: SignedDuration = SignedDuration::from_secs(2);
/// The tables that turn over all the time, with more dead rows than this, are not vacuumed as they should be.
const MANY_DEAD_ROWS: i64 = 500_000;
const QUEUES: [&str; 4] = ["ready", "scheduled", "leases", "meters"];
/// A queue this large, with rows that would fit a tenth of it, has grown while vacuum was held back.
const BLOATED_BYTES: i64 = 256 << 20;
const GENEROUS_ROW_BYTES: i64 = 256;
/// How many endpoints are read at a time.
const ENDPOINTS_AT_ONCE: i32 = 1000;

fn good(check: &'static str, detail: impl Into<String>) -> Finding {
    Finding { check, level: FindingLevel::Ok, detail: detail.into(), hint: None }
}

fn warning(check: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Finding {
    Finding { check, level: FindingLevel::Warning, detail: detail.into(), hint: Some(hint.into()) }
}

fn problem(check: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Finding {
    Finding { level: FindingLevel::Problem, ..warning(check, detail, hint) }
}

/// A server, as it says of itself.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "they are settings, and as independent here as they are there")]
struct Server {
    version: String,
    version_number: i32,
    is_read_only: bool,
    fsyncs: bool,
    writes_full_pages: bool,
    commits_synchronously: bool,
    autovacuums: bool,
    connections_allowed: i64,
    connections_used: i64,
    transaction_id_age: i64,
    oldest_transaction: Option<Duration>,
    oldest_prepared: Option<Duration>,
    idle_slots: Vec<String>,
    /// How far its clock is ahead of this machine's.
    clock_ahead: SignedDuration,
}

impl Server {
    fn of(row: &PgRow, asked_at: Timestamp, answered_at: Timestamp) -> Result<Self> {
        let seconds = |name| -> Result<Option<Duration>> {
            let seconds: Option<i64> = row.value(name)?;
            Ok(seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
        };
        let here = asked_at + answered_at.duration_since(asked_at) / 2;
        Ok(Self {
            version: row.value("version")?,
            version_number: row.value("version_number")?,
            is_read_only: row.value("is_read_only")?,
            fsyncs: row.value("fsyncs")?,
            writes_full_pages: row.value("writes_full_pages")?,
            commits_synchronously: row.value("commits_synchronously")?,
            autovacuums: row.value("autovacuums")?,
            connections_allowed: row.value::<i32>("connections_allowed")?.into(),
            connections_used: row.value("connections_used")?,
            transaction_id_age: row.value("transaction_id_age")?,
            oldest_transaction: seconds("oldest_transaction_s")?,
            oldest_prepared: seconds("oldest_prepared_s")?,
            idle_slots: row.value("idle_slots")?,
            clock_ahead: row.instant("at")?.duration_since(here),
        })
    }

    fn findings(&self) -> Vec<Finding> {
        vec![
            self.database_version(),
            self.writable(),
            self.durability(),
            self.long_transactions(),
            self.connections(),
            self.transaction_ids(),
            self.clock(),
        ]
    }

    fn database_version(&self) -> Finding {
        let detail = format!("Postgres {}", self.version);
        if self.version_number < OLDEST_VERSION {
            return problem("database_version", detail, "use Postgres 15 or later");
        }
        good("database_version", detail)
    }

    fn writable(&self) -> Finding {
        if self.is_read_only {
            let hint = "name the primary in the database URL, and see that default_transaction_read_only is off";
            return problem("writable", "the database takes no writes: it is a standby, or was set to read only", hint);
        }
        good("writable", "the database takes writes")
    }

    fn durability(&self) -> Finding {
        let off = [
            ("fsync", self.fsyncs, "set it on: a crash of the machine damages the database without it"),
            ("full_page_writes", self.writes_full_pages, "set it on: a crash of the machine may damage the database"),
            (
                "synchronous_commit",
                self.commits_synchronously,
                "set it on: a crash loses events that were acknowledged",
            ),
        ];
        match off.into_iter().find(|(_, is_on, _)| !is_on) {
            Some((name, _, hint)) => problem("durability", format!("{name} is off"), hint),
            None => good("durability", "what is committed survives a crash"),
        }
    }

    fn long_transactions(&self) -> Finding {
        let check = "long_transactions";
        let is_long = |age: &Option<Duration>| age.filter(|age| *age > LONG_TRANSACTION);
        if let Some(age) = is_long(&self.oldest_prepared) {
            let hint = "commit or roll back what pg_prepared_xacts shows";
            return warning(
                check,
                format!("a prepared transaction is {} s old: vacuum waits for it", age.as_secs()),
                hint,
            );
        }
        if let Some(age) = is_long(&self.oldest_transaction) {
            let hint = "see xact_start in pg_stat_activity, and set idle_in_transaction_session_timeout";
            return warning(check, format!("a transaction is open for {} s: vacuum waits for it", age.as_secs()), hint);
        }
        if !self.idle_slots.is_empty() {
            let detail = format!("replication slots that nobody uses: {}", self.idle_slots.join(", "));
            return warning(
                check,
                detail,
                "drop them with pg_drop_replication_slot, or start who should be using them",
            );
        }
        good(check, "no transaction holds vacuum back")
    }

    fn connections(&self) -> Finding {
        let detail = format!("{} of {} connections are used", self.connections_used, self.connections_allowed);
        if self.connections_used * 100 > self.connections_allowed * TIGHT_CONNECTIONS_PERCENT {
            let hint = "raise max_connections, put a pooler in session mode in front, or run fewer processes";
            return warning("connections", detail, hint);
        }
        good("connections", detail)
    }

    fn transaction_ids(&self) -> Finding {
        let detail = format!("the oldest transaction id is {} million old", self.transaction_id_age / 1_000_000);
        if self.transaction_id_age > OLD_TRANSACTION_IDS {
            let hint = "run VACUUM in this database: it stops at 2,000 million";
            return warning("transaction_ids", detail, hint);
        }
        good("transaction_ids", detail)
    }

    fn clock(&self) -> Finding {
        let off = self.clock_ahead;
        let side = if off.is_negative() { "behind" } else { "ahead of" };
        let detail = format!("the database's clock is {} ms {side} this machine's", off.abs().as_millis());
        if off.abs() > CLOCK_OFF {
            let hint = "let both follow a time server: receivers refuse signatures whose time is off by minutes";
            return warning("clock", detail, hint);
        }
        good("clock", detail)
    }
}

/// A table of Postrider's.
#[derive(Debug, Clone)]
struct Table {
    name: String,
    is_never_vacuumed: bool,
    live: i64,
    dead: i64,
    bytes: i64,
}

impl Table {
    fn of(row: &PgRow) -> Result<Self> {
        Ok(Self {
            name: row.value("name")?,
            is_never_vacuumed: row.value("is_never_vacuumed")?,
            live: row.value("live")?,
            dead: row.value("dead")?,
            bytes: row.value("bytes")?,
        })
    }

    fn is_queue(&self) -> bool {
        QUEUES.contains(&self.name.as_str())
    }

    fn is_bloated(&self) -> bool {
        self.bytes > BLOATED_BYTES && self.live * GENEROUS_ROW_BYTES * 10 < self.bytes
    }
}

fn autovacuum(server_does: bool, tables: &[Table]) -> Finding {
    if !server_does {
        let hint = "set autovacuum and track_counts on: queues that are not vacuumed slow every claim";
        return problem("autovacuum", "autovacuum does not run", hint);
    }
    let off: Vec<&str> =
        tables.iter().filter(|table| table.is_never_vacuumed).map(|table| table.name.as_str()).collect();
    if !off.is_empty() {
        let detail = format!("autovacuum is switched off for {}", off.join(", "));
        return problem("autovacuum", detail, "alter table postrider.… reset (autovacuum_enabled)");
    }
    good("autovacuum", "autovacuum runs, for every table")
}

fn queues(tables: &[Table]) -> Finding {
    let mut those = tables.iter().filter(|table| table.is_queue());
    if let Some(table) = those.clone().find(|table| table.dead > MANY_DEAD_ROWS) {
        let detail = format!("postrider.{} has {} dead rows beside {} live ones", table.name, table.dead, table.live);
        let hint = "look for a long transaction; then: vacuum postrider.ready, postrider.scheduled, postrider.leases";
        return warning("queues", detail, hint);
    }
    if let Some(table) = those.find(|table| table.is_bloated()) {
        let detail = format!("postrider.{} takes {} MB for {} rows", table.name, table.bytes >> 20, table.live);
        let hint = format!("in a quiet moment: vacuum full postrider.{}", table.name);
        return warning("queues", detail, hint);
    }
    good("queues", "the queues are tidy")
}

/// How the secrets of endpoints are.
#[derive(Debug, Clone, Default)]
struct Secrets {
    endpoints: u64,
    unreadable: Vec<EndpointId>,
    under_older_key: u64,
}

impl Secrets {
    fn findings(&self) -> Vec<Finding> {
        let count = self.endpoints;
        let readable = match self.unreadable.first() {
            None => good("endpoint_settings", format!("the settings of all {count} endpoints can be read")),
            Some(first) => problem(
                "endpoint_settings",
                format!(
                    "the settings of {} of {count} endpoints cannot be read, {first} among them",
                    self.unreadable.len()
                ),
                "set the secret_key they were encrypted with, or give them new secrets",
            ),
        };
        let sealed = match self.under_older_key {
            0 => good("secret_key", "all secrets that can be read are encrypted with the current key"),
            older => warning(
                "secret_key",
                format!("the secrets of {older} endpoints are encrypted with an older key"),
                "encrypt them anew before the older key is taken away",
            ),
        };
        vec![readable, sealed]
    }
}

impl PostgresStore {
    pub(crate) async fn find_trouble(&self) -> Result<Vec<Finding>> {
        let asked_at = Timestamp::now();
        let failed = || store_error("looking at the database");
        let row =
            sqlx::query(include_str!("../sql/diagnose_server.sql")).fetch_one(self.pool()).await.map_err(failed())?;
        let server = Server::of(&row, asked_at, Timestamp::now())?;
        let mut findings = server.findings();
        match self.check_schema().await {
            Ok(()) => findings.push(good("schema", "the schema is the one that this program knows")),
            Err(error) if error.code == StoreErrorCode::Schema => {
                findings.push(problem(
                    "schema",
                    error.message,
                    "run `postrider migrate`, or the version that it belongs to",
                ));
                return Ok(findings);
            }
            Err(error) => return Err(error),
        }
        let rows =
            sqlx::query(include_str!("../sql/diagnose_tables.sql")).fetch_all(self.pool()).await.map_err(failed())?;
        let tables = rows.iter().map(Table::of).collect::<Result<Vec<_>>>()?;
        findings.push(autovacuum(server.autovacuums, &tables));
        findings.push(queues(&tables));
        findings.push(self.dispatching().await?);
        findings.extend(self.look_at_secrets().await?.findings());
        Ok(findings)
    }

    async fn dispatching(&self) -> Result<Finding> {
        let row = sqlx::query(include_str!("../sql/diagnose_leases.sql"))
            .bind(self.now())
            .fetch_one(self.pool())
            .await
            .map_err(store_error("looking at leases"))?;
        Ok(match row.value::<i64>("count")? {
            0 => good("dispatching", "no lease was left behind"),
            left => warning(
                "dispatching",
                format!("{left} leases expired more than a minute ago, and nobody has taken them back"),
                "run a dispatcher: `postrider serve` or `postrider dispatch`",
            ),
        })
    }

    async fn look_at_secrets(&self) -> Result<Secrets> {
        let mut secrets = Secrets::default();
        let mut last = Uuid::nil();
        loop {
            let rows = sqlx::query(include_str!("../sql/diagnose_endpoints.sql"))
                .bind(last)
                .bind(ENDPOINTS_AT_ONCE)
                .fetch_all(self.pool())
                .await
                .map_err(store_error("looking at endpoints"))?;
            for row in &rows {
                last = row.value("id")?;
                let (tenant, settings): (&str, &str) = (row.value("tenant")?, row.value("settings")?);
                secrets.endpoints += 1;
                if EndpointSettings::from_stored(settings, &self.keyring, tenant).is_err() {
                    secrets.unreadable.push(EndpointId::from_uuid(last));
                } else if !EndpointSettings::is_sealed_with_current_key(settings, &self.keyring) {
                    secrets.under_older_key += 1;
                }
            }
            if rows.is_empty() {
                return Ok(secrets);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Server {
        Server {
            version: "17.2".to_owned(),
            version_number: 170_002,
            is_read_only: false,
            fsyncs: true,
            writes_full_pages: true,
            commits_synchronously: true,
            autovacuums: true,
            connections_allowed: 100,
            connections_used: 12,
            transaction_id_age: 50_000_000,
            oldest_transaction: Some(Duration::from_secs(2)),
            oldest_prepared: None,
            idle_slots: Vec::new(),
            clock_ahead: SignedDuration::from_millis(-3),
        }
    }

    fn bad(server: &Server) -> Vec<(&'static str, FindingLevel)> {
        let findings = server.findings().into_iter().filter(|finding| finding.level != FindingLevel::Ok);
        findings.map(|finding| (finding.check, finding.level)).collect()
    }

    #[test]
    fn each_thing_that_is_wrong_is_found_alone() {
        use FindingLevel::{Problem, Warning};
        assert_eq!(bad(&sound()), []);
        assert_eq!(bad(&Server { version_number: 140_020, ..sound() }), [("database_version", Problem)]);
        assert_eq!(bad(&Server { is_read_only: true, ..sound() }), [("writable", Problem)]);
        assert_eq!(bad(&Server { fsyncs: false, ..sound() }), [("durability", Problem)]);
        assert_eq!(bad(&Server { commits_synchronously: false, ..sound() }), [("durability", Problem)]);
        let long = Some(Duration::from_secs(301));
        assert_eq!(bad(&Server { oldest_transaction: long, ..sound() }), [("long_transactions", Warning)]);
        assert_eq!(bad(&Server { oldest_prepared: long, ..sound() }), [("long_transactions", Warning)]);
        let idle_slots = vec!["replica".to_owned()];
        assert_eq!(bad(&Server { idle_slots, ..sound() }), [("long_transactions", Warning)]);
        assert_eq!(bad(&Server { connections_used: 81, ..sound() }), [("connections", Warning)]);
        assert_eq!(bad(&Server { transaction_id_age: 1_500_000_000, ..sound() }), [("transaction_ids", Warning)]);
        for clock_ahead in [SignedDuration::from_secs(-3), SignedDuration::from_secs(3600)] {
            assert_eq!(bad(&Server { clock_ahead, ..sound() }), [("clock", Warning)]);
        }
    }

    fn table(name: &str) -> Table {
        Table { name: name.to_owned(), is_never_vacuumed: false, live: 100, dead: 19_000, bytes: 4 << 20 }
    }

    #[test]
    fn queues_that_vacuum_does_not_keep_up_with_are_found() {
        assert_eq!(queues(&[table("ready"), table("events")]).level, FindingLevel::Ok);
        assert_eq!(queues(&[Table { dead: 2_000_000, ..table("ready") }]).level, FindingLevel::Warning);
        assert_eq!(queues(&[Table { bytes: 1 << 30, ..table("scheduled") }]).level, FindingLevel::Warning);
        let full = Table { bytes: 1 << 30, live: 5_000_000, ..table("scheduled") };
        assert_eq!(queues(&[full]).level, FindingLevel::Ok, "it is as large as what is in it");
        assert_eq!(queues(&[Table { dead: 2_000_000, ..table("deliveries") }]).level, FindingLevel::Ok);
    }

    #[test]
    fn autovacuum_must_run_for_every_table() {
        assert_eq!(autovacuum(true, &[table("ready")]).level, FindingLevel::Ok);
        assert_eq!(autovacuum(false, &[table("ready")]).level, FindingLevel::Problem);
        let off = Table { is_never_vacuumed: true, ..table("ready") };
        assert!(autovacuum(true, &[off]).detail.contains("ready"));
    }
}
