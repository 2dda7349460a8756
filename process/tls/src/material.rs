//! Three files, read and validated: the trusted authorities, and the own certificate with its key.
//!
//! Invariant: the parts match. The key is the certificate's, and the certificate is valid now, carries
//! an identity, and comes from one of the authorities.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_files::SecretError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientCertVerifierBuilder, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::explain;
use crate::identity::{Anonymous, Identity};
use crate::revoked::{NotRevoked, RevokedList};
use crate::trust::Side;

/// The longest file that is read, in bytes: a certificate takes about one kilobyte.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where certificates and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificates of the authorities that are trusted.
    pub ca: PathBuf,
    /// The own certificate, and those between it and the authority, if any.
    pub cert: PathBuf,
    /// The own key.
    pub key: PathBuf,
}

/// What is wrong with the files.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A file cannot be read.
    #[error("{path} cannot be read: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// A key cannot be read, or other users of the machine can.
    #[error("the key {path} cannot be used: {why}")]
    Key {
        /// The key.
        path: PathBuf,
        /// Why.
        why: SecretError,
    },
    /// A file holds no item of the expected kind.
    #[error("{path} holds no {what} in PEM form")]
    Empty {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        what: &'static str,
    },
    /// A file is damaged.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// The certificate carries another identity than before.
    #[error("the certificate {path} is that of {now}, and this is {before}")]
    IdentityChanged {
        /// The certificate.
        path: PathBuf,
        /// The identity now.
        now: String,
        /// The identity before.
        before: String,
    },
    /// The key does not belong to the certificate.
    #[error("the key {key} is not that of the certificate {cert}: {why}")]
    OtherKey {
        /// The key.
        key: PathBuf,
        /// The certificate.
        cert: PathBuf,
        /// What exactly.
        why: String,
    },
    /// The certificate carries no identity.
    #[error("the certificate {path} carries no identity: {why}")]
    Anonymous {
        /// The certificate.
        path: PathBuf,
        /// Why.
        why: Anonymous,
    },
    /// The certificate is not valid, as one that has expired.
    #[error("the certificate {path} is not valid: {why}")]
    Invalid {
        /// The certificate.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
}

/// Authorities, certificate and key that fit together.
pub struct Material {
    identity: Arc<Identity>,
    chain: Vec<CertificateDer<'static>>,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
    client: Arc<ClientConfig>,
    grpc: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    http_with_login: Arc<ServerConfig>,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Material").field(&self.identity).finish()
    }
}

/// The protocol of a server that requires client certificates, or accepts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 for clients that may have no certificate: what they may do is decided by other means.
    HttpWithLogin,
}

impl Material {
    /// Reads the files and validates them.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub(crate) fn read(files: &Files, revoked: &RevokedList) -> Result<Self, Fault> {
        let material = Self::read_unvalidated(files, revoked)?;
        material.validate().map_err(|why| Fault::Invalid {
            path: files.cert.clone(),
            why,
        })?;
        Ok(material)
    }

    /// As [`Self::read`], without validating the certificate, which may have expired: for tests of
    /// how peers refuse it.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the files.
    pub(crate) fn read_unvalidated(files: &Files, revoked: &RevokedList) -> Result<Self, Fault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(authorities(&files.ca)?);
        let chain = certificates(&files.cert)?;
        let key = certified(files, chain.clone(), &provider)?;
        let identity = Identity::of(&chain[0]).map_err(|why| Fault::Anonymous {
            path: files.cert.clone(),
            why,
        })?;
        let of_ca = |error: &dyn fmt::Display| Fault::Damaged {
            path: files.ca.clone(),
            why: error.to_string(),
        };
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let verifier = |builder: ClientCertVerifierBuilder| {
            let verifier = builder.build().map_err(|error| of_ca(&error))?;
            let verifier: Arc<dyn ClientCertVerifier> = Arc::new(NotRevoked {
                verifier,
                revoked: revoked.clone(),
            });
            Ok::<_, Fault>(verifier)
        };
        let with_login = verifier(clients.clone().allow_unauthenticated())?;
        let clients = verifier(clients)?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
        let servers = servers.build().map_err(|error| of_ca(&error))?;
        let resolver = Arc::new(SingleCertAndKey::from(key));
        let server = |clients: &Arc<dyn ClientCertVerifier>, alpn: &[&str]| {
            let mut config = ServerConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .expect("the provider supports them")
                .with_client_cert_verifier(clients.clone())
                .with_cert_resolver(resolver.clone());
            config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
            // A resumed session would skip the verification of the certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Arc::new(config)
        };
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_webpki_verifier(servers.clone())
            .with_client_cert_resolver(resolver.clone());
        client.alpn_protocols = vec![b"h2".to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Self {
            identity: Arc::new(identity),
            chain,
            client: Arc::new(client),
            grpc: server(&clients, &["h2"]),
            http: server(&clients, &["http/1.1"]),
            http_with_login: server(&with_login, &["http/1.1"]),
            clients,
            servers,
        })
    }

    /// Checks that others would accept the own certificate.
    fn validate(&self) -> Result<(), String> {
        let (own, between) = (&self.chain[0], &self.chain[1..]);
        let verified = self
            .clients
            .verify_client_cert(own, between, UnixTime::now());
        verified.map(|_| ()).map_err(|error| explain::own(&error))
    }

    /// Checks that the authorities trust the chain that a peer presented.
    pub(crate) fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        side: &Side,
    ) -> Result<(), String> {
        let Some((own, between)) = chain.split_first() else {
            return Err("no certificate was presented".to_owned());
        };
        let now = UnixTime::now();
        let verified = match side {
            Side::Client => self
                .clients
                .verify_client_cert(own, between, now)
                .map(|_| ()),
            Side::Server(name) => self
                .servers
                .verify_server_cert(own, between, name, &[], now)
                .map(|_| ()),
        };
        verified.map_err(|error| explain::own(&error))
    }

    /// Checks that clients which dial this host would accept the certificate.
    ///
    /// # Errors
    ///
    /// Why they would not, and what to do.
    pub fn check_serves(&self, host: &str) -> Result<(), String> {
        let name = server_name(host)?;
        let (own, between) = (&self.chain[0], &self.chain[1..]);
        let now = UnixTime::now();
        let verified = self
            .servers
            .verify_server_cert(own, between, &name, &[], now);
        verified
            .map(|_| ())
            .map_err(|error| explain::of_server(&error, host, Some(&self.identity)))
    }

    /// Returns the own identity.
    #[must_use]
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    pub(crate) fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    pub(crate) fn server(&self, protocol: Protocol) -> &Arc<ServerConfig> {
        match protocol {
            Protocol::Grpc => &self.grpc,
            Protocol::Http => &self.http,
            Protocol::HttpWithLogin => &self.http_with_login,
        }
    }
}

/// Returns a host as certificates name it.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("{host:?} is neither a host's name nor an address"))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let file = std::fs::File::open(path).map_err(failed(path))?;
    read_from(file, path)
}

/// Reads a private key, which no other user of the machine may read.
///
/// # Errors
///
/// When one may, or the file cannot be read.
pub(crate) fn read_key(path: &Path) -> Result<Vec<u8>, Fault> {
    match berth_files::open_secret(path) {
        Ok(file) => read_from(file, path),
        // As one that was swapped with the certificate. What is wrong then is not the mode.
        Err(SecretError::Loose(_)) if !holds_a_key(path) => read(path),
        Err(why) => Err(Fault::Key {
            path: path.to_owned(),
            why,
        }),
    }
}

fn holds_a_key(path: &Path) -> bool {
    let bytes = read(path);
    bytes.is_ok_and(|bytes| PrivateKeyDer::from_pem_slice(&bytes).is_ok())
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Fault {
    move |why| Fault::Read {
        path: path.to_owned(),
        why,
    }
}

fn read_from(file: std::fs::File, path: &Path) -> Result<Vec<u8>, Fault> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let limited = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    limited.map_err(failed(path))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Fault::Damaged {
            path: path.to_owned(),
            why: format!("it is longer than {FILE_BYTES_MAX} bytes"),
        });
    }
    Ok(bytes)
}

/// Reads the certificates of a file, of which there is at least one.
///
/// # Errors
///
/// When there is none, or the file is damaged.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let bytes = read(path)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let parsed = parsed.map_err(|error| Fault::Damaged {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    if parsed.is_empty() {
        return Err(Fault::Empty {
            path: path.to_owned(),
            what: "certificate",
        });
    }
    Ok(parsed)
}

/// Reads the certificates of authorities, at least one.
///
/// # Errors
///
/// The file cannot be read, or holds anything else.
pub fn authorities(path: &Path) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| Fault::Damaged {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn certified(
    files: &Files,
    chain: Vec<CertificateDer<'static>>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Fault> {
    let bytes = read_key(&files.key)?;
    // What is wrong with a key is not reported in detail: nothing of it belongs in a log.
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| Fault::Empty {
        path: files.key.clone(),
        what: "private key",
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| Fault::OtherKey {
        key: files.key.clone(),
        cert: files.cert.clone(),
        why: error.to_string(),
    })
}
