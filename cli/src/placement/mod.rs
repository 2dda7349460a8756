//! `berth placement`: takes over what another OpenStack Placement holds, and compares both sides.
//!
//! ```text
//! http ─▶ source ─▶ reading ─▶ World ─┐
//!                                     ├─▶ plan ─▶ carry_out ─▶ both read again ─▶ comparison
//! gRPC ─▶ here ─────────────▶ Here ───┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`arguments`] | the command line |
//! | [`http`], [`source`] | requests to the remote Placement |
//! | [`reading`] | reading it while it is in use |
//! | [`here`] | Berth's side |
//! | [`world`] | what either side holds |
//! | [`plan`], [`comparison`] | what is to be done, what differs; pure |
//! | [`carry_out`] | doing it |
//! | [`meter`], [`report`] | what is shown meanwhile and in the end |
//!
//! Invariant: nothing is ever written to the source.

pub mod arguments;
pub mod carry_out;
pub mod comparison;
pub mod here;
pub mod http;
pub mod meter;
pub mod plan;
pub mod reading;
pub mod report;
pub mod source;
pub mod world;

use std::path::Path;
use std::time::Duration;

use ::http::HeaderValue;
use anyhow::Context as _;
use berth_domain::import::SOURCE_MAX;
use berth_domain::refusal::{Code, Refusal};
use serde_json::json;

use self::arguments::{Compare, Import, Placement as Verb};
use self::comparison::Comparison;
use self::http::Http;
use self::meter::Meter;
use self::plan::ImportOptions;
use self::reading::Reading;
use self::source::Source;
use self::world::Here;
use crate::output;
use crate::session::Session;

/// The reason of the refusal that reports that both sides differ.
pub const SIDES_DIFFER: &str = "SIDES_DIFFER";

/// The environment variable in which OpenStack's client looks for a token, too.
const TOKEN_VARIABLE: &str = "OS_TOKEN";

/// Runs the command.
///
/// # Errors
///
/// The refusal of the source or the scheduler, or that both sides differ.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Import(options) => import(session, options).await,
        Verb::Compare(options) => compare(session, options).await,
    }
}

/// The remote side, and how it is read.
struct Remote {
    source: Source,
    name: String,
    url: String,
    at_once: usize,
    listed_max: usize,
    meter: Meter,
}

impl Remote {
    async fn open(session: &Session, options: &arguments::Source) -> anyhow::Result<Self> {
        let token = token(options.token_file.as_deref())?;
        let timeout = Duration::from_secs(options.timeout.into());
        let http = Http::new(&options.from, token, options.ca_file.as_deref(), timeout)?;
        let meter = Meter::new(session.for_programs());
        let url = http.base().to_owned();
        let name = options.source.clone();
        let name = name.unwrap_or_else(|| url.split("://").last().unwrap_or_default().to_owned());
        anyhow::ensure!(
            (1..=SOURCE_MAX).contains(&name.chars().count()),
            "the name of the source must have 1 to {SOURCE_MAX} characters: give another with --source"
        );
        here::check_reachable(session).await?;
        if http.exposes_token() {
            meter.message("warning: the token is sent unencrypted; use https");
        }
        let source = Source::open(http).await?;
        meter.message(&format!(
            "source {name} ({url}), microversion {}",
            source.version()
        ));
        if !source.has_types() {
            meter.message(
                "warning: consumer types cannot be read before microversion 1.38 and stay unknown",
            );
        }
        Ok(Self {
            source,
            name,
            url,
            at_once: options.concurrency.into(),
            listed_max: options.list,
            meter,
        })
    }

    async fn read(&self, session: &Session) -> anyhow::Result<(Reading, Here)> {
        let reading = reading::read(&self.source, self.at_once, self.meter).await?;
        Ok((reading, here::read(session).await?))
    }

    async fn compare(&self, session: &Session) -> anyhow::Result<(Reading, Comparison)> {
        let (reading, here) = self.read(session).await?;
        let compared = comparison::compare(&reading.world, &here, &self.name, self.listed_max);
        Ok((reading, compared))
    }

    fn json(&self) -> serde_json::Value {
        json!({"name": self.name, "url": self.url, "microversion": self.source.version()})
    }
}

async fn compare(session: &Session, options: Compare) -> anyhow::Result<()> {
    let remote = Remote::open(session, &options.source).await?;
    let (reading, comparison) = remote.compare(session).await?;
    if session.for_programs() {
        output::value(&json!({
            "source": remote.json(),
            "moving": report::moving_json(&reading.moving),
            "comparison": comparison,
        }))?;
    } else {
        report::comparison(&comparison);
        report::moving(&reading.moving);
    }
    require_same(&comparison)
}

async fn import(session: &Session, options: Import) -> anyhow::Result<()> {
    let remote = Remote::open(session, &options.source).await?;
    let (reading, here) = remote.read(session).await?;
    let import = ImportOptions {
        source: remote.name.clone(),
        overwrite: options.overwrite,
        delete: options.delete,
    };
    let plan = plan::plan(&reading.world, &here, &import);
    drop(here);
    let strict = options.strict && !plan.conflicts.is_empty();
    let mut value = json!({
        "source": remote.json(),
        "moving": report::moving_json(&reading.moving),
        "plan": report::plan_json(&plan),
        "conflicts": plan.conflicts,
    });
    if !session.for_programs() {
        report::conflicts(&plan, remote.listed_max);
    }
    if options.dry_run || strict {
        if session.for_programs() {
            output::value(&value)?;
        } else {
            report::plan(&plan);
            report::moving(&reading.moving);
        }
        return if strict {
            Err(in_conflict(plan.conflicts.len()).into())
        } else {
            Ok(())
        };
    }
    let refused = if plan.is_empty() {
        remote.meter.message("there is nothing to write");
        Vec::new()
    } else {
        carry_out::carry_out(session, &remote.name, &plan, remote.meter).await?
    };
    if !session.for_programs() {
        report::refused(&refused, remote.listed_max);
    }
    remote.meter.message("both sides are read again");
    let (reading, comparison) = remote.compare(session).await?;
    if session.for_programs() {
        value["refused"] = json!(refused);
        value["comparison"] = json!(comparison);
        output::value(&value)?;
    } else {
        report::comparison(&comparison);
        report::moving(&reading.moving);
    }
    require_same(&comparison)
}

/// Returns an error, and so an exit status, if the two sides differ.
fn require_same(comparison: &Comparison) -> anyhow::Result<()> {
    if comparison.is_same() {
        return Ok(());
    }
    let count = comparison.count;
    let message = format!("the two sides differ: {count} differences");
    let refusal = Refusal::new(Code::FailedPrecondition, SIDES_DIFFER, message);
    Err(refusal
        .with_hint("run `berth placement import` to copy the changes of the source")
        .with("differences", count)
        .into())
}

fn in_conflict(count: usize) -> Refusal {
    let message = format!("nothing was written: {count} conflicts, and --strict allows none");
    Refusal::new(Code::FailedPrecondition, "IMPORT_CONFLICTS", message)
        .with_hint("resolve the listed conflicts, or omit --strict to import the rest")
        .with("conflicts", count)
}

/// Returns the token, if there is one.
fn token(file: Option<&Path>) -> anyhow::Result<Option<HeaderValue>> {
    let (text, from) = match file {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("failed to read {}", file.display()))?;
            (text, file.display().to_string())
        }
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => (text, TOKEN_VARIABLE.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    let text = text.trim();
    anyhow::ensure!(!text.is_empty(), "the token in {from} is empty");
    // The error would not repeat the token, but neither would it name its origin.
    let token = HeaderValue::from_str(text).ok();
    let mut token = token.with_context(|| format!("what is in {from} is no token"))?;
    token.set_sensitive(true);
    Ok(Some(token))
}
