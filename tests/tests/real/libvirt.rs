//! The libvirt binding against libvirt's own test hypervisor, which lives inside the library and needs
//! no daemon.

use berth_driver::libvirt::{Affects, Connection, Domain, DomainState, Kind, Library, XmlView};

const XML: &str = "<domain type='test'><name>harbour</name>\
    <uuid>7b0a1c1e-58a4-4a1b-9d1e-0c7f3c2d4b5a</uuid>\
    <memory unit='MiB'>64</memory><vcpu>2</vcpu><os><type>hvm</type></os></domain>";

/// A connection to the test hypervisor, which all connections of a process share.
fn test_hypervisor() -> Connection {
    Connection::open("test:///default").expect("it needs no daemon")
}

pub(crate) fn an_absent_daemon_is_named_with_its_uri() {
    let library = Library::open().unwrap();
    let uri = "qemu+unix:///system?socket=/nonexistent/libvirt-sock";
    let error = library.connect(uri).expect_err("no daemon listens there");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains(uri), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

pub(crate) fn a_domain_is_defined_started_stopped_and_forgotten() {
    let connection = test_hypervisor();
    let domain = connection.define(XML).unwrap();
    assert_eq!(domain.name(), "harbour");
    assert_eq!(
        domain.uuid().unwrap(),
        "7b0a1c1e-58a4-4a1b-9d1e-0c7f3c2d4b5a"
    );
    assert_eq!(domain.status().unwrap().state, DomainState::ShutOff);
    assert!(domain.is_persistent().unwrap());

    domain.start().unwrap();
    assert_eq!(domain.status().unwrap().state, DomainState::Running);
    assert!(domain.start().is_err());
    assert!(
        domain
            .xml(XmlView::Live)
            .unwrap()
            .contains("<name>harbour</name>")
    );

    domain.destroy().unwrap();
    assert_eq!(domain.destroy().unwrap_err().kind(), Kind::OperationInvalid);
    domain.undefine().unwrap();
    assert_eq!(domain.status().unwrap_err().kind(), Kind::NoDomain);
    assert!(
        connection
            .find_domain("7b0a1c1e-58a4-4a1b-9d1e-0c7f3c2d4b5a")
            .unwrap()
            .is_none()
    );
}

pub(crate) fn domains_are_listed() {
    let connection = test_hypervisor();
    let xml = XML
        .replace("harbour", "pier")
        .replace("7b0a1c1e", "7b0a1c20");
    let domain = connection.define(&xml).unwrap();
    let names: Vec<_> = connection
        .domains()
        .unwrap()
        .iter()
        .map(Domain::name)
        .collect();
    assert!(names.contains(&"pier".to_owned()), "{names:?}");
    domain.undefine().unwrap();
}

pub(crate) fn metadata_is_kept_with_the_domain() {
    let connection = test_hypervisor();
    let xml = XML
        .replace("harbour", "quay")
        .replace("7b0a1c1e", "7b0a1c1f");
    let domain = connection.define(&xml).unwrap();
    let uri = "urn:berth:test";
    assert_eq!(domain.metadata(uri).unwrap_err().kind(), Kind::NoMetadata);
    let element = "<claim id='c1'/>";
    domain
        .set_metadata(uri, "b", Some(element), Affects::Definition)
        .unwrap();
    assert!(domain.metadata(uri).unwrap().contains("c1"));
    domain
        .set_metadata(uri, "b", None, Affects::Definition)
        .unwrap();
    assert_eq!(domain.metadata(uri).unwrap_err().kind(), Kind::NoMetadata);
    domain.undefine().unwrap();
}

pub(crate) fn bad_arguments_are_told_from_other_errors() {
    let connection = test_hypervisor();
    assert_eq!(
        connection.define("<domain").unwrap_err().kind(),
        Kind::InvalidArgument
    );
    assert_eq!(
        connection.define("a\0b").unwrap_err().kind(),
        Kind::InvalidArgument
    );
    assert_eq!(
        connection.domain_by_name("nobody").unwrap_err().kind(),
        Kind::NoDomain
    );
}

pub(crate) fn a_connection_serves_several_threads() {
    let connection = test_hypervisor();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert!(connection.is_alive());
                    // The error of one thread must not be seen by another.
                    let error = connection.domain_by_name("nobody").unwrap_err();
                    assert_eq!(error.kind(), Kind::NoDomain);
                    assert!(connection.capabilities().unwrap().contains("<host>"));
                }
            });
        }
    });
}
