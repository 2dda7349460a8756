//! Making certificates, and reading them.
//!
//! Goal: what is made says who it is for and is taken; what is wrong is refused with a sentence that
//! names the file, and nothing is overwritten. Method: an authority in a directory.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use berth_tls::authority::{self, Authority, Error, Pair};
use berth_tls::{Expected, Files, Role, Tls};
use common::{Certs, wanted};

#[test]
fn a_certificate_says_whose_it_is() {
    let certs = Certs::new();
    for role in Role::ALL {
        let files = certs.issue(&wanted(role, "h-1.example_2"));
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
    let registry = certs.issue(&wanted(Role::CsiController, "pmem-registry"));
    let registry = authority::read(&registry.cert).unwrap();
    assert_eq!(registry.principal(), "csi-controller:pmem-registry");
    assert!(Expected::Scheduler.check("h", &registry).is_err());

    let mut node = wanted(Role::Agent, "pmem-node-controller");
    node.dns = vec!["worker-1".into(), "worker-2".into()];
    let node = authority::read(&certs.issue(&node).cert).unwrap();
    assert_eq!(node.role, Role::Agent);
    assert!(node.is_agent_of("worker-1") && node.is_agent_of("worker-2"));
    assert!(!node.is_agent_of("worker-3"));

    let wrong = wanted(Role::Operator, "pmem-registry");
    let told = certs.authority.issue(&wrong, &certs.pair("x")).unwrap_err();
    assert!(told.to_string().contains("csi-controller"), "{told}");
}

#[test]
fn keys_are_their_owners_and_nothing_is_overwritten() {
    let certs = Certs::new();
    let files = certs.issue(&wanted(Role::Agent, "h1"));
    for key in [&files.key, &certs.ca_key()] {
        let mode = fs::metadata(key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", key.display());
    }
    let before = fs::read(&files.key).unwrap();
    let again = certs
        .authority
        .issue(&wanted(Role::Agent, "h1"), &certs.pair("agent-h1"));
    assert!(matches!(again, Err(Error::Exists(path)) if path == files.cert));
    let again = authority::init(certs.path(), "test", 10);
    assert!(matches!(again, Err(Error::Exists(_))));
    assert_eq!(fs::read(&files.key).unwrap(), before);

    // One half that is left is not taken for nothing either.
    fs::remove_file(&files.cert).unwrap();
    let again = certs
        .authority
        .issue(&wanted(Role::Agent, "h1"), &certs.pair("agent-h1"));
    assert!(matches!(again, Err(Error::Exists(path)) if path == files.key));
}

/// Goal: a renewal keeps who and where, and changes key and time; a program that follows takes it.
#[test]
fn a_renewal_is_for_the_same_with_another_key() {
    let certs = Certs::new();
    let mut old = wanted(Role::Agent, "h1");
    old.holds = Duration::from_secs(60);
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
    let good = certs.issue(&wanted(Role::Agent, "h1"));
    let other = certs.issue(&wanted(Role::Agent, "h2"));
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

#[test]
fn what_has_run_out_says_so() {
    let certs = Certs::new();
    let mut short = wanted(Role::Operator, "ann");
    // Certificates hold from five minutes ago; this one held until now.
    short.holds = Duration::ZERO;
    let files = certs.issue(&short);
    let identity = authority::read(&files.cert).unwrap();
    assert!(identity.has_run_out(identity.not_after + 1));
    assert_eq!(identity.days_left(identity.not_after + 1), -1);
    let held = Tls::open_useless(files).unwrap().identity();
    assert_eq!(held.fingerprint, identity.fingerprint);
}

#[test]
fn wrong_wishes_are_told() {
    let certs = Certs::new();
    let told = |change: &dyn Fn(&mut authority::Wanted)| {
        let mut wish = wanted(Role::Agent, "h1");
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

    let files = certs.issue(&wanted(Role::Agent, "h1"));
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
