//! `berth placement`: takes over what another OpenStack Placement holds, and compares both sides.
//!
//! ```text
//! http ─▶ source ─▶ reading ─▶ World ─┐
//!                                     ├─▶ plan ─▶ carry_out ─▶ both read anew ─▶ comparison
//! gRPC ─▶ here ─────────────▶ Here ───┘
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`arguments`] | what can be typed |
//! | [`http`], [`source`] | asking the other Placement |
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
use self::plan::Wanted;
use self::reading::Reading;
use self::source::Source;
use self::world::Here;
use crate::output;
use crate::session::Session;

/// The reason of the refusal that says that both sides are not the same.
pub const SIDES_DIFFER: &str = "SIDES_DIFFER";

/// Where OpenStack's own client looks for a token, too.
const TOKEN_VARIABLE: &str = "OS_TOKEN";

/// Does what was typed.
///
/// # Errors
///
/// What the source or the scheduler refused, or that both sides differ.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Import(options) => import(session, options).await,
        Verb::Compare(options) => compare(session, options).await,
    }
}

/// The other side, and how it is asked.
struct Other {
    source: Source,
    name: String,
    url: String,
    at_once: usize,
    listed_max: usize,
    meter: Meter,
}

impl Other {
    async fn open(session: &Session, options: &arguments::Source) -> anyhow::Result<Self> {
        let token = token(options.token_file.as_deref())?;
        let timeout = Duration::from_secs(options.timeout.into());
        let http = Http::new(&options.from, token, options.ca_file.as_deref(), timeout)?;
        let meter = Meter::new(session.json());
        let url = http.base().to_owned();
        let name = options.source.clone();
        let name = name.unwrap_or_else(|| url.split("://").last().unwrap_or_default().to_owned());
        anyhow::ensure!(
            (1..=SOURCE_MAX).contains(&name.chars().count()),
            "the name of the source must have 1 to {SOURCE_MAX} characters: give another with --source"
        );
        here::is_there(session).await?;
        if http.bares_token() {
            meter.say("warning: the token travels unencrypted; use https where there is a network");
        }
        let source = Source::open(http).await?;
        meter.say(&format!(
            "source {name} ({url}), microversion {}",
            source.version()
        ));
        if !source.has_types() {
            meter.say("warning: it tells no types of consumers before microversion 1.38: they stay unknown");
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
    let other = Other::open(session, &options.source).await?;
    let (reading, comparison) = other.compare(session).await?;
    if session.json() {
        output::json(&json!({
            "source": other.json(),
            "moving": report::moving_json(&reading.moving),
            "comparison": comparison,
        }))?;
    } else {
        report::comparison(&comparison);
        report::moving(&reading.moving);
    }
    same(&comparison)
}

async fn import(session: &Session, options: Import) -> anyhow::Result<()> {
    let other = Other::open(session, &options.source).await?;
    let (reading, here) = other.read(session).await?;
    let wanted = Wanted {
        source: other.name.clone(),
        overwrite: options.overwrite,
        delete: options.delete,
    };
    let plan = plan::plan(&reading.world, &here, &wanted);
    drop(here);
    let strict = options.strict && !plan.conflicts.is_empty();
    let mut told = json!({
        "source": other.json(),
        "moving": report::moving_json(&reading.moving),
        "plan": report::plan_json(&plan),
        "conflicts": plan.conflicts,
    });
    if !session.json() {
        report::conflicts(&plan, other.listed_max);
    }
    if options.dry_run || strict {
        if session.json() {
            output::json(&told)?;
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
        other.meter.say("nothing is to be written");
        Vec::new()
    } else {
        carry_out::carry_out(session, &other.name, &plan, other.meter).await?
    };
    if !session.json() {
        report::refused(&refused, other.listed_max);
    }
    other.meter.say("both sides are read anew");
    let (reading, comparison) = other.compare(session).await?;
    if session.json() {
        told["refused"] = json!(refused);
        told["comparison"] = json!(comparison);
        output::json(&told)?;
    } else {
        report::comparison(&comparison);
        report::moving(&reading.moving);
    }
    same(&comparison)
}

/// Says by the exit status whether both sides are the same.
fn same(comparison: &Comparison) -> anyhow::Result<()> {
    if comparison.is_same() {
        return Ok(());
    }
    let count = comparison.count;
    let message = format!("the two sides differ: {count} differences");
    let refusal = Refusal::new(Code::FailedPrecondition, SIDES_DIFFER, message);
    Err(refusal
        .with_hint("an import brings what changed at the source; what it leaves alone, it names")
        .with("differences", count)
        .into())
}

fn in_conflict(count: usize) -> Refusal {
    let message = format!("nothing was written: {count} conflicts, and --strict allows none");
    Refusal::new(Code::FailedPrecondition, "IMPORT_CONFLICTS", message)
        .with_hint("settle what is listed, or leave --strict out to import the rest")
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
    // The error would not repeat it, but neither would it say where it stood.
    let token = HeaderValue::from_str(text).ok();
    let mut token = token.with_context(|| format!("what is in {from} is no token"))?;
    token.set_sensitive(true);
    Ok(Some(token))
}
