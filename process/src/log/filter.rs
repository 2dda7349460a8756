//! Filters of log lines: levels of modules, as `info,berth_proto=debug`.
//!
//! Not here: which filter is in force (`level`).
//!
//! Invariant: whatever is added to the configured filter, the lines of the audit are written as the
//! configuration has them.

use tracing_subscriber::EnvFilter;

/// The longest filter that is added at run time, in bytes.
pub const ADDED_BYTES_MAX: usize = 1024;

/// The target of the lines of the audit.
const AUDIT: &str = "audit";
/// The names of the levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Log lines of libraries that a program of ours replaces by its own. raft-engine warns of a cut
/// "Corruption" each time that a process was killed, since its files end in blank space then; the
/// store compares the log with its witness and reports what was found.
const REPLACED: &str = "raft_engine::file_pipe_log::pipe_builder=error";
/// The library; a filter that names it gets its lines as they are.
const REPLACED_OF: &str = "raft_engine";

/// What is wrong with a filter that is added at run time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is empty.
    #[error("is required, as berth_scheduler=debug")]
    Empty,
    /// It is longer than [`ADDED_BYTES_MAX`].
    #[error("must have at most {ADDED_BYTES_MAX} bytes, not {0}")]
    TooLong(usize),
    /// A part names no level.
    #[error("must be levels of modules, as berth_scheduler=debug; {0:?} names no level of {levels}", levels = LEVELS.join(", "))]
    NoLevel(String),
    /// A part names no module.
    #[error(
        "must be levels of modules, as berth_scheduler=debug; {0:?} is not the path of a module"
    )]
    NoModule(String),
    /// It is about the audit.
    #[error("must not name the target audit: its lines are written as the configuration has them")]
    Audit,
}

/// Returns the filter of a configuration.
///
/// # Errors
///
/// Why it is none.
pub(super) fn configured(filter: &str) -> Result<EnvFilter, String> {
    let wrong = |error| format!("{filter:?} is not a log filter: {error}");
    // An empty filter, and one that is wrong, are judged as they were written.
    let given = EnvFilter::try_new(filter).map_err(wrong)?;
    Ok(EnvFilter::try_new(quiet(filter)).unwrap_or(given))
}

/// Returns the configured filter with another one added: where both name a module, the added one holds.
///
/// # Errors
///
/// What is wrong with the added one.
pub(super) fn with_added(configured: &str, added: &str) -> Result<EnvFilter, Invalid> {
    check(added)?;
    let whole = format!(
        "{configured},{added},{AUDIT}={}",
        level_of_audit(configured)
    );
    let built = EnvFilter::try_new(quiet(&whole));
    built.map_err(|_| Invalid::NoLevel(added.to_owned()))
}

/// Returns the filter without the lines that a program of ours replaces.
fn quiet(filter: &str) -> String {
    match filter.contains(REPLACED_OF) {
        true => filter.to_owned(),
        false => format!("{filter},{REPLACED}"),
    }
}

/// Checks a filter that is added. Spans and fields, which a configured filter may name, are compared with
/// every event: they are refused.
fn check(added: &str) -> Result<(), Invalid> {
    if added.trim().is_empty() {
        return Err(Invalid::Empty);
    }
    if added.len() > ADDED_BYTES_MAX {
        return Err(Invalid::TooLong(added.len()));
    }
    added.split(',').try_for_each(check_part)
}

fn check_part(part: &str) -> Result<(), Invalid> {
    let (module, level) = match part.split_once('=') {
        Some((module, level)) => (Some(module), level),
        None => (None, part),
    };
    if !is_level(level) {
        return Err(Invalid::NoLevel(part.to_owned()));
    }
    match module {
        Some(AUDIT) => Err(Invalid::Audit),
        Some(module) if !is_module(module) => Err(Invalid::NoModule(module.to_owned())),
        Some(_) | None => Ok(()),
    }
}

fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
}

fn is_module(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(plain)
        // A word that is a level is no module to the library.
        && !is_level(text)
}

/// Returns the level of the audit in a configured filter: its own, or that of all modules. A target alone has
/// every level, and levels may be numbers, as the library has it.
fn level_of_audit(configured: &str) -> &str {
    let parts = || configured.split(',').map(str::trim).rev();
    let own = parts().find_map(|part| match part.strip_prefix(AUDIT)? {
        "" => Some("trace"),
        rest => rest.strip_prefix('='),
    });
    let is_for_all = |part: &&str| is_level(part) || part.parse::<u8>().is_ok_and(|n| n <= 5);
    let all = || parts().find(is_for_all);
    // Without a level for all modules, the library writes nothing of those that are not named.
    own.or_else(all).unwrap_or("off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_modules_are_taken() {
        for added in [
            "debug",
            "DEBUG",
            "off",
            "berth_scheduler=debug",
            "berth_scheduler::duties=trace,h2=warn,info",
            "berth-x.y=error",
        ] {
            let built = with_added("info,berth_proto=debug", added);
            assert!(built.is_ok(), "{added}: {built:?}");
        }
    }

    /// Goal: what would silently write nothing, or everything, is refused.
    #[test]
    fn everything_else_is_refused() {
        let long = format!("{}=debug", "m".repeat(ADDED_BYTES_MAX));
        let none = |part: &str| Invalid::NoLevel(part.to_owned());
        let module = |part: &str| Invalid::NoModule(part.to_owned());
        for (added, expected) in [
            ("", Invalid::Empty),
            ("  ", Invalid::Empty),
            (",", none("")),
            ("debug,", none("")),
            // Each of these the library takes for the name of a module, at level TRACE.
            ("dbug", none("dbug")),
            ("berth_scheduler", none("berth_scheduler")),
            ("berth_scheduler=", none("berth_scheduler=")),
            ("berth_scheduler=loud", none("berth_scheduler=loud")),
            ("a=b=debug", none("a=b=debug")),
            ("=debug", module("")),
            (" h2=debug", module(" h2")),
            ("h2 =debug", module("h2 ")),
            ("é=debug", module("é")),
            ("info=debug", module("info")),
            ("a\n=debug", module("a\n")),
            ("[span]=debug", module("[span]")),
            ("[{field=x}]=debug", none("[{field=x}]=debug")),
            ("a[span{f=1}]=debug", none("a[span{f=1}]=debug")),
            ("audit=off", Invalid::Audit),
            ("debug,audit=trace", Invalid::Audit),
            (&long, Invalid::TooLong(long.len())),
        ] {
            assert_eq!(check(added), Err(expected), "{added:?}");
        }
    }

    #[test]
    fn the_audit_has_its_configured_level() {
        for (configured, expected) in [
            ("info", "info"),
            ("warn,berth_proto=debug", "warn"),
            ("info,audit=off", "off"),
            ("audit=debug, info", "debug"),
            ("warn,info", "info"),
            ("berth_proto=debug", "off"),
            ("", "off"),
            ("warn,audit", "trace"),
            ("audit", "trace"),
            ("3", "3"),
            ("warn,audit=2", "2"),
            ("auditing=debug", "off"),
            ("6", "off"),
        ] {
            assert_eq!(level_of_audit(configured), expected, "{configured:?}");
        }
    }
}
