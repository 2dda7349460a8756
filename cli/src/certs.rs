//! Certificates: an authority, and what it issues. Calls no server.
//!
//! Invariant: no key is shown, and none is overwritten but by a renewal.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use berth_domain::id::TimeMs;
use berth_tls::authority::{self, Authority, CA, CA_KEY, CertificateSpec, Pair};
use berth_tls::explain;
use berth_tls::hypervisor::{self, HypervisorSpec};
use berth_tls::identity::{self, Identity};
use serde_json::{Value, json};

use crate::arguments::{Certs, CertsFrom, CertsHypervisor, CertsInit, CertsIssue, CertsRenew};
use crate::migration;
use crate::output::{self, Columns, Format, Lines};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<8, 0> = Columns {
    usual: [
        "role",
        "name",
        "names",
        "from",
        "until",
        "days left",
        "sha-256",
        "file",
    ],
    wide: [],
};

/// Runs a verb of `berth certs`.
///
/// # Errors
///
/// Why it failed.
pub fn run(command: Certs, format: Format) -> anyhow::Result<()> {
    match command {
        Certs::Init(args) => init(&args, format),
        Certs::Issue(args) => issue(&args, format),
        Certs::Hypervisor(args) => hypervisor(&args, format),
        Certs::Renew(args) => renew(&args, format),
        Certs::Show { paths } => show(&paths, format),
    }
}

fn init(args: &CertsInit, format: Format) -> anyhow::Result<()> {
    let pair = authority::init(&args.directory, &args.name, args.days)?;
    if format.is_of_value() {
        return output::value(&json!({"ca": pair.cert, "ca_key": pair.key}));
    }
    let (cert, key) = (pair.cert.display(), pair.key.display());
    let mut lines = Lines::new();
    writeln!(lines, "authority {:?} is made", args.name);
    writeln!(lines, "  certificate  {cert}  (goes to every machine)");
    writeln!(lines, "  key          {key}  (stays here)");
    output::print(lines);
    let directory = args.directory.display();
    output::message(format!(
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

fn issue(args: &CertsIssue, format: Format) -> anyhow::Result<()> {
    let role = args.role()?;
    let mut dns = args.dns.clone();
    if dns.is_empty() && args.ip.is_empty() && role.serves() {
        dns.push(args.name.clone());
    }
    let request = CertificateSpec {
        role,
        name: args.name.clone(),
        dns,
        ips: args.ip.clone(),
        validity: authority::days(args.from.days),
    };
    let directory = args.out.as_deref().unwrap_or(&args.from.directory);
    let pair = Pair::named(directory, &format!("{role}-{}", args.name));
    open(&args.from)?.issue(&request, &pair)?;
    print_pair(&pair, "is made", &args.from.directory, format)
}

fn hypervisor(args: &CertsHypervisor, format: Format) -> anyhow::Result<()> {
    let mut dns = args.dns.clone();
    if dns.is_empty() && args.ip.is_empty() {
        dns.push(args.name.clone());
    }
    let spec = HypervisorSpec {
        name: args.name.clone(),
        dns,
        ips: args.ip.clone(),
        validity: authority::days(args.from.days),
    };
    let directory = args.out.clone();
    let directory = directory.unwrap_or_else(|| {
        args.from
            .directory
            .join(format!("hypervisor-{}", args.name))
    });
    hypervisor::issue(&open(&args.from)?, &spec, &directory)?;
    if format.is_of_value() {
        return output::value(&json!({"host": spec.name, "directory": directory}));
    }
    let mut lines = Lines::new();
    writeln!(
        lines,
        "certificates of libvirtd and QEMU on {} are made",
        spec.name
    );
    writeln!(lines, "  directory    {}", directory.display());
    writeln!(lines, "  goes to      /etc/pki of {}", spec.name);
    output::print(lines);
    output::message(
        "hint: docs/security.md (\"Live migrations\") lists owners and modes of the files",
    );
    Ok(())
}

/// Prints which files hold a certificate, and how a program is configured to use them.
fn print_pair(pair: &Pair, how: &str, authority: &Path, format: Format) -> anyhow::Result<()> {
    let identity = authority::read(&pair.cert)?;
    if format.is_of_value() {
        return output::value(&to_json(&pair.cert, &identity));
    }
    let mut lines = Lines::new();
    writeln!(lines, "certificate of {} {how}", identity.principal());
    writeln!(lines, "  certificate  {}", pair.cert.display());
    writeln!(lines, "  key          {}", pair.key.display());
    writeln!(lines, "  names        {}", explain::names(&identity));
    writeln!(lines, "  until        {}", time(identity.not_after));
    output::print(lines);
    if !identity.role.serves() {
        output::message(format!(
            "hint: export BERTH_TLS_CA={} BERTH_TLS_CERT={} BERTH_TLS_KEY={}",
            authority.join(CA).display(),
            pair.cert.display(),
            pair.key.display()
        ));
    }
    Ok(())
}

fn renew(args: &CertsRenew, format: Format) -> anyhow::Result<()> {
    let authority = open(&args.from)?;
    let files = match args.all {
        false => args.files.clone(),
        true => certificates_in(&args.from.directory)?
            .into_iter()
            .filter(|path| path.file_name().is_some_and(|name| name != CA))
            .collect(),
    };
    if files.is_empty() {
        anyhow::bail!(
            "there is no certificate in {}",
            args.from.directory.display()
        );
    }
    for file in &files {
        let pair = Pair::of_certificate(file)?;
        let renewed = authority.renew(&pair, authority::days(args.from.days));
        renewed.with_context(|| format!("{} is not renewed", file.display()))?;
        print_pair(&pair, "is renewed", &args.from.directory, format)?;
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
    let mut certificates = Vec::new();
    for file in files {
        let is_authority = file.file_name().is_some_and(|name| name == CA);
        match authority::read(&file) {
            Ok(identity) => certificates.push((file, identity)),
            // The authority's certificate carries no role and no name.
            Err(authority::Error::Anonymous { .. }) if is_authority => {
                output::message(format!("{} is the authority's", file.display()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if format.is_of_value() {
        let all: Vec<Value> = certificates.iter().map(|(f, i)| to_json(f, i)).collect();
        return output::value(&all);
    }
    let now = identity::now();
    let rows = certificates.into_iter().map(|(file, identity)| {
        let left = match identity.has_expired(now) {
            true => "has run out".to_owned(),
            false => identity.days_left(now).to_string(),
        };
        let row = [
            identity.role.to_string(),
            identity.name.clone(),
            explain::names(&identity),
            time(identity.not_before),
            time(identity.not_after),
            left,
            identity.fingerprint[..16].to_owned(),
            file.display().to_string(),
        ];
        (row, [])
    });
    output::list(&COLUMNS, rows.collect(), "there is no certificate")
}

fn to_json(file: &Path, identity: &Identity) -> Value {
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
        "has_run_out": identity.has_expired(now),
        "sha256": identity.fingerprint,
    })
}

/// Returns the certificates of a directory, by name.
fn certificates_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory);
    let entries = entries.with_context(|| format!("{} cannot be read", directory.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(".pem") && !name.ends_with("-key.pem")) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn time(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    migration::time(TimeMs(seconds.saturating_mul(1000)))
}
