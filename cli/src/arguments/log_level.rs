//! The arguments of `berth log-level`.

use std::time::Duration;

use berth_process::log::level::{DURATION_MAX, DURATION_MIN};
use clap::{Args, Subcommand};

/// Verbs of log levels.
#[derive(Debug, Subcommand)]
pub enum LogLevel {
    /// Show which log lines programs write, and until when
    #[command(after_help = "\
Without an option: all schedulers and conductors.")]
    Show {
        /// Which programs
        #[command(flatten)]
        programs: Programs,
    },
    /// Change which log lines programs write, for a duration
    ///
    /// The filter is added to the configured one. The change ends by itself, and when the program is
    /// restarted; another one replaces it. The audit lines of a program stay as they are configured.
    #[command(after_help = "\
A filter has levels of modules: off, error, warn, info, debug or trace.
Each log line shows its module.
Examples: a scheduler, the agent of a host, and all schedulers:
  berth log-level set berth_replication=debug --member 2
  berth log-level set berth_compute_agent=debug,h2=info --host h1 --for 1h
  berth log-level set debug --all-members --for 30s")]
    Set {
        /// Levels of modules, as berth_scheduler::duties=debug, or one level for all others
        filter: String,
        /// Duration of the change, at most 24h (30s, 10m, 2h)
        #[arg(long = "for", value_name = "DURATION", default_value = "10m", value_parser = duration)]
        duration: Duration,
        /// Which programs
        #[command(flatten)]
        programs: Programs,
    },
    /// End a change before its duration has passed
    #[command(after_help = "\
Without an option: all schedulers and conductors.")]
    Reset {
        /// Which programs
        #[command(flatten)]
        programs: Programs,
    },
}

/// The programs that are called.
#[derive(Debug, Default, Args)]
pub struct Programs {
    /// Number of a scheduler, as `berth cluster status` shows it (repeatable)
    #[arg(long = "member", value_name = "MEMBER")]
    pub members: Vec<u64>,
    /// Include all schedulers of the cluster
    #[arg(long)]
    pub all_members: bool,
    /// Name of a conductor, as `berth cluster services` shows it (repeatable)
    #[arg(long = "conductor", value_name = "CONDUCTOR")]
    pub conductors: Vec<String>,
    /// Include all registered conductors
    #[arg(long)]
    pub all_conductors: bool,
    /// Name of a host with the agent (repeatable)
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Address of a program, also unix:///PATH of its socket (repeatable)
    ///
    /// It is called without a scheduler. A controller of volumes has a socket only.
    #[arg(long = "address", value_name = "ADDRESS")]
    pub addresses: Vec<String>,
}

impl Programs {
    /// Returns whether no program is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self {
            members,
            all_members,
            conductors,
            all_conductors,
            hosts,
            addresses,
        } = self;
        let is_named = *all_members || *all_conductors;
        let is_named = is_named || !members.is_empty() || !conductors.is_empty();
        !is_named && hosts.is_empty() && addresses.is_empty()
    }

    /// Returns all schedulers and conductors where no program is named.
    #[must_use]
    pub fn or_all(mut self) -> Self {
        if self.is_empty() {
            self.all_members = true;
            self.all_conductors = true;
        }
        self
    }
}

/// Reads a duration, as 90s, 10m or 2h.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "not a duration from 1s to 24h, as 30s, 10m or 2h".to_owned();
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let of_unit = |(unit, factor): (&str, u64)| Some((text.strip_suffix(unit)?, factor));
    let (number, factor) = units.into_iter().find_map(of_unit).ok_or_else(wrong)?;
    let is_number = number.chars().all(|c| c.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_number);
    let seconds = number.and_then(|number| number.checked_mul(factor));
    let duration = seconds.map(Duration::from_secs);
    let is_allowed = |duration: &Duration| (DURATION_MIN..=DURATION_MAX).contains(duration);
    duration.filter(is_allowed).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_an_end() {
        for (text, expected) in [
            ("1s", Some(1)),
            ("90s", Some(90)),
            ("10m", Some(600)),
            ("24h", Some(86_400)),
            ("1440m", Some(86_400)),
            ("0s", None),
            ("25h", None),
            ("86401s", None),
            ("10", None),
            ("m", None),
            ("", None),
            ("+1m", None),
            ("-1m", None),
            ("1.5h", None),
            ("10 m", None),
            ("1d", None),
            ("99999999999999999999s", None),
            ("9999999999999999999h", None),
            ("１m", None),
        ] {
            let read = duration(text).ok().map(|duration| duration.as_secs());
            assert_eq!(read, expected, "{text}");
        }
    }
}
