//! The schedulers that a program calls, as its configuration names them.

use berth_tls::Tls;

use crate::encryption;
use crate::listening::is_host_port;

/// The scheduler that is called by default.
pub const SCHEDULER_DEFAULT: &str = "127.0.0.1:7100";

/// Adds a fault if none is named, and for each that could not be dialled.
pub fn check(schedulers: &[String], faults: &mut Vec<String>) {
    if schedulers.is_empty() {
        faults.push("schedulers is empty: name at least one as host:port".into());
    }
    for scheduler in schedulers {
        if !is_host_port(bare(scheduler)) {
            faults.push(format!(
                "scheduler {scheduler:?} is not of the form host:port"
            ));
        }
    }
}

/// Returns the schedulers as URLs.
#[must_use]
pub fn urls(schedulers: &[String], tls: Option<&Tls>) -> Vec<String> {
    let scheme = encryption::scheme(tls);
    let url = |address: &String| format!("{scheme}://{}", bare(address));
    schedulers.iter().map(url).collect()
}

/// Schedulers may be written as URLs as well: that is how others show them.
fn bare(address: &str) -> &str {
    let bare = address.strip_prefix("http://");
    let bare = bare.or_else(|| address.strip_prefix("https://"));
    bare.unwrap_or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_become_urls() {
        let schedulers = ["h1:7100", "http://h2:7100", "https://h3:7100"].map(str::to_owned);
        let urls = urls(&schedulers, None);
        assert_eq!(urls, ["http://h1:7100", "http://h2:7100", "http://h3:7100"]);
    }

    #[test]
    fn each_scheduler_is_a_host_and_a_port() {
        let faults = |schedulers: &[&str]| {
            let schedulers: Vec<String> = schedulers.iter().map(ToString::to_string).collect();
            let mut faults = Vec::new();
            check(&schedulers, &mut faults);
            faults.len()
        };
        assert_eq!(faults(&[]), 1);
        assert_eq!(faults(&["h1", "http://h2:7100", "h3:x"]), 2);
    }
}
