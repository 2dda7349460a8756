//! What a failed handshake means, and what to do: sentences for people.
//!
//! Invariant: a sentence says whose certificate is meant, what is wrong, and what to do about it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enums are rustls's, which adds to them; unknown values describe themselves"
)]

use std::net::IpAddr;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::identity::Identity;
use crate::revoked::IT_IS_REVOKED;

/// Explains why others would not accept the own certificate.
#[must_use]
pub fn own(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(fault) => format!("{}; {}", certificate(fault), remedy(fault)),
        other => other.to_string(),
    }
}

/// Explains why the certificate of a server that was dialled as `host` is not accepted. For the own
/// certificate, `own` is its identity.
#[must_use]
pub fn of_server(error: &Error, host: &str, own: Option<&Identity>) -> String {
    let Error::InvalidCertificate(fault) = error else {
        return of_connection(error, host);
    };
    let is_other_name = matches!(
        fault,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    );
    match (is_other_name, own) {
        (true, Some(own)) => format!(
            "the certificate of {} does not name {host}, by which others dial it; its names are {}: \
             issue one with {}",
            own.principal(),
            names(own),
            naming(host)
        ),
        (true, None) => format!(
            "the certificate of the server at {host} is not valid for that name: dial it by a name \
             that is in it, or issue one with {}",
            naming(host)
        ),
        (false, _) => format!(
            "the certificate of the server at {host} is refused: {}; {}",
            certificate(fault),
            remedy(fault)
        ),
    }
}

/// Returns the option of `berth certs issue` that puts an address into a certificate: names and addresses
/// stand there without a port.
fn naming(address: &str) -> String {
    let (host, is_port) = match address.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().is_ok()),
        None => (address, false),
    };
    // The last group of an IPv6 address may look like a port.
    let host = match is_port && address.parse::<IpAddr>().is_err() {
        true => host,
        false => address,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) => format!("--ip {ip}"),
        Err(_) => format!("--dns {bare}"),
    }
}

/// Returns the names and addresses of a certificate, for people.
#[must_use]
pub fn names(identity: &Identity) -> String {
    let ips = identity.ips.iter().map(ToString::to_string);
    let all: Vec<String> = identity.dns.iter().cloned().chain(ips).collect();
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join(", "),
    }
}

/// Explains why a connection to the server that was dialled as `host` failed.
#[must_use]
pub fn of_connection(error: &Error, host: &str) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => format!(
            "the server at {host} does not speak TLS: give it certificates ([tls] in its \
             configuration), or leave out --tls-ca, --tls-cert and --tls-key"
        ),
        Error::AlertReceived(alert) => alerted(*alert, host),
        other => format!("no TLS connection to {host}: {other}"),
    }
}

/// Explains the alert with which a server refused a handshake.
fn alerted(alert: AlertDescription, host: &str) -> String {
    let why = match alert {
        AlertDescription::CertificateRequired => {
            "it requires a certificate: give --tls-ca, --tls-cert and --tls-key"
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it does not trust the authority of the presented certificate: use one of the \
             same authority as the server's"
        }
        AlertDescription::CertificateRevoked => {
            "the presented certificate is revoked: use another one (berth certs issue)"
        }
        AlertDescription::CertificateExpired => {
            "the presented certificate has expired: renew it (berth certs renew)"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it refuses the presented certificate",
        AlertDescription::ProtocolVersion => "it speaks another version of TLS, or none",
        other => return format!("the server at {host} ended the connection: {other:?}"),
    };
    format!("the server at {host} refused the connection: {why}")
}

/// Explains why this server refused a client.
#[must_use]
pub fn of_client(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => {
            "no certificate was presented; clients need --tls-ca, --tls-cert and --tls-key"
                .to_owned()
        }
        Error::InvalidCertificate(fault) => {
            format!("its certificate is refused: {}", certificate(fault))
        }
        Error::AlertReceived(alert) => {
            format!("it does not accept this server's certificate: {alert:?}")
        }
        other => other.to_string(),
    }
}

/// Returns what is wrong with a certificate.
fn certificate(fault: &CertificateError) -> String {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it comes from an authority that is not trusted here".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not valid for this purpose".to_owned()
        }
        CertificateError::Revoked => IT_IS_REVOKED.to_owned(),
        other => other.to_string(),
    }
}

/// Returns what to do about it.
fn remedy(fault: &CertificateError) -> &'static str {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew it: berth certs renew"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "check the clocks of both machines"
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "all certificates of a cluster come from one authority, whose certificate is the ca file: \
             compare them with berth certs show"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage must allow TLS servers and TLS clients"
        }
        CertificateError::Revoked => "use another one: berth certs issue",
        _ => "inspect it with berth certs show",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a sentence says about a certificate can be typed. Method: each way to write an address.
    #[test]
    fn the_option_is_the_one_of_the_address_and_has_no_port() {
        for (address, option) in [
            ("10.0.0.1:7100", "--ip 10.0.0.1"),
            ("10.0.0.1", "--ip 10.0.0.1"),
            ("[::1]:7100", "--ip ::1"),
            ("[::1]", "--ip ::1"),
            ("::1", "--ip ::1"),
            ("fd00::7100", "--ip fd00::7100"),
            ("m2.example:7300", "--dns m2.example"),
            ("m2", "--dns m2"),
        ] {
            assert_eq!(naming(address), option, "{address}");
            let fault = Error::InvalidCertificate(CertificateError::NotValidForName);
            let sentence = of_server(&fault, address, None);
            assert!(sentence.ends_with(option), "{sentence}");
        }
    }
}
