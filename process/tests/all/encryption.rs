//! What a server is told of its certificates.

use berth_process::{Encryption, Listening};
use berth_tls::Role;

fn told(encryption: &Encryption) -> Vec<String> {
    let mut faults = Vec::new();
    encryption.check(&mut faults);
    faults
}

#[test]
fn all_three_files_or_none() {
    let mut encryption = Encryption::default();
    assert!(told(&encryption).is_empty() && encryption.files().is_none());
    encryption.cert = Some("cert.pem".into());
    let faults = told(&encryption);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].ends_with("tls.ca and tls.key is missing"),
        "{faults:?}"
    );
    (encryption.ca, encryption.key) = (Some("ca.pem".into()), Some("key.pem".into()));
    assert!(told(&encryption).is_empty() && encryption.files().is_some());
    let missing = encryption.open(Role::Agent, "h1:7300", |_| Ok(()));
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("ca.pem cannot be read"), "{missing}");
}

#[test]
fn certificates_let_it_listen_beyond_loopback() {
    let mut listening = Listening {
        advertise: Some("h1:7100".into()),
        ..Listening::new("0.0.0.0:7100")
    };
    let faults = |listening: &Listening| {
        let mut faults = Vec::new();
        listening.check("127.0.0.1:7100", &mut faults);
        faults
    };
    assert_eq!(faults(&listening).len(), 1);
    let encryption = &mut listening.encryption;
    (encryption.ca, encryption.cert) = (Some("ca.pem".into()), Some("cert.pem".into()));
    assert_eq!(faults(&listening).len(), 1, "a file is missing");
    listening.encryption.key = Some("key.pem".into());
    assert!(faults(&listening).is_empty());
}
