//! Metrics and health as those who watch a program read them: HTTP by hand, and a strict reader of the text.
//!
//! Not Prometheus: it reads more leniently. `promtool` looks at the same texts in the target `real`.
//!
//! Invariant: a text that breaks a rule of `OpenMetrics` is an error, with the line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long a response may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status; 0 where the connection was closed without one.
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Sends these bytes and returns the response, read to the end of the connection.
///
/// # Errors
///
/// Why there is none.
pub fn send(address: &str, request: &[u8]) -> Result<Response, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    // The server may have refused it before its end.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(_) if !bytes.is_empty() => {}
        Err(error) => return Err(failed(error)),
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok(Response {
        status: status.unwrap_or(0),
        head: head.to_lowercase(),
        body: body.to_owned(),
    })
}

/// Reads a path.
///
/// # Errors
///
/// Why there is no response.
pub fn get(address: &str, path: &str) -> Result<Response, String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    send(address, request.as_bytes())
}

/// Reads the metrics in the older format.
///
/// # Errors
///
/// Why there are none.
pub fn classic(address: &str) -> Result<String, String> {
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: {address}\r\naccept: text/plain\r\nconnection: close\r\n\r\n"
    );
    let response = send(address, request.as_bytes())?;
    match response.status {
        200 => Ok(response.body),
        status => Err(format!("status {status}: {}", response.body)),
    }
}

/// Labels and their values.
pub type Labels = BTreeMap<String, String>;

/// A metric.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// Its type.
    pub kind: String,
    /// Its text.
    pub help: String,
    /// Its series, by the name of the line and the labels.
    pub series: BTreeMap<(String, Labels), f64>,
}

impl Family {
    /// Returns the names of its labels, without those of histograms themselves; nothing without series.
    #[must_use]
    pub fn label_names(&self) -> Option<BTreeSet<String>> {
        let (_, labels) = self.series.keys().next()?;
        let names = labels.keys().filter(|name| *name != "le");
        Some(names.cloned().collect())
    }
}

/// What was scraped, by the name of the family.
#[derive(Clone, Debug, Default)]
pub struct Scrape(pub BTreeMap<String, Family>);

impl Scrape {
    /// Reads the metrics of a program.
    ///
    /// # Errors
    ///
    /// There are none, or the text is wrong.
    pub fn of(address: &str) -> Result<Self, String> {
        let response = get(address, "/metrics")?;
        if response.status != 200 {
            return Err(format!("status {}: {}", response.status, response.body));
        }
        let is_open_metrics = response
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8");
        if !is_open_metrics {
            return Err(format!("another content type: {}", response.head));
        }
        Self::parse(&response.body)
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(text) = text.strip_suffix("# EOF\n") else {
            return Err("it does not end with # EOF".to_owned());
        };
        let mut families = BTreeMap::<String, Family>::new();
        let mut current = String::new();
        for line in text.lines() {
            let wrong = |why: &str| format!("{why}: {line:?}");
            let Some(comment) = line.strip_prefix("# ") else {
                let family = families.get_mut(&current).ok_or(wrong("no family"))?;
                add_series(family, &current, line).map_err(|why| wrong(&why))?;
                continue;
            };
            let mut words = comment.splitn(3, ' ');
            let (Some(keyword), Some(name), Some(rest)) =
                (words.next(), words.next(), words.next())
            else {
                return Err(wrong("a comment"));
            };
            match keyword {
                "HELP" if families.contains_key(name) => return Err(wrong("twice")),
                "HELP" => {
                    name.clone_into(&mut current);
                    let help = rest.to_owned();
                    let family = Family {
                        help,
                        ..Family::default()
                    };
                    families.insert(name.to_owned(), family);
                }
                "TYPE" if name == current => {
                    let family = families.get_mut(name).ok_or(wrong("no HELP before it"))?;
                    rest.clone_into(&mut family.kind);
                }
                "UNIT" if name == current && name.ends_with(&format!("_{rest}")) => {}
                _ => return Err(wrong("a comment out of place")),
            }
        }
        let scrape = Self(families);
        scrape.check()?;
        Ok(scrape)
    }

    /// Checks what holds of whole families.
    fn check(&self) -> Result<(), String> {
        for (name, family) in &self.0 {
            if family.help.is_empty() || !family.help.ends_with('.') {
                return Err(format!(
                    "{name}: its text is no sentence: {:?}",
                    family.help
                ));
            }
            let label_sets: BTreeSet<_> = family
                .series
                .keys()
                .map(|(_, labels)| labels.keys().filter(|l| *l != "le").collect::<Vec<_>>())
                .collect();
            if label_sets.len() > 1 {
                return Err(format!("{name}: its series have different labels"));
            }
            if family.kind == "histogram" {
                check_histogram(name, family)?;
            }
        }
        Ok(())
    }

    /// Returns the value of a series, named as its line is, with these labels.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let key = (name.to_owned(), labels);
        let mut families = self.0.values();
        families.find_map(|family| family.series.get(&key).copied())
    }

    /// Returns how many lines with values there are.
    #[must_use]
    pub fn series(&self) -> usize {
        self.0.values().map(|family| family.series.len()).sum()
    }
}

fn add_series(family: &mut Family, name: &str, line: &str) -> Result<(), String> {
    let (series, value) = line.rsplit_once(' ').ok_or("no value")?;
    let value: f64 = value.parse().map_err(|_| "no number")?;
    let (line_name, labels) = match series.split_once('{') {
        None => (series, Labels::new()),
        Some((name, rest)) => (name, parse_labels(rest)?),
    };
    let suffixes: &[&str] = match family.kind.as_str() {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_sum", "_count"],
        other => return Err(format!("type {other:?}")),
    };
    if !suffixes.iter().any(|s| line_name == format!("{name}{s}")) {
        return Err(format!("no line of a {} {name}", family.kind));
    }
    if family.kind == "counter" && value < 0.0 {
        return Err("a negative counter".to_owned());
    }
    let key = (line_name.to_owned(), labels);
    match family.series.insert(key, value) {
        None => Ok(()),
        Some(_) => Err("a series that was there before".to_owned()),
    }
}

/// Reads `a="b",c="d"}`; no value of a label of ours has anything to escape.
fn parse_labels(text: &str) -> Result<Labels, String> {
    let text = text.strip_suffix("\"}").ok_or("labels without end")?;
    let mut labels = Labels::new();
    for label in text.split("\",") {
        let (name, value) = label.split_once("=\"").ok_or("a label without value")?;
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        if !name.chars().all(is_name) || value.contains(['"', '\\', '\n']) {
            return Err(format!("label {label:?}"));
        }
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("label {name} twice"));
        }
    }
    Ok(labels)
}

/// Checks that buckets grow up to the count.
fn check_histogram(name: &str, family: &Family) -> Result<(), String> {
    let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for ((line, labels), value) in &family.series {
        if line.ends_with("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").ok_or("a bucket without bound")?;
            let bound = match bound.as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound
                    .parse()
                    .map_err(|_| format!("{name}: bound {bound}"))?,
            };
            buckets.entry(labels).or_default().push((bound, *value));
        }
    }
    for (labels, mut buckets) in buckets {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let grows = buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1);
        let count = family.series.get(&(format!("{name}_count"), labels));
        let last = buckets.last().copied();
        let is_complete = last.is_some_and(|(bound, value)| {
            bound.is_infinite() && count.is_some_and(|count| (*count - value).abs() < 0.5)
        });
        if !grows || !is_complete {
            return Err(format!("{name}: its buckets do not add up"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_format_are_held() {
        let good = "# HELP a A.\n# TYPE a counter\na_total{x=\"1\"} 2\n# EOF\n";
        let scrape = Scrape::parse(good).expect("it is good");
        assert_eq!(scrape.value("a_total", &[("x", "1")]), Some(2.0));
        for (change, to) in [
            ("# EOF\n", ""),
            ("A.", "A"),
            ("a_total", "a"),
            ("# TYPE a counter\n", ""),
            ("} 2\n", "} 2\na_total{x=\"1\"} 3\n"),
            ("} 2\n", "} 2\na_total{y=\"1\"} 3\n"),
            ("} 2\n", "} x\n"),
            ("} 2\n", "} -1\n"),
            ("\"}", "\\\"\"}"),
            ("# EOF", "# HELP a A.\n# EOF"),
        ] {
            let bad = good.replacen(change, to, 1);
            assert!(Scrape::parse(&bad).is_err(), "{bad}");
        }
    }
}
