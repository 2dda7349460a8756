//! A small certificate authority in a directory.
//!
//! ```text
//!   DIR/ca.pem                 the authority's certificate: goes to every machine
//!   DIR/ca-key.pem             its key: stays where certificates are made, and nowhere else
//!   DIR/<role>-<name>.pem      a certificate
//!   DIR/<role>-<name>-key.pem  its key
//! ```
//!
//! Not here: revocation, which the cluster does (`revoked`). An authority of which the key was stolen is
//! replaced.
//!
//! A program that keeps certificates elsewhere than in files opens an authority with
//! [`Authority::from_pem`] and calls [`Authority::sign`], the only function that returns a key.
//!
//! Invariant: nothing is overwritten but by a renewal, and a key is readable by its owner alone from its
//! first byte on.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::hypervisor::HypervisorSpec;
use crate::identity::{self, Anonymous, Identity, PMEM_NODE_CONTROLLER, PMEM_REGISTRY};
use crate::material::{self, certificates, read_key};
use crate::pem;
use crate::role::{PREFIX, Role};

/// The default validity of an authority, in days.
pub const AUTHORITY_DAYS: u32 = 3650;
/// The default validity of a certificate, in days.
pub const DAYS: u32 = 365;
/// The longest validity, in days.
pub const DAYS_MAX: u32 = 36_500;
/// The most names and addresses of a certificate.
const NAMES_MAX: usize = 64;
/// Certificates are valid from so long ago: the clocks of machines differ.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The authority's certificate.
pub const CA: &str = "ca.pem";
/// The authority's key.
pub const CA_KEY: &str = "ca-key.pem";

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is there already.
    #[error("{0} exists already and is not overwritten: remove it if it is not needed")]
    Exists(PathBuf),
    /// A file cannot be written or read.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// There is no authority.
    #[error("{0} does not exist: make an authority with berth certs init")]
    NoAuthority(PathBuf),
    /// A file is not what it should be.
    #[error(transparent)]
    Fault(#[from] material::Fault),
    /// A certificate carries no identity.
    #[error("{path} carries no identity: {why}")]
    Anonymous {
        /// The certificate.
        path: PathBuf,
        /// Why.
        why: Anonymous,
    },
    /// The request is invalid.
    #[error("{0}")]
    Wrong(String),
    /// Making it failed.
    #[error("the certificate cannot be made")]
    Make(#[from] rcgen::Error),
}

/// The content of a certificate to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// The role.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// The DNS names by which it is dialled.
    pub dns: Vec<String>,
    /// The addresses by which it is dialled.
    pub ips: Vec<IpAddr>,
    /// How long it is valid.
    pub validity: Duration,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Pair {
    /// Returns the files with this stem in a directory, as `agent-h1.pem` and `agent-h1-key.pem`.
    #[must_use]
    pub fn named(directory: &Path, stem: &str) -> Self {
        Self {
            cert: directory.join(format!("{stem}.pem")),
            key: directory.join(format!("{stem}-key.pem")),
        }
    }

    /// Returns the files of a certificate: its key lies beside it.
    ///
    /// # Errors
    ///
    /// When the name of the file is not of the form `NAME.pem`.
    pub fn of_certificate(cert: &Path) -> Result<Self, Error> {
        let stem = cert.file_name().and_then(|name| name.to_str());
        let stem = stem.and_then(|name| name.strip_suffix(".pem"));
        let Some(stem) = stem.filter(|stem| !stem.ends_with("-key")) else {
            let what = format!(
                "{} is not named like a certificate, NAME.pem",
                cert.display()
            );
            return Err(Error::Wrong(what));
        };
        let directory = cert.parent().unwrap_or(Path::new(""));
        Ok(Self::named(directory, stem))
    }

    fn expect_free(&self) -> Result<(), Error> {
        let taken = [&self.cert, &self.key]
            .into_iter()
            .find(|path| path.exists());
        taken.map_or(Ok(()), |path| Err(Error::Exists(path.clone())))
    }
}

/// Makes an authority in a directory, which is made too where it is not there.
///
/// # Errors
///
/// When there is one already, or it cannot be written.
pub fn init(directory: &Path, name: &str, days: u32) -> Result<Pair, Error> {
    check_days(days)?;
    if name.is_empty() || name.len() > identity::NAME_MAX {
        let what = format!(
            "the authority's name must have 1 to {} bytes",
            identity::NAME_MAX
        );
        return Err(Error::Wrong(what));
    }
    let pair = Pair {
        cert: directory.join(CA),
        key: directory.join(CA_KEY),
    };
    pair.expect_free()?;
    let failed = |why| Error::File {
        path: directory.to_owned(),
        why,
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // Verifiers could not distinguish two authorities of one name.
    let number: String = params.key_identifier(&key)[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    params.distinguished_name = subject(&format!("{name} {number}"), None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, DAY * days);
    let certificate = params.self_signed(&key)?;
    create(&pair.key, key.serialize_pem().as_bytes(), 0o600)?;
    create(&pair.cert, certificate.pem().as_bytes(), 0o644)?;
    Ok(pair)
}

/// An authority that makes certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    own: CertificateDer<'static>,
    /// The same as it was read, with those beside it.
    pem: Vec<u8>,
    /// The end of its own certificate's validity, in seconds since 1970.
    not_after: i64,
}

impl Authority {
    /// Opens the authority with this certificate and key.
    ///
    /// # Errors
    ///
    /// When it is not there, or is none.
    pub fn open(cert: &Path, key: &Path) -> Result<Self, Error> {
        for path in [cert, key] {
            if !path.exists() {
                return Err(Error::NoAuthority(path.to_owned()));
            }
        }
        let own = certificates(cert)?.swap_remove(0);
        let text = material::read(cert)?;
        let none = || Error::Wrong(format!("{} holds no private key", key.display()));
        let pem = String::from_utf8(read_key(key)?).map_err(|_| none())?;
        let pair = KeyPair::from_pem(&pem).map_err(|_| none())?;
        Self::new(own, text, pair, &cert.display().to_string())
    }

    /// Opens the authority of which certificate and key are in memory. Of several certificates the first
    /// one is the authority's.
    ///
    /// # Errors
    ///
    /// When they are none.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, Error> {
        let own = pem::certificates(cert, "the authority").map_err(Error::Wrong)?;
        let key = std::str::from_utf8(key).ok();
        let pair = key.and_then(|key| KeyPair::from_pem(key).ok());
        let pair = pair.ok_or_else(|| {
            Error::Wrong("the authority's key is no private key in PEM form".to_owned())
        })?;
        Self::new(own[0].clone(), cert.to_owned(), pair, "it")
    }

    fn new(
        own: CertificateDer<'static>,
        pem: Vec<u8>,
        pair: KeyPair,
        shown: &str,
    ) -> Result<Self, Error> {
        let public = pair.subject_public_key_info();
        let issuer = Issuer::from_ca_cert_der(&own, pair)?;
        if !issuer.key_usages().contains(&KeyUsagePurpose::KeyCertSign) {
            let what = format!("{shown} is not the certificate of an authority");
            return Err(Error::Wrong(what));
        }
        let (_, parsed) = X509Certificate::from_der(&own)
            .map_err(|_| Error::Wrong(format!("{shown} is no X.509 certificate")))?;
        if parsed.public_key().raw != public {
            let what = format!("{shown} is the certificate of another key");
            return Err(Error::Wrong(what));
        }
        let not_after = parsed.validity().not_after.timestamp();
        Ok(Self {
            issuer,
            own,
            pem,
            not_after,
        })
    }

    /// Returns its own certificate in PEM, with those beside it.
    pub(crate) fn certificates(&self) -> &[u8] {
        &self.pem
    }

    /// Makes a certificate and its key in new files.
    ///
    /// # Errors
    ///
    /// When they exist already, or the spec is invalid.
    pub fn issue(&self, spec: &CertificateSpec, pair: &Pair) -> Result<(), Error> {
        pair.expect_free()?;
        let (cert, key) = self.sign(spec)?;
        create(&pair.key, key.as_bytes(), 0o600)?;
        create(&pair.cert, cert.as_bytes(), 0o644)
    }

    /// Renews a certificate with a new key and the same identity. Each file is replaced atomically; in
    /// between they do not match, and programs keep using the old ones.
    ///
    /// # Errors
    ///
    /// When it does not exist, carries no identity, or is not of this authority: content that a user
    /// wrote must not be signed.
    pub fn renew(&self, pair: &Pair, validity: Duration) -> Result<Identity, Error> {
        let old = read(&pair.cert)?;
        if !self.has_made(&certificates(&pair.cert)?[0]) {
            let what = format!(
                "{} was not made by this authority, which renews only certificates of its own: issue a \
                 new one",
                pair.cert.display()
            );
            return Err(Error::Wrong(what));
        }
        let spec = CertificateSpec {
            role: old.role,
            name: old.name,
            dns: old.dns,
            ips: old.ips,
            validity,
        };
        let (cert, key) = self.sign(&spec)?;
        replace(&pair.key, key.as_bytes(), 0o600)?;
        replace(&pair.cert, cert.as_bytes(), 0o644)?;
        read(&pair.cert)
    }

    /// Returns whether the first certificate of a text bears its signature, whether it is valid now or not.
    #[must_use]
    pub fn has_signed(&self, cert: &[u8]) -> bool {
        let chain = pem::certificates(cert, "it");
        chain.is_ok_and(|chain| self.has_made(&chain[0]))
    }

    /// Returns whether a certificate bears its signature, whether it is valid now or not.
    fn has_made(&self, certificate: &[u8]) -> bool {
        let read = (
            X509Certificate::from_der(certificate),
            X509Certificate::from_der(&self.own),
        );
        let (Ok((_, certificate)), Ok((_, own))) = read else {
            return false;
        };
        certificate.verify_signature(Some(own.public_key())).is_ok()
    }

    /// Makes a certificate; returns it and its key, in PEM.
    ///
    /// # Errors
    ///
    /// When the spec is invalid, or the authority has expired.
    pub fn sign(&self, spec: &CertificateSpec) -> Result<(String, String), Error> {
        spec.check()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&spec.name, spec.organisation().as_deref());
        params.subject_alt_names = alternatives(&spec.dns, &spec.ips)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        self.finish(params, spec.validity)
    }

    /// Makes a certificate of a hypervisor's part and its key, in PEM: see [`crate::hypervisor`].
    pub(crate) fn sign_hypervisor(
        &self,
        organisation: &str,
        spec: &HypervisorSpec,
    ) -> Result<(String, String), Error> {
        check_name(&spec.name)?;
        check_alternatives(&spec.dns, &spec.ips)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&spec.name, Some(organisation));
        params.subject_alt_names = alternatives(&spec.dns, &spec.ips)?;
        // libvirt 9 and QEMU 7.2 refuse a certificate whose key may not encipher keys, although no cipher
        // of TLS 1.3 does that.
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        self.finish(params, spec.validity)
    }

    fn finish(
        &self,
        mut params: CertificateParams,
        validity: Duration,
    ) -> Result<(String, String), Error> {
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let left = u64::try_from(self.not_after - identity::now()).unwrap_or(0);
        if left == 0 {
            let what = "the authority itself has expired: make a new one in another directory";
            return Err(Error::Wrong(what.to_owned()));
        }
        // A certificate is useless once its authority has expired.
        set_validity(&mut params, validity.min(Duration::from_secs(left)));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

impl CertificateSpec {
    fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        check_alternatives(&self.dns, &self.ips)?;
        let special = match self.name.as_str() {
            PMEM_REGISTRY => Some(Role::CsiController),
            PMEM_NODE_CONTROLLER => Some(Role::Agent),
            _ => None,
        };
        match special {
            Some(role) if role != self.role => Err(Error::Wrong(format!(
                "{} is PMEM-CSI's name of a {role}, not of a {}",
                self.name, self.role
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// PMEM-CSI's own certificates have none, and its programs compare the common name alone.
    fn organisation(&self) -> Option<String> {
        let of_pmem_csi = matches!(self.name.as_str(), PMEM_REGISTRY | PMEM_NODE_CONTROLLER);
        (!of_pmem_csi).then(|| format!("{PREFIX}{}", self.role))
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    match identity::is_name(name) {
        true => Ok(()),
        false => Err(Error::Wrong(format!(
            "{name:?} is no name: 1 to {} letters, digits, '.', '_', '-'",
            identity::NAME_MAX
        ))),
    }
}

fn check_alternatives(dns: &[String], ips: &[IpAddr]) -> Result<(), Error> {
    if dns.len() + ips.len() > NAMES_MAX {
        let what = format!("a certificate has at most {NAMES_MAX} names and addresses");
        return Err(Error::Wrong(what));
    }
    Ok(())
}

fn alternatives(dns: &[String], ips: &[IpAddr]) -> Result<Vec<SanType>, Error> {
    let mut names = Vec::new();
    for name in dns {
        material::server_name(name).map_err(Error::Wrong)?;
        let name = Ia5String::try_from(name.as_str())?;
        names.push(SanType::DnsName(name));
    }
    names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    Ok(names)
}

/// Reads a certificate.
///
/// # Errors
///
/// When it is none, or carries no identity.
pub fn read(path: &Path) -> Result<Identity, Error> {
    let chain = certificates(path)?;
    Identity::of(&chain[0]).map_err(|why| Error::Anonymous {
        path: path.to_owned(),
        why,
    })
}

/// Checks a validity in days.
///
/// # Errors
///
/// When it is none, or centuries.
pub fn check_days(days: u32) -> Result<(), Error> {
    if (1..=DAYS_MAX).contains(&days) {
        return Ok(());
    }
    let what = format!("{days} days are not within 1 to {DAYS_MAX}");
    Err(Error::Wrong(what))
}

/// Returns a number of days as a duration.
#[must_use]
pub fn days(days: u32) -> Duration {
    DAY * days
}

fn subject(name: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(organisation) = organisation {
        subject.push(DnType::OrganizationName, organisation);
    }
    subject.push(DnType::CommonName, name);
    subject
}

fn set_validity(params: &mut CertificateParams, validity: Duration) {
    let now = u64::try_from(identity::now()).unwrap_or(0);
    let now = Duration::from_secs(now);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + (now + validity);
}

/// Writes a file that does not exist yet.
pub(crate) fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|why| {
        if why.kind() == io::ErrorKind::AlreadyExists {
            return Error::Exists(path.to_owned());
        }
        Error::File {
            path: path.to_owned(),
            why,
        }
    })
}

/// Replaces a file atomically.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    berth_files::replace_with_mode(path, bytes, mode).map_err(|why| Error::File {
        path: path.to_owned(),
        why,
    })
}
