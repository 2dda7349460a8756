//! Making certificates, and reading them.
//!
//! Goal: what is made says who it is for and is taken; what is wrong is refused with a sentence that
//! names the file, and nothing is overwritten. Method: an authority in a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::common::{Certs, spec};
use berth_tls::authority::{self, Authority, Error, Pair};
use berth_tls::pem::Bundle;
use berth_tls::{Expected, Files, Identity, Role, Tls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

#[test]
fn a_certificate_says_whose_it_is() {
    let certs = Certs::new();
    for role in Role::ALL {
        let files = certs.issue(&spec(role, "h-1.example_2"));
        let identity = authority::read(&files.cert).unwrap();
        assert_eq!((identity.role, &*identity.name), (role, "h-1.example_2"));
        assert_eq!(identity.principal(), format!("{role}:h-1.example_2"));
        assert_eq!(identity.dns, ["localhost"]);
        assert_eq!(
            identity.ips,
            ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]
        );
        assert_eq!(identity.is_agent_of("h-1.example_2"), role == Role::Agent);
        assert!(!identity.is_agent_of("localhost"));
        Tls::open(files)
            .unwrap()
            .current()
            .check_serves("localhost")
            .unwrap();
    }
}

/// Goal: PMEM-CSI's own certificates are taken for what its programs are.
#[test]
fn the_names_of_pmem_csi_are_known() {
    let certs = Certs::new();
    let registry = certs.issue(&spec(Role::CsiController, "pmem-registry"));
    let registry = authority::read(&registry.cert).unwrap();
    assert_eq!(registry.principal(), "csi-controller:pmem-registry");
    assert!(Expected::Scheduler.check("h", &registry).is_err());

    let mut node = spec(Role::Agent, "pmem-node-controller");
    node.dns = vec!["worker-1".into(), "worker-2".into()];
    let node = authority::read(&certs.issue(&node).cert).unwrap();
    assert_eq!(node.role, Role::Agent);
    assert!(node.is_agent_of("worker-1") && node.is_agent_of("worker-2"));
    assert!(!node.is_agent_of("worker-3"));

    let wrong = spec(Role::Operator, "pmem-registry");
    let told = certs.authority.issue(&wrong, &certs.pair("x")).unwrap_err();
    assert!(told.to_string().contains("csi-controller"), "{told}");
}

#[test]
fn keys_are_their_owners_and_nothing_is_overwritten() {
    let certs = Certs::new();
    let files = certs.issue(&spec(Role::Agent, "h1"));
    for key in [&files.key, &certs.ca_key()] {
        let mode = fs::metadata(key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", key.display());
    }
    let before = fs::read(&files.key).unwrap();
    let again = certs
        .authority
        .issue(&spec(Role::Agent, "h1"), &certs.pair("agent-h1"));
    assert!(matches!(again, Err(Error::Exists(path)) if path == files.cert));
    let again = authority::init(certs.path(), "test", 10);
    assert!(matches!(again, Err(Error::Exists(_))));
    assert_eq!(fs::read(&files.key).unwrap(), before);

    // One half that is left is not taken for nothing either.
    fs::remove_file(&files.cert).unwrap();
    let again = certs
        .authority
        .issue(&spec(Role::Agent, "h1"), &certs.pair("agent-h1"));
    assert!(matches!(again, Err(Error::Exists(path)) if path == files.key));
}

/// Goal: a renewal keeps who and where, and changes key and time; a program that follows takes it.
#[test]
fn a_renewal_is_for_the_same_with_another_key() {
    let certs = Certs::new();
    let mut old = spec(Role::Agent, "h1");
    old.validity = Duration::from_secs(60);
    let files = certs.issue(&old);
    let before = authority::read(&files.cert).unwrap();
    let key_before = fs::read(&files.key).unwrap();
    let tls = Tls::open(files.clone()).unwrap();

    let pair = Pair::of_certificate(&files.cert).unwrap();
    let after = certs
        .authority
        .renew(&pair, Duration::from_secs(7200))
        .unwrap();
    assert_eq!(
        (after.principal(), &after.dns, &after.ips),
        (before.principal(), &before.dns, &before.ips)
    );
    assert!(after.not_after > before.not_after);
    assert_ne!(fs::read(&files.key).unwrap(), key_before);
    assert_eq!(
        fs::metadata(&files.key).unwrap().permissions().mode() & 0o777,
        0o600
    );

    assert_eq!(tls.identity().fingerprint, before.fingerprint);
    tls.reload().unwrap();
    assert_eq!(tls.identity().fingerprint, after.fingerprint);
    assert_eq!(tls.generation(), 1);
}

#[test]
fn what_does_not_fit_together_is_not_taken() {
    let certs = Certs::new();
    let good = certs.issue(&spec(Role::Agent, "h1"));
    let other = certs.issue(&spec(Role::Agent, "h2"));
    let foreign = Certs::new();
    let tls = Tls::open(good.clone()).unwrap();
    let told = |files: Files| Tls::open(files).unwrap_err().to_string();

    let mixed = told(Files {
        key: other.key.clone(),
        ..good.clone()
    });
    assert!(
        mixed.contains("agent-h2-key.pem") && mixed.contains("is not that of"),
        "{mixed}"
    );
    let strange = told(Files {
        ca: foreign.path().join("ca.pem"),
        ..good.clone()
    });
    assert!(
        strange.contains("an authority that is not trusted"),
        "{strange}"
    );
    let missing = told(Files {
        ca: certs.path().join("none.pem"),
        ..good.clone()
    });
    assert!(missing.contains("none.pem cannot be read"), "{missing}");
    let swapped = told(Files {
        key: good.cert.clone(),
        ..good.clone()
    });
    assert!(swapped.contains("holds no private key"), "{swapped}");
    let empty = told(Files {
        cert: good.key.clone(),
        ..good.clone()
    });
    assert!(empty.contains("holds no certificate"), "{empty}");

    // Half of a new pair: the old one serves on.
    let text = fs::read(&good.cert).unwrap();
    for broken in [
        &text[..text.len() / 2],
        b"",
        &fs::read(&other.cert).unwrap(),
    ] {
        fs::write(&good.cert, broken).unwrap();
        assert!(tls.reload().is_err());
        assert_eq!((tls.identity().name.as_str(), tls.generation()), ("h1", 0));
    }
}

/// Goal: a key that other users of the machine may read is not used, neither at the start nor later.
#[test]
fn a_key_that_others_may_read_is_refused() {
    let certs = Certs::new();
    let files = certs.issue(&spec(Role::Agent, "h1"));
    let tls = Tls::open(files.clone()).unwrap();
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o644, 0o604, 0o666, 0o660] {
        set_mode(&files.key, mode);
        for error in [Tls::open(files.clone()).err(), tls.reload().err()] {
            let error = error.expect("it is refused").to_string();
            let expected = "agent-h1-key.pem cannot be used: it is readable for other users";
            assert!(error.contains(expected), "{error}");
            assert!(
                error.contains(&format!("(mode {mode:04o}): run chmod 600")),
                "{error}"
            );
        }
        assert_eq!(tls.generation(), 0);
    }
    set_mode(&files.key, 0o400);
    tls.reload().unwrap();

    set_mode(&certs.ca_key(), 0o644);
    let refused = Authority::open(&certs.path().join("ca.pem"), &certs.ca_key());
    let refused = refused.err().expect("it is refused").to_string();
    assert!(refused.contains("ca-key.pem cannot be used"), "{refused}");
}

#[test]
fn what_has_run_out_says_so() {
    let certs = Certs::new();
    let mut short = spec(Role::Operator, "ann");
    // Certificates hold from five minutes ago; this one held until now.
    short.validity = Duration::ZERO;
    let files = certs.issue(&short);
    let identity = authority::read(&files.cert).unwrap();
    assert!(identity.has_expired(identity.not_after + 1));
    assert_eq!(identity.days_left(identity.not_after + 1), -1);
    let held = Tls::open_unvalidated(files).unwrap().identity();
    assert_eq!(held.fingerprint, identity.fingerprint);
}

#[test]
fn wrong_wishes_are_told() {
    let certs = Certs::new();
    let told = |change: &dyn Fn(&mut authority::CertificateSpec)| {
        let mut wish = spec(Role::Agent, "h1");
        change(&mut wish);
        certs
            .authority
            .issue(&wish, &certs.pair("x"))
            .unwrap_err()
            .to_string()
    };
    for bad in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert!(
            told(&|wish| wish.name = bad.to_owned()).contains("is no name"),
            "{bad:?}"
        );
    }
    let bad = told(&|wish| wish.dns = vec!["no host".into()]);
    assert!(
        bad.contains("neither a host's name nor an address"),
        "{bad}"
    );
    assert!(told(&|wish| wish.dns = vec!["h".into(); 100]).contains("at most"));
    assert!(authority::check_days(0).is_err() && authority::check_days(40_000).is_err());

    let files = certs.issue(&spec(Role::Agent, "h1"));
    let no_authority = Authority::open(&files.cert, &files.key).err().unwrap();
    assert!(
        no_authority
            .to_string()
            .contains("not the certificate of an authority")
    );
    let none = Authority::open(&certs.path().join("x"), &files.key)
        .err()
        .unwrap();
    assert!(none.to_string().contains("berth certs init"), "{none}");
    assert!(Pair::of_certificate(&files.key).is_err());

    let ca = authority::read(&certs.path().join("ca.pem")).unwrap_err();
    assert!(matches!(ca, Error::Anonymous { .. }), "{ca}");
}

/// Goal: a program that runs does not become somebody else: a pair that is whole, and made by the same
/// authority, is not taken if it is of another name or another role.
#[test]
fn somebody_elses_certificate_is_not_taken() {
    let certs = Certs::new();
    let own = certs.issue(&spec(Role::Agent, "h1"));
    let tls = Tls::open(own.clone()).unwrap();
    for (role, name) in [(Role::Agent, "h2"), (Role::Operator, "h1")] {
        let other = certs.issue(&spec(role, name));
        fs::copy(&other.key, &own.key).unwrap();
        fs::copy(&other.cert, &own.cert).unwrap();
        let told = tls.reload().unwrap_err().to_string();
        let expected = format!("is that of {role}:{name}, and this is agent:h1");
        assert!(told.contains(&expected), "{told}");
        assert_eq!(tls.identity().principal(), "agent:h1");
        assert_eq!(tls.generation(), 0);
    }
}

/// Makes a certificate with any subject, signed by an authority.
fn made_by(certs: &Certs, organisation: Option<&str>, name: &str) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organisation) = organisation {
        let kind = rcgen::DnType::OrganizationName;
        params.distinguished_name.push(kind, organisation);
    }
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let read = |path| fs::read_to_string(path).unwrap();
    let key = rcgen::KeyPair::from_pem(&read(certs.ca_key())).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read(certs.path().join("ca.pem")), key).unwrap();
    let own = rcgen::KeyPair::generate().unwrap();
    params.signed_by(&own, &issuer).unwrap().der().to_vec()
}

/// Goal: PMEM-CSI's names count in a subject without an organisation alone; an organisation of ours says
/// the role itself, and any other says that it is somebody else's.
#[test]
fn the_names_of_pmem_csi_are_known_without_an_organisation() {
    let certs = Certs::new();
    let role = |organisation: Option<&str>, name| {
        let identity = Identity::of(&made_by(&certs, organisation, name));
        identity.ok().map(|identity| identity.role)
    };
    for (name, own) in [
        ("pmem-registry", Role::CsiController),
        ("pmem-node-controller", Role::Agent),
    ] {
        assert_eq!(role(None, name), Some(own));
        for other in ["Example", "", "intel", "berth", "Berth:operator"] {
            assert_eq!(role(Some(other), name), None, "{other:?}");
        }
        assert_eq!(role(Some("berth:reader"), name), Some(Role::Reader));
        assert_eq!(role(Some("berth:root"), name), None);
    }
    for name in ["pmem-registry2", "Pmem-Registry", "operator"] {
        assert_eq!(role(None, name), None, "{name}");
    }
}

fn write_pem(path: &std::path::Path, der: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (number, bytes) in der.chunks(3).enumerate() {
        let all = [0, 1, 2].map(|at| u32::from(bytes.get(at).copied().unwrap_or(0)));
        let bits = all[0] << 16 | all[1] << 8 | all[2];
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            let is_there = digit <= bytes.len();
            text.push(if is_there {
                char::from(DIGITS[value as usize])
            } else {
                '='
            });
        }
        if number % 16 == 15 {
            text.push('\n');
        }
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    fs::write(path, text).unwrap();
}

/// Goal: nothing is made anew but what the authority made, as it made it. Method: a certificate of
/// another authority, one whose subject was altered, one that somebody signed with a key of his own and
/// with the authority's name on it, and no certificate.
#[test]
fn only_its_own_is_renewed() {
    let certs = Certs::new();
    let hour = Duration::from_secs(3600);
    let own = certs.issue(&spec(Role::Agent, "h1"));
    let pair = Pair::of_certificate(&own.cert).unwrap();
    let key = fs::read(&own.key).unwrap();
    let refused = |what: &str| {
        let before = fs::read(&own.cert).unwrap();
        let told = certs.authority.renew(&pair, hour).unwrap_err().to_string();
        assert!(
            told.contains("was not made by this authority"),
            "{what}: {told}"
        );
        assert_eq!(fs::read(&own.cert).unwrap(), before, "{what}");
        assert_eq!(fs::read(&own.key).unwrap(), key, "{what}");
    };
    let made = CertificateDer::from_pem_file(&own.cert).unwrap().to_vec();

    let mut altered = made.clone();
    let at = altered
        .windows(11)
        .position(|part| part == b"berth:agent")
        .unwrap();
    altered[at..at + 11].copy_from_slice(b"berth:agenT");
    write_pem(&own.cert, &altered);
    let told = certs.authority.renew(&pair, hour).unwrap_err().to_string();
    assert!(told.contains("is no role"), "{told}");
    let mut altered = made.clone();
    let at = altered.windows(2).rposition(|part| part == b"h1").unwrap();
    altered[at + 1] = b'2';
    write_pem(&own.cert, &altered);
    assert_eq!(authority::read(&own.cert).unwrap().name, "h2");
    refused("altered");

    let foreign = Certs::new();
    let other = foreign.issue(&spec(Role::Agent, "h1"));
    fs::copy(&other.cert, &own.cert).unwrap();
    refused("foreign");

    // A key of his own, under the authority's name.
    let ca = fs::read_to_string(certs.path().join("ca.pem")).unwrap();
    let mine = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca, &mine).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let names = &mut params.distinguished_name;
    names.push(rcgen::DnType::OrganizationName, "berth:operator");
    names.push(rcgen::DnType::CommonName, "eve");
    let forged = params.signed_by(&mine, &issuer).unwrap();
    write_pem(&own.cert, forged.der());
    refused("forged");

    write_pem(&own.cert, &made);
    certs.authority.renew(&pair, hour).unwrap();
}

/// Goal: what is made in memory is what a program accepts from files, and each part that does not belong
/// to the others is refused with a sentence.
#[test]
fn certificates_in_memory_are_made_and_checked() {
    let (certs, others) = (Certs::new(), Certs::new());
    let ca = fs::read(certs.path().join("ca.pem")).unwrap();
    let key = fs::read(certs.ca_key()).unwrap();
    let authority = Authority::from_pem(&ca, &key).unwrap();
    let (cert, own) = authority.sign(&spec(Role::Agent, "h1")).unwrap();
    let (other_cert, other_key) = others.authority.sign(&spec(Role::Agent, "h1")).unwrap();
    let bundle = Bundle {
        ca: &ca,
        cert: cert.as_bytes(),
        key: own.as_bytes(),
    };
    assert_eq!(bundle.check().unwrap().principal(), "agent:h1");
    bundle.check_serves("localhost").unwrap();
    assert!(bundle.check_serves("elsewhere").is_err());
    assert!(authority.has_signed(cert.as_bytes()));
    assert!(!authority.has_signed(other_cert.as_bytes()) && !authority.has_signed(b"none"));
    let fault = |bundle: Bundle<'_>| bundle.check().unwrap_err();
    let wrong = [
        (
            Bundle {
                ca: b"none",
                ..bundle
            },
            "the authority",
        ),
        (
            Bundle {
                cert: b"none",
                ..bundle
            },
            "the certificate is no",
        ),
        (
            Bundle {
                key: b"none",
                ..bundle
            },
            "no private key",
        ),
        (
            Bundle {
                key: other_key.as_bytes(),
                ..bundle
            },
            "not that of the certificate",
        ),
        (
            Bundle {
                cert: other_cert.as_bytes(),
                key: other_key.as_bytes(),
                ..bundle
            },
            "is not valid",
        ),
    ];
    for (bundle, expected) in wrong {
        let why = fault(bundle);
        assert!(why.contains(expected), "{expected}: {why}");
    }
    let refused =
        |cert: &[u8], key: &[u8]| Authority::from_pem(cert, key).err().unwrap().to_string();
    assert!(refused(&ca, own.as_bytes()).contains("of another key"));
    assert!(refused(cert.as_bytes(), own.as_bytes()).contains("of an authority"));
    assert!(refused(&ca, b"none").contains("no private key"));
}
