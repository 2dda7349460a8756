//! Certificates: an authority, and what it makes. Asks no server.
//!
//! Invariant: no key is shown, and none is overwritten but by a renewal.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use berth_domain::id::TimeMs;
use berth_tls::authority::{self, Authority, CA, CA_KEY, Pair, Wanted};
use berth_tls::identity::{self, Identity};
use berth_tls::told;
use serde_json::{Value, json};

use crate::arguments::{Certs, CertsFrom, CertsInit, CertsIssue, CertsRenew};
use crate::migration;
use crate::output::{self, Format};

/// Carries out what was asked of certificates.
///
/// # Errors
///
/// Why it was not done.
pub fn run(command: Certs, format: Format) -> anyhow::Result<()> {
    match command {
        Certs::Init(asked) => init(&asked, format),
        Certs::Issue(asked) => issue(&asked, format),
        Certs::Renew(asked) => renew(&asked, format),
        Certs::Show { paths } => show(&paths, format),
    }
}

fn init(asked: &CertsInit, format: Format) -> anyhow::Result<()> {
    let pair = authority::init(&asked.directory, &asked.name, asked.days)?;
    if format == Format::Json {
        return output::json(&json!({"ca": pair.cert, "ca_key": pair.key}));
    }
    output::print(&format!(
        "authority {:?} is made\n  certificate  {}  (goes to every machine)\n  key          {}  (stays here)\n",
        asked.name,
        pair.cert.display(),
        pair.key.display()
    ));
    let directory = asked.directory.display();
    output::tell(&format!(
        "hint: berth certs issue {directory} --role scheduler --name m1 --dns m1"
    ));
    Ok(())
}

fn open(from: &CertsFrom) -> anyhow::Result<Authority> {
    authority::check_days(from.days)?;
    let key = from.ca_key.clone();
    let key = key.unwrap_or_else(|| from.directory.join(CA_KEY));
    Ok(Authority::open(&from.directory.join(CA), &key)?)
}

fn issue(asked: &CertsIssue, format: Format) -> anyhow::Result<()> {
    let role = asked.role()?;
    let mut dns = asked.dns.clone();
    if dns.is_empty() && asked.ip.is_empty() && role.serves() {
        dns.push(asked.name.clone());
    }
    let wanted = Wanted {
        role,
        name: asked.name.clone(),
        dns,
        ips: asked.ip.clone(),
        holds: authority::days(asked.from.days),
    };
    let directory = asked.out.as_deref().unwrap_or(&asked.from.directory);
    let pair = Pair::named(directory, &format!("{role}-{}", asked.name));
    open(&asked.from)?.issue(&wanted, &pair)?;
    made(&pair, "is made", &asked.from.directory, format)
}

/// Says which files hold a certificate, and how a program is told of them.
fn made(pair: &Pair, how: &str, authority: &Path, format: Format) -> anyhow::Result<()> {
    let identity = authority::read(&pair.cert)?;
    if format == Format::Json {
        return output::json(&described(&pair.cert, &identity));
    }
    output::print(&format!(
        "certificate of {} {how}\n  certificate  {}\n  key          {}\n  names        {}\n  until        {}\n",
        identity.principal(),
        pair.cert.display(),
        pair.key.display(),
        told::names(&identity),
        time(identity.not_after),
    ));
    if !identity.role.serves() {
        output::tell(&format!(
            "hint: export BERTH_TLS_CA={} BERTH_TLS_CERT={} BERTH_TLS_KEY={}",
            authority.join(CA).display(),
            pair.cert.display(),
            pair.key.display()
        ));
    }
    Ok(())
}

fn renew(asked: &CertsRenew, format: Format) -> anyhow::Result<()> {
    let authority = open(&asked.from)?;
    let files = match asked.all {
        false => asked.files.clone(),
        true => certificates_in(&asked.from.directory)?
            .into_iter()
            .filter(|path| path.file_name().is_some_and(|name| name != CA))
            .collect(),
    };
    if files.is_empty() {
        anyhow::bail!(
            "there is no certificate in {}",
            asked.from.directory.display()
        );
    }
    for file in &files {
        let pair = Pair::of_certificate(file)?;
        let renewed = authority.renew(&pair, authority::days(asked.from.days));
        renewed.with_context(|| format!("{} is not renewed", file.display()))?;
        made(&pair, "is renewed", &asked.from.directory, format)?;
    }
    Ok(())
}

fn show(paths: &[PathBuf], format: Format) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => files.extend(certificates_in(path)?),
            false => files.push(path.clone()),
        }
    }
    let mut found = Vec::new();
    for file in files {
        let is_authority = file.file_name().is_some_and(|name| name == CA);
        match authority::read(&file) {
            Ok(identity) => found.push((file, identity)),
            // It says of itself no more than that it is one.
            Err(authority::Error::Anonymous { .. }) if is_authority => {
                output::tell(&format!("{} is the authority's", file.display()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if format == Format::Json {
        let all: Vec<Value> = found.iter().map(|(f, i)| described(f, i)).collect();
        return output::json(&all);
    }
    let now = identity::now();
    let rows = found.into_iter().map(|(file, identity)| {
        let left = match identity.has_run_out(now) {
            true => "has run out".to_owned(),
            false => identity.days_left(now).to_string(),
        };
        [
            identity.role.to_string(),
            identity.name.clone(),
            told::names(&identity),
            time(identity.not_before),
            time(identity.not_after),
            left,
            identity.fingerprint[..16].to_owned(),
            file.display().to_string(),
        ]
    });
    let head = [
        "role",
        "name",
        "names",
        "from",
        "until",
        "days left",
        "sha-256",
        "file",
    ];
    output::table(head, rows.collect(), "there is no certificate");
    Ok(())
}

fn described(file: &Path, identity: &Identity) -> Value {
    let now = identity::now();
    json!({
        "file": file,
        "role": identity.role.as_str(),
        "name": identity.name,
        "principal": identity.principal(),
        "dns": identity.dns,
        "ips": identity.ips,
        "not_before": time(identity.not_before),
        "not_after": time(identity.not_after),
        "days_left": identity.days_left(now),
        "has_run_out": identity.has_run_out(now),
        "sha256": identity.fingerprint,
    })
}

/// Returns the certificates of a directory, by name.
fn certificates_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory);
    let entries = entries.with_context(|| format!("{} cannot be read", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(".pem") && !name.ends_with("-key.pem")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn time(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    migration::time(TimeMs(seconds.saturating_mul(1000)))
}
